"""Frames of clients about the context itself: messages that are appended, rewritten or replaced, a whole context, its
parameters, and the program that keeps its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from frameledger import tools as tool_definitions
from frameledger.evolve import erasure, gaps, inputs, limits, open_calls, runs
from frameledger.evolve.changes import Message, SettingChanged, SettingName
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.fold_settings import ADD_TOOL_CHANGE_MESSAGES
from frameledger.frames import (
    LLMContextFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    LLMRunFrame,
    LLMSetLimitsFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
    OfContext,
    OfMirror,
)
from frameledger.frames.base import SecondInput
from frameledger.frames.context import ContextFrames
from frameledger.ids import Position
from frameledger.values import replace


def has_changed(draft: Draft, expected: int | None) -> bool:
    """Whether the context changed since the version that a client expects (RA5.expected).

    0 is a context that has nothing, also in the life after an erasure. A version that the conversation has not reached
    is not one of its versions.
    """
    if expected == 0 and draft.erased is not None:
        expected = draft.erased.version
    return expected is not None and not draft.changed_version <= expected < draft.version


def refusal(draft: Draft, frame: ContextFrames) -> Reason | None:
    """Why a client's frame about the context is ignored, or None: another mirror keeps the history now (RA5.mirror), or
    the context changed (RA5.expected)."""
    if is_for_another_mirror(draft, frame) and frame.type != "LLMMirrorFrame":
        return "mirror_superseded"
    return "context_changed" if has_changed(draft, frame.expected_version) else None


def is_for_another_mirror(draft: Draft, frame: OfContext | OfMirror) -> bool:
    """Whether a frame names a mirror that does not keep the history now, because its process was replaced
    (RA5.mirror)."""
    mirror = frame.mirror
    return mirror is not None and mirror != draft.terms.mirror


def appended(draft: Draft, frame: LLMMessagesAppendFrame) -> Reason | None:
    """Append messages unchanged: nothing is repaired or removed as a duplicate (RA5.messages)."""
    action = _accept(draft, frame)
    if action == "reject":
        return "busy"
    reopen(draft)
    if action == "coalesce":
        inputs.hold(draft, frame.messages)
        return None
    _write(draft, frame.messages)
    if frame.run_llm:
        runs.request(draft)
    return None


def updated(draft: Draft, frame: LLMMessagesUpdateFrame) -> Reason | None:
    """Replace the whole history; calls and an open response continue (RA5.messages)."""
    if _accept(draft, frame) == "reject":
        return "busy"
    reopen(draft)
    _replace_history(draft, frame.messages)
    if frame.run_llm:
        runs.request(draft)
    return None


def run_requested(draft: Draft, frame: LLMRunFrame) -> Reason | None:
    """Request a run at once (R4.1)."""
    if inputs.accept(draft, frame.second_input) == "reject":
        return "busy"
    reopen(draft)
    runs.request(draft)
    return None


def rewritten(draft: Draft, frame: LLMMessageRewriteFrame) -> Reason | None:
    """Replace the message at a position, or remove it. From now on it belongs to the client, and the fold does not
    write there (RA5.rewrite)."""
    reason = gaps.refusal(draft.place, frame.position)
    if reason is not None:
        return reason
    position = Position(frame.position)
    draft.put(position, frame.message)
    runs.forget_position(draft, position)
    open_calls.forget_position(draft, position)
    if draft.speech.said is not None and position in draft.speech.said:
        draft.keep_said()
    return None


def mirrored(draft: Draft, frame: LLMMirrorFrame) -> None:
    """Let another program keep the history from now on, under this name; or, for null, keep it here again (RA5.mirror).

    At the end of a mirror, open text and words are dropped: the other program has written what belongs in the history.
    """
    reopen(draft)
    if frame.mirror is not None or not frame.react:
        runs.drop_pending(draft)
    if frame.mirror is None and draft.terms.mirror is not None:
        _drop_open_text(draft)
    _set(draft, "mirror", frame.mirror)
    _set(draft, "recording", not frame.react)
    if frame.mirror is not None:
        erasure.note_mirror(draft, frame.mirror)


def opened(draft: Draft, frame: LLMContextFrame) -> Reason | None:
    """Replace the whole context; with `react` false it is a recording from here on (RA5.recording)."""
    if _accept(draft, frame) == "reject":
        return "busy"
    context = frame.context
    was_answered_here = not draft.terms.is_answered_elsewhere
    reopen(draft)
    _replace_history(draft, context.messages)
    _set(draft, "tools", tuple(context.tools))
    _set(draft, "tool_choice", context.tool_choice)
    _set(draft, "settings", context.settings)
    _set(draft, "recording", not frame.react)
    if not frame.react or (was_answered_here and draft.terms.is_answered_elsewhere):
        runs.drop_pending(draft)
    if frame.run_llm:
        runs.request(draft)
    return None


def tools_set(draft: Draft, frame: LLMSetToolsFrame) -> None:
    """Replace the tools; if the settings ask for it, append a message about what was added and removed (RA5.tools)."""
    tools = tuple(frame.tools or ())
    if draft.terms.settings.get(ADD_TOOL_CHANGE_MESSAGES) is True:
        message = tool_definitions.tool_change_message(draft.terms.tools, tools)
        if message is not None:
            draft.append(message)
    _set(draft, "tools", tools)


def settings_updated(draft: Draft, frame: LLMUpdateSettingsFrame) -> None:
    """Merge by key; null removes a key (RA5.settings). From `answered_elsewhere` on no run opens (R4.5)."""
    was_answered_here = not draft.terms.is_answered_elsewhere
    merged = {**draft.terms.settings, **frame.settings}
    _set(draft, "settings", {key: value for key, value in merged.items() if value is not None})
    if was_answered_here and draft.terms.is_answered_elsewhere:
        runs.drop_pending(draft)


def tool_choice_set(draft: Draft, tool_choice: str | Mapping[str, Any]) -> None:
    _set(draft, "tool_choice", tool_choice)


def prompt_caching_set(draft: Draft, enable: bool) -> None:
    _set(draft, "prompt_caching", enable)


def limits_set(draft: Draft, frame: LLMSetLimitsFrame) -> None:
    """Replace all limits (R8.1)."""
    _set(draft, "limits", limits.of(frame))


def output_configured(draft: Draft, skip_tts: bool) -> None:
    _set(draft, "skip_tts", skip_tts)


def end(draft: Draft) -> None:
    _set(draft, "ended", True)


def reopen(draft: Draft) -> None:
    """Open an ended context again (R1.6)."""
    if draft.terms.ended:
        _set(draft, "ended", False)


def _accept(
    draft: Draft, frame: LLMMessagesAppendFrame | LLMMessagesUpdateFrame | LLMContextFrame
) -> SecondInput | None:
    """Accept the frame as an input, which it is if it requests a run (R7). Returns the action, None if it is no
    input."""
    return inputs.accept(draft, frame.second_input) if frame.run_llm else None


def _replace_history(draft: Draft, messages: Iterable[Message]) -> None:
    draft.begin_era()
    runs.forget_positions(draft)
    draft.keep_said()
    _write(draft, messages)


def _drop_open_text(draft: Draft) -> None:
    if draft.turn is not None:
        draft.turn = replace(draft.turn, words=None)
    response = draft.speech.response
    if response is not None:
        response = replace(response, text=None)
    draft.speech = replace(draft.speech, response=response, thought=None)


def _write(draft: Draft, messages: Iterable[Message]) -> None:
    for message in messages:
        draft.take(message)
        if message.get("role") == "user":
            draft.keep_said()


def _set(draft: Draft, name: SettingName, value: Any) -> None:
    """Change one term, unless it has this value already; `1` and `true` are different values in JSON."""
    before = getattr(draft.terms, name)
    if before is not value and (before != value or to_json(before) != to_json(value)):
        draft.terms = replace(draft.terms, **{name: value})
        draft.changes.append(SettingChanged(name, value))
        draft.changed_version = draft.version
