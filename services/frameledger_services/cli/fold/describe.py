"""Short descriptions, for people, of the effect of a frame and of the state of a context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallProgressed,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
    Change,
    ContextErased,
    EraBegan,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
    RunClosed,
    RunOpened,
    RunRequested,
    RunStarted,
    SettingChanged,
)
from frameledger.evolve.state import Call, Run, State
from frameledger.evolve.text import trimmed
from frameledger_services.cli.terminal.format_message import kept_by, plain, request_terms, speaker_and_text
from frameledger_services.frame_file import Line

_SHORT = 40
"""Maximum characters of a quoted text."""


def outcome_text(line: Line) -> str:
    """Returns the effect of a line, or the reason why it had none; for a line that only extends a text, that text."""
    match line.outcome:
        case "rejected":
            return f"{line.reason}: {line.detail}"
        case "ignored":
            return str(line.reason)
        case "unknown":
            return "unknown to this release"
        case "duplicate":
            return "duplicate id"
        case "applied":
            if line.changes:
                return ", ".join(_change(change) for change in line.changes)
            text = getattr(line.frame, "text", None)
            return _quoted(text) if isinstance(text, str) else ""
        case _:
            assert_never(line.outcome)


def terms_and_open(state: State) -> Iterator[tuple[str, str]]:
    """Yields the request parameters besides the messages, as far as they are set, and the open work of the context."""
    terms, turn, speech, runs = state.terms, state.turn, state.speech, state.runs
    yield from request_terms(terms.tools, terms.tool_choice, terms.settings)
    if terms.prompt_caching is not None:
        yield "prompt caching", plain(terms.prompt_caching)
    if terms.skip_tts is not None:
        yield "skip tts", plain(terms.skip_tts)
    if terms.limits:
        yield "limits", plain(terms.limits)
    if terms.recording:
        yield "recording", "its runs and calls are not executed"
    if terms.mirror is not None:
        yield "mirror", kept_by(terms.mirror)
    if terms.ended:
        yield "ended", "starts no runs or calls until it is reopened"
    if turn is not None:
        doing = "the user speaks" if turn.speaking else "the user stopped, transcriptions may follow"
        yield "open turn", _so_far(doing, trimmed(turn.words))
    if runs.open is not None:
        yield "open run", _run(runs.open)
    if speech.response is not None:
        yield "open response", _so_far("the model answers", trimmed(speech.response.text))
    if speech.thought is not None:
        yield "open thought", _so_far("the model thinks", trimmed(speech.thought.text))
    for call in state.calls.open.values():
        yield "open call", _call(call)
    for ambiguous in state.calls.ambiguous:
        yield (
            "ambiguous call",
            f"{ambiguous.tool_call_id}, requested at version {ambiguous.requested_version}: resolve it",
        )
    if runs.wanted is not None:
        yield "next run", f"{runs.wanted.run_id}, requested at version {runs.wanted.asked_version}"
    if runs.owed_to_turn:
        yield "owed run", "starts when the user's turn ends"
    if runs.owed_to_bot:
        yield "owed run", "starts when the bot stops"
    if speech.bot_since is not None:
        yield "bot", f"speaking since version {speech.bot_since}"


def _change(change: Change) -> str:
    match change:
        case MessageAppended(position, message):
            return f"message {position} ({speaker_and_text(message)[0]})"
        case MessageReplaced(position):
            return f"message {position} rewritten"
        case MessageEnded(position):
            return f"message {position} taken back"
        case ContextErased():
            return "everything before it erased"
        case EraBegan():
            return "new history"
        case SettingChanged(name):
            return f"{name} set"
        case RunRequested():
            return "run asked for"
        case RunOpened():
            return "run opened"
        case RunStarted(_, attempt):
            return f"attempt {attempt} began" if attempt else "run adopted"
        case RunClosed(_, end):
            return "run closed with the conversation" if end == "context_ended" else f"run {end}"
        case CallAnnounced(tool_call_id=call, function_name=name):
            return f"{call} announced: {name}"
        case CallDispatched(tool_call_id=call):
            return f"{call} dispatched"
        case CallStarted(tool_call_id=call, function_name=name):
            return f"{call} started: {name}"
        case CallWaiting(tool_call_id=call, for_=for_):
            return f"{call} waits for {for_}"
        case CallInterrupted(tool_call_id=call):
            return f"{call} to be cancelled"
        case CallProgressed(tool_call_id=call):
            return f"{call} progressed"
        case CallSettled(tool_call_id=call, end=end):
            return f"{call} {end}"
        case CallResolved(tool_call_id=call):
            return f"{call} resolved"
        case _:
            assert_never(change)


def _run(run: Run) -> str:
    if run.attempt:
        progress = f"attempt {run.attempt}"
    elif run.adopted:
        progress = "answered without its run id"
    else:
        progress = "no attempt yet"
    return f"{run.run_id}, requested at version {run.asked_version}, {progress}"


def _call(call: Call) -> str:
    notes: list[str] = [call.stage]
    if call.running is not None:
        notes.append("synchronous" if call.running.synchronous else "asynchronous")
        if call.running.waiting:
            notes.append("waits for a person")
        if call.running.interrupted:
            notes.append("cancellation due")
    return f"{call.tool_call_id} = {call.function_name}: {', '.join(notes)}"


def _so_far(doing: str, text: str) -> str:
    return f"{doing}: {text}" if text else doing


def _quoted(text: str) -> str:
    return f'"{_cut(text)}"'


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
