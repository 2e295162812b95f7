"""Text of conversations is printed as it was stored: brackets are no markup, `:smile:` is no emoji, and no character
reaches the terminal that it would obey."""

import ast
import io
import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

import frameledger_services
from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame
from frameledger_services.cli.audit import render_why
from frameledger_services.cli.chat.render import Screen
from frameledger_services.cli.erase import receipts
from frameledger_services.cli.infer import infer
from frameledger_services.cli.rerun import render as rerun
from frameledger_services.cli.terminal import output, pager
from frameledger_services.cli.top import screen as top
from frameledger_services.cli.up import report as up
from frameledger_services.embedded.record import State
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.forks.answer import AnswerCall, ModelAnswer
from frameledger_services.store.activity import InProgress, WentWrong
from frameledger_services.store.erasures import Receipt

AT = datetime(2026, 5, 1, tzinfo=UTC)
BRACKETS = ["see [/b] [red]x[/red]", "[link=http://x]a_b", "[/INST] :smile:"]
CONTROLS = {"\x1b", "\x9b", "\u202e"}
HOSTILE = "".join(sorted(CONTROLS)) + "2Jx"


def printed_by_status(text):
    process = up.ProcessReport(
        name="projector",
        pid=1,
        address=None,
        metrics=None,
        state=State.BACKING_OFF,
        uptime_seconds=None,
        restarts=1,
        word=text,
    )
    return up.status_page(
        up.Report(data_dir=".", running=False, supervisor=None, problem=text, processes=(process,))
    )


def printed_by_top_of_failures(text):
    return top._went_wrong([WentWrong(AT, "run", text, "failed", text, text, 3)])


def printed_by_top_of_work(text):
    return top._in_progress([InProgress("call", text, "running", 1.0, text, text, 3)])


def printed_by_rerun(text):
    answer = ModelAnswer(
        text=text, calls=(AnswerCall(text, {"path": text}),), provider=text, model=text, context_id=text
    )
    return rerun._side_by_side(answer, answer, None, 1)


TABLES = (printed_by_status, printed_by_top_of_failures, printed_by_top_of_work, printed_by_rerun)


@pytest.mark.regression("journey 53")
@pytest.mark.parametrize("text", BRACKETS)
@pytest.mark.parametrize("table", TABLES)
def test_stored_text_is_no_markup(table, text, capsys, monkeypatch):
    # Wide enough for each cell to be one line.
    monkeypatch.setattr(output, "WIDTH_OF_A_FILE", 400)
    output.print_whole(output.console(), table(text))
    assert text in capsys.readouterr().out


@pytest.mark.regression("journey 54")
@pytest.mark.parametrize("table", TABLES)
def test_no_table_has_characters_that_a_terminal_obeys(table, capsys):
    output.print_whole(output.console(), table(HOSTILE))
    printed = capsys.readouterr().out
    assert "2Jx" in printed
    assert not CONTROLS & set(printed)


@pytest.mark.regression("journey 53")
def test_no_console_reads_markup_or_emoji():
    room = Path(frameledger_services.__file__).parent
    made = [
        (path.relative_to(room), call.lineno, {one.arg: ast.unparse(one.value) for one in call.keywords})
        for path in room.rglob("*.py")
        if "Console" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "Console"
    ]
    plain = {"markup": "False", "highlight": "False", "emoji": "False"}
    assert made
    assert [(path, line) for path, line, options in made if not options.items() >= plain.items()] == []


@pytest.mark.regression("journey 54")
def test_a_role_is_made_safe_in_the_explanation_of_its_message(capsys):
    frame = {
        "version": 1,
        "type": "LLMMessagesAppendFrame",
        "tool_call_id": None,
        "logged_at": AT.isoformat(),
    }
    reading = {"from": 1, "to": None, "text": HOSTILE, "message": {}, "began_by": frame, "ended_by": None}
    explanation = {
        "context_id": HOSTILE,
        "position": 0,
        "at_version": 1,
        "there": True,
        "role": HOSTILE,
        "readings": [reading],
        "streamed": None,
        "heard": None,
        "call": None,
        "run": None,
        "causes": [{"version": 1, "type": HOSTILE, "source": HOSTILE}],
    }
    with pager.page() as page:
        render_why.render(page, explanation, [])
    assert not CONTROLS & set(capsys.readouterr().out)


@pytest.mark.regression("journey 54")
def test_a_receipt_prints_what_was_given_with_the_erasure_safely(capsys):
    receipt = Receipt(
        context_id=HOSTILE,
        erased_at=AT,
        version=3,
        frame_count=3,
        erased_by=HOSTILE,
        why=f"{HOSTILE} because\n  log    another",
        chain=b"\x00",
        frame_id=uuid.UUID(int=0),
        requested_by=HOSTILE,
        logged_at=AT,
        partition=0,
        generation=1,
        offset=0,
        late_count=0,
        places=(),
    )
    receipts.print_lines(receipt, TopicNames(""), None, [HOSTILE])
    printed = capsys.readouterr().out
    assert not CONTROLS & set(printed)
    assert [line.split()[0] for line in printed.splitlines()].count("log") == 1


@pytest.mark.regression("journey 54")
def test_the_name_of_a_called_function_is_made_safe_in_a_chat(capsys):
    calls = FunctionCallsStartedFrame(
        function_calls=(FunctionCallFromLLM(function_name=HOSTILE, tool_call_id="c", arguments={}),)
    )
    Screen(output.console(), "ctx").show(calls)
    printed = capsys.readouterr().out
    assert "2Jx" in printed
    assert not CONTROLS & set(printed)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.regression("journey 54")
@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_an_answer_is_made_safe_for_a_terminal_and_left_as_it_is_for_a_program(stream, monkeypatch, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"say": [{"text": "one\ntwo \u009b2J"}]}]}))
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_SCRIPT", str(script))
    shown = stream()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", shown)
        infer(text="Hello", provider="scripted")
    safe = "\N{REPLACEMENT CHARACTER}" if stream is Terminal else "\u009b"
    assert shown.getvalue() == f"one\ntwo {safe}2J\n"
