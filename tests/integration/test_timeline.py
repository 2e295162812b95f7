"""`frameledger timeline` and `timeline_of` show every frame, with the effects that the fold computes."""

import json
import os
import re
import subprocess
import sys
from itertools import islice

import psycopg
import pytest
from tests.bounds import PROGRAM
from tests.support import rows
from tests.support.batches import (
    HISTORIES,
    Log,
    database_of_histories,  # noqa: F401  # a fixture
    folded,
    project,
)
from tests.support.tiers import every
from typer.testing import CliRunner

from frameledger.evolve import changes
from frameledger.frames import encode_frame
from frameledger_services.bench.road.stream import conversation
from frameledger_services.cli import application
from frameledger_services.cli.terminal.column_text import short_id

COLUMNS = 100

BARGE_IN = """\
barge-in up to version 22
    2026-02-02 (UTC)
 1  02:40:00.020  LLMContext                         new history, message 1 (system), settings set
 2  02:40:00.280  UserStartedSpeaking
 3  02:40:00.540  InterimTranscription               "what's on at"
 4  02:40:00.800  Transcription                      "What's on at the harbour tonight?"
 5  02:40:01.060  UserStoppedSpeaking                message 2 (user), run 9c61dd04 opened
 6  02:40:01.320  LLMFullResponseStart    9c61dd04   attempt 1, meadow-2
 7  02:40:01.580  LLMText                 9c61dd04   "There are two concerts:"
 8  02:40:01.840  BotStartedSpeaking
 9  02:40:02.100  LLMText ×2              9c61dd04   "a brass band at seven, and a jazz trio at nin…
11  02:40:02.620  UserStartedSpeaking
12  02:40:02.880  Interruption                       message 3 (assistant), run 9c61dd04 interrupted
13  02:40:03.140  LLMText                 9c61dd04   ignored: run_over  "Shall I book"
14  02:40:03.400  BotStoppedSpeaking
15  02:40:03.660  Transcription                      "Only the jazz, please."
16  02:40:03.920  UserStoppedSpeaking                message 4 (user), run d548691a opened
17  02:40:04.180  LLMFullResponseStart    d548691a   attempt 1, meadow-2
18  02:40:04.440  LLMText                 d548691a   "The jazz trio plays at nine"
19  02:40:04.700  BotStartedSpeaking
20  02:40:04.960  LLMText                 d548691a   "in the old boathouse."
21  02:40:05.220  LLMFullResponseEnd      d548691a   message 5 (assistant), run d548691a ended
22  02:40:05.480  BotStoppedSpeaking
"""


@pytest.fixture
def command(command):
    """Run a command against a database; what it printed."""

    def run(address, *words):
        result = command(address, *words)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_a_barge_in_is_read_from_top_to_bottom(filled, command):
    assert command(filled, "timeline", "barge-in") == BARGE_IN


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_what_a_frame_did_is_what_the_fold_says(filled, path):
    _, steps = folded(path)
    with psycopg.connect(filled) as connection:
        found = connection.execute(
            "SELECT version, type, did, outcome, reason FROM timeline_of(%s)", (path.stem,)
        ).fetchall()
        counted = {
            short_id(run_id)
            for (run_id,) in connection.execute(
                "SELECT run_id FROM runs WHERE context_id = %s AND attempt = 0 AND started_version IS NOT NULL",
                (path.stem,),
            )
        }
    assert [row[0] for row in found] == list(range(1, len(steps) + 1))
    for (version, _, did, outcome, reason), step in zip(found, steps, strict=True):
        assert (version, outcome, reason) == (step.state.version, step.outcome, step.reason)
        assert words(did, counted) == {one for one in deeds(step.changes) if not is_of(one, counted)}, version


@pytest.mark.regression("fault 248")
@pytest.mark.parametrize("moved", ["interrupted", "dropped"])
def test_runs_that_one_frame_closes_stand_in_the_order_of_their_requests(filled, moved):
    """Neither the order of their ids nor that of their rows tells it."""
    with psycopg.connect(filled) as connection, connection.transaction(force_rollback=True):
        connection.execute(
            "UPDATE runs SET status = status WHERE context_id = 'coalesced-inputs' AND status = %s", (moved,)
        )
        for plan in ("on", "off"):
            connection.execute(f"SET LOCAL enable_sort = {plan}")
            query = "SELECT did FROM timeline_of('coalesced-inputs', 23, 23)"
            assert connection.execute(query).fetchall() == [
                ("messages 11 to 12, run d4d5151c interrupted, run 94923ee8 dropped",)
            ]


def words(did, counted):
    """The parts of `did`, without the names of functions. Those for which there is no change are left out: runs that
    were dropped, and answers that name no run and are counted as one."""
    said = re.sub(r"call (\S+) \([^)]*\)", r"call \1", did or "")
    parts = {part for part in said.split(", ") if part and not part.endswith(" dropped")}
    return {part for part in parts if not is_of(part, counted)}


def is_of(part, runs):
    """Tell whether the part is about one of these runs, given by their short ids."""
    return part.startswith("run ") and part.split()[1] in runs


def deeds(made):
    """The parts that `timeline_of` should have for these changes, in any order."""
    appended = [one for one in made if isinstance(one, changes.MessageAppended)]
    # Messages that one frame appends and rewrites or takes back were never in the context in their first form.
    brought = {one.position for one in appended}
    over = {one.position for one in made if isinstance(one, changes.MessageEnded)}
    kept = [one for one in appended if one.position not in over]
    if len(kept) > 1:
        yield f"messages {kept[0].position} to {kept[-1].position}"
    else:
        yield from (f"message {one.position} ({who(one.message)})" for one in kept)
    calls: dict = {}
    runs: dict = {}
    settings = []
    for change in made:
        match change:
            case changes.EraBegan():
                yield "new history"
            case changes.MessageReplaced(position) if position not in brought | over:
                yield f"message {position} rewritten"
            case changes.MessageEnded(position) if position not in brought:
                yield f"message {position} taken back"
            case changes.SettingChanged(name):
                settings.append(name.replace("_", " "))
            case changes.RunOpened(run_id):
                runs.setdefault(run_id, set()).add("opened")
            case changes.RunRequested(run_id, True):
                runs.setdefault(run_id, set()).add("asked for")
            case changes.RunClosed(run_id, end):
                runs.setdefault(run_id, set()).add(end)
            case changes.CallAnnounced():
                calls.setdefault(change.key, (change.tool_call_id, []))[1].append("announced")
            case changes.CallDispatched():
                calls.setdefault(change.key, (change.tool_call_id, []))[1].append("dispatched")
            case changes.CallInterrupted():
                calls.setdefault(change.key, (change.tool_call_id, []))[1].append("to be cancelled")
            case changes.CallStarted(again=False):
                calls.setdefault(change.key, (change.tool_call_id, []))[1].append("started")
            case changes.CallSettled():
                calls.setdefault(change.key, (change.tool_call_id, []))[1].append(change.end)
            case changes.CallResolved():
                calls.setdefault(change.key, (change.tool_call_id, []))[1].append("resolved")
            case _:
                pass
    if settings:
        yield " and ".join(sorted(settings)) + " set"
    for run_id, did in runs.items():
        said = did - {"asked for"} if "opened" in did else did
        order = ("ended", "failed", "interrupted", "replaced", "context_ended", "asked for", "opened")
        yield f"run {short_id(run_id)} {' and '.join(sorted(said, key=order.index))}"
    for call, did in calls.values():
        yield f"call {short_id(call)} {' and '.join(did)}"


def who(message):
    return message.get("role") or message.get("llm")


@pytest.mark.parametrize("path", every(8, HISTORIES), ids=lambda path: path.stem)
def test_it_has_every_frame_and_a_line_fits_a_hundred_columns(filled, command, path):
    _, steps = folded(path)
    entries = [json.loads(line) for line in command(filled, "timeline", path.stem, "--json").splitlines()]
    versions = [
        version for one in entries for version in range(one["version"], one["version"] + one["frames"])
    ]
    assert versions == list(range(1, len(steps) + 1))
    assert all(one["to_version"] == one["version"] + one["frames"] - 1 for one in entries)
    each = [
        json.loads(line) for line in command(filled, "timeline", path.stem, "--json", "--all").splitlines()
    ]
    assert [one["version"] for one in each] == versions
    lines = command(filled, "timeline", path.stem).splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert {line[: len(str(len(steps)))].strip() for line in lines[1:]} - {
        "",
        path.stem[: len(str(len(steps)))],
    } == {str(one["version"]) for one in entries}


def test_a_part_of_it_is_the_same_part(filled, command):
    whole = command(filled, "timeline", "second-attempt", "--all").splitlines()
    part = command(filled, "timeline", "second-attempt", "--all", "--from", 12, "--to", 14).splitlines()
    assert part[2:] == [line for line in whole if line[:2] in ("12", "13", "14")]


def test_a_conversation_or_version_that_is_not_there_is_named(filled, monkeypatch, tmp_path):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", filled)
    monkeypatch.setenv("FRAMELEDGER_DATA_DIR", str(tmp_path))
    nobody = CliRunner().invoke(application(), ["timeline", "nobody"])
    assert (nobody.exit_code, "frameledger list" in nobody.stderr) == (1, True)
    beyond = CliRunner().invoke(application(), ["timeline", "barge-in", "--from", "23"])
    assert (beyond.exit_code, "It has 1 to 22." in beyond.stderr) == (1, True)


def test_no_frame_can_make_it_fail_or_control_the_terminal(transaction, database, command):
    log = Log()
    for text in ("\\u0000nul", "\\ud83d half", "\\\\u0000 spelt out", "\\ud83d\\ude00 whole", "\\u001b[2J"):
        log.add(
            "ctx", f'{{"type":"TranscriptionFrame","text":"{text}","user_id":"","timestamp":""}}'.encode()
        )
    project(database, log.records)
    said = [json.loads(line)["said"] for line in command(database, "timeline", "ctx", "--json").splitlines()]
    assert said == ["\ufffdnul", "\ufffd half", "\\u0000 spelt out", "\N{GRINNING FACE} whole", "\x1b[2J"]
    assert "\x1b" not in command(database, "timeline", "ctx")


@pytest.mark.parametrize(
    "id_", ["p1", "call_0123456789", "9c61dd04-afb3-53bf-b57f-7e9c4db21eed", "123456789"]
)
def test_an_id_is_as_short_in_sql_as_in_a_command(transaction, id_):
    assert transaction.execute("SELECT short_id(%s)", (id_,)).fetchone() == (short_id(id_),)
    assert len(short_id(id_)) <= 9


def test_whoever_closes_the_pipe_early_ends_it(database, tmp_path):
    log = Log()
    for frame in islice(conversation("ctx", size=300), 3_000):
        log.add("ctx", encode_frame(frame))
    project(database, log.records, sizes=(500,))
    environment = os.environ | {"FRAMELEDGER_DATABASE_URL": database, "FRAMELEDGER_DATA_DIR": str(tmp_path)}
    words = [sys.executable, "-m", "frameledger_services", "timeline", "ctx", "--json", "--all"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert json.loads(running.stdout.readline())["version"] == 1
        running.stdout.close()
        assert running.wait(timeout=PROGRAM) in (0, 1)


def test_what_is_written_without_the_projector_reads_alike(transaction):
    path = next(path for path in HISTORIES if path.stem == "parallel-tools")
    rows.write(transaction, "ctx", path.read_bytes().splitlines())
    found = transaction.execute("SELECT count(*), count(did) FROM timeline_of('ctx')").fetchone()
    assert found[0] == 33
    assert found[1] > 2
