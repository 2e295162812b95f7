"""How `frameledger rebuild` prints a conversation and its summary."""

import json

from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.audit.rebuild import RebuildOutcome
from frameledger_services.cli.audit import render_rebuild
from frameledger_services.projector.rebuild import Rebuilt
from frameledger_services.store.rebuild import OpenWork
from frameledger_services.store.rebuilds import RebuildProgress


def differing(count=1):
    found = Differences()
    for number in range(count):
        found.add(number + 3, "messages", "text", "was \x1b[31mred", "is", {"era": 1, "position": number})
    return found


def test_nothing_is_said_of_a_conversation_that_is_as_it_should_be(capsys):
    same = RebuildOutcome("ctx", 3, 4, Differences())
    render_rebuild.print_lines(same)
    render_rebuild.print_json(same)
    assert capsys.readouterr().out == ""


def test_the_first_differences_are_shown_and_nothing_that_a_terminal_obeys(capsys):
    render_rebuild.print_lines(RebuildOutcome("ctx", 9, 4, differing(5)))
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "ctx  5 differences up to version 9"
    assert "  version 3, messages.text of era 1, position 0 is was" in said
    assert said.splitlines()[-1] == "  ... and 2 more"
    assert "\x1b" not in said


def test_what_was_rebuilt_says_what_is_open_now(capsys):
    begun = OpenWork("run", "run-1", 7)
    done = RebuildOutcome(
        "ctx", 9, 4, differing(), rebuilt=Rebuilt(9, settled=2, newly_open=[begun]), restored=1
    )
    render_rebuild.print_lines(done)
    assert capsys.readouterr().out.splitlines() == [
        "ctx  1 difference up to version 9; rebuilt",
        "  version 3, messages.text of era 1, position 0 is was �[31mred, should be is",
        "  1 frame restored from the log",
        "  now open: run run-1 (version 7)",
    ]
    render_rebuild.print_json(done)
    told = json.loads(capsys.readouterr().out)
    assert (told["rebuilt"], told["outcomes_changed"], told["frames_restored"]) == (True, 2, 1)
    assert told["open_now"] == [{"kind": "run", "id": "run-1", "version": 7}]
    assert told["differences"][0]["key"] == {"era": 1, "position": 0}


def test_what_cannot_be_folded_says_why(capsys):
    found = Differences()
    found.add(1, "eras", ROW, None, 2)
    render_rebuild.print_lines(RebuildOutcome("ctx", 9, 4, found, problem="its frames are damaged"))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  version 1, eras: a row is missing",
        "  not rebuilt: its frames are damaged",
    ]


def test_the_summary_says_what_was_done_or_what_would_be():
    done = RebuildProgress(1, read_count=3, differ_count=1, failed_count=1, rebuilt_count=1)
    assert render_rebuild.summary(done, apply=True) == (
        "3 conversations folded again: 1 differed, 1 cannot be rebuilt completely, 1 rebuilt."
    )
    assert render_rebuild.summary(RebuildProgress(1, read_count=1, differ_count=1), apply=False) == (
        "1 conversation folded again: 1 differed. Nothing was changed; --apply replaces what differs."
    )
