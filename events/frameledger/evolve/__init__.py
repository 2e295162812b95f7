"""`evolve`: what one frame changes in a context. A pure and total function.

`events/rules.md` states every rule; the numbers in these modules are its numbers. `turns` has R1, `responses` and
`thoughts` R2, `calls`, `call_starts`, `results` and `groups` R3, and `runs` R4. `history` has clients' frames about the
context itself, `interruption` what affects turn, response, calls and runs at once, and `erasure` the end of a
conversation's life. `state` is what is kept between two frames; `draft` is that state while one frame changes it.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from frameledger.evolve import (
    call_starts,
    calls,
    erasure,
    groups,
    history,
    interruption,
    limits,
    responses,
    results,
    runs,
    thoughts,
    turns,
)
from frameledger.evolve.changes import Change
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import refusal
from frameledger.evolve.outcome import Outcome, Reason
from frameledger.evolve.state import State
from frameledger.frames import AnyFrame, BotStoppedSpeakingFrame, KnownFrame, UnknownFrame
from frameledger.frames.context import ContextFrames
from frameledger.values import replace, value

__all__ = ["Outcome", "Reason", "State", "Step", "evolve"]


@value
class Step:
    """The result of one frame: the next state, the outcome, the reason if it was ignored, and its changes, in order."""

    state: State
    outcome: Outcome
    reason: Reason | None
    changes: tuple[Change, ...]


def evolve(state: State, frame: AnyFrame, logged_at: datetime | None = None) -> Step:
    """Fold one frame into a state. Never raises for a decoded frame; the same arguments give the same step.

    `logged_at` is the frame's time on the log. Only the limit of frames per second reads it (R8.5); with None that
    limit does not apply.

    Every frame gets the next version of its context, whatever its outcome. Duplicates (a known id) and frames of an
    erased life (`erasure.is_of_an_earlier_life`) must be filtered out before.
    """
    draft = Draft(state)
    if type(frame) is UnknownFrame:
        return Step(draft.frozen(), "unknown", None, ())
    if state.terms.limits:
        reason = limits.refusal(draft, frame, logged_at) or _fold(draft, frame)
        if reason is None:
            limits.count(draft, frame, logged_at)
    else:
        reason = _fold(draft, frame)
    if draft.calls is not state.calls:
        calls.dispatch_next(draft)
        if draft.calls.settled is not state.calls.settled:  # Only a call that settles leaves its group empty.
            groups.without_empty(draft)
    if draft.runs.wanted is not None:
        runs.open_pending(draft)
    if draft.erased is not None:
        erasure.note_closed_run(draft, state)
    return Step(draft.frozen(), "applied" if reason is None else "ignored", reason, tuple(draft.changes))


def _fold(draft: Draft, frame: KnownFrame) -> Reason | None:
    """Apply the rule of the frame's type. Returns why it was ignored, or None. Most frequent types first."""
    match frame.type:
        case "LLMTextFrame" | "VisionTextFrame":
            return responses.said(draft, frame, carries_spaces=True)
        case "LLMFullResponseStartFrame" | "VisionFullResponseStartFrame":
            return responses.started(draft, frame)
        case "LLMFullResponseEndFrame" | "VisionFullResponseEndFrame":
            return responses.ended(draft, frame)
        case "TranscriptionFrame":
            return turns.transcribed(draft, frame)
        case "InterimTranscriptionFrame":
            return turns.interim(draft, frame)
        case "FunctionCallInProgressFrame":
            return call_starts.in_progress(draft, frame)
        case "FunctionCallResultFrame":
            return results.result(draft, frame)
        case "LLMThoughtTextFrame":
            return thoughts.said(draft, frame)
        case "TextFrame":
            return responses.said(draft, frame, carries_spaces=frame.includes_inter_frame_spaces)
        case "UserStartedSpeakingFrame":
            history.reopen(draft)
            return turns.started(draft, frame)
        case "UserStoppedSpeakingFrame":
            return turns.stopped(draft, frame)
        case "BotStartedSpeakingFrame":
            if draft.speech.bot_since is None:
                draft.speech = replace(draft.speech, bot_since=draft.version)
        case "BotStoppedSpeakingFrame":
            return _bot_stopped(draft, frame)
        case "FunctionCallsStartedFrame":
            return calls.announced(draft, frame)
        case "FunctionCallCancelFrame":
            return results.cancel(draft, frame)
        case "InterruptionFrame":
            return interruption.interrupted(draft, frame)
        case "LLMThoughtStartFrame":
            return thoughts.started(draft, frame)
        case "LLMThoughtEndFrame":
            return thoughts.ended(draft, frame)
        case (
            "LLMMessagesAppendFrame"
            | "LLMMessagesUpdateFrame"
            | "LLMMessageRewriteFrame"
            | "LLMMirrorFrame"
            | "LLMContextFrame"
            | "LLMRunFrame"
            | "LLMSetToolsFrame"
            | "LLMSetToolChoiceFrame"
            | "LLMUpdateSettingsFrame"
            | "LLMEnablePromptCachingFrame"
            | "LLMConfigureOutputFrame"
            | "LLMSetLimitsFrame"
        ):
            return _of_context(draft, frame)
        case "LLMAssistantPushAggregationFrame":
            return responses.pushed(draft, frame)
        case "ErrorFrame":
            return responses.failed(draft, frame)
        case "EndFrame" | "CancelFrame":
            return interruption.ended(draft, frame)
        case "LLMContextEraseFrame":
            erasure.erased(draft)
        case "LLMContextAssistantTimestampFrame":
            return refusal(draft, frame)
        case "TranslationFrame" | "StartFrame" | "LLMServiceMetadataFrame":
            return None
        case _:
            assert_never(frame.type)
    return None


def _of_context(draft: Draft, frame: ContextFrames) -> Reason | None:
    reason = history.refusal(draft, frame)
    if reason is not None:
        return reason
    match frame.type:
        case "LLMMessagesAppendFrame":
            return history.appended(draft, frame)
        case "LLMMessagesUpdateFrame":
            return history.updated(draft, frame)
        case "LLMMessageRewriteFrame":
            return history.rewritten(draft, frame)
        case "LLMMirrorFrame":
            history.mirrored(draft, frame)
        case "LLMContextFrame":
            return history.opened(draft, frame)
        case "LLMRunFrame":
            return history.run_requested(draft, frame)
        case "LLMSetToolsFrame":
            history.tools_set(draft, frame)
        case "LLMSetToolChoiceFrame":
            history.tool_choice_set(draft, frame.tool_choice)
        case "LLMUpdateSettingsFrame":
            history.settings_updated(draft, frame)
        case "LLMEnablePromptCachingFrame":
            history.prompt_caching_set(draft, frame.enable)
        case "LLMSetLimitsFrame":
            history.limits_set(draft, frame)
        case "LLMConfigureOutputFrame":
            history.output_configured(draft, frame.skip_tts)
        case _:
            assert_never(frame.type)
    return None


def _bot_stopped(draft: Draft, frame: BotStoppedSpeakingFrame) -> Reason | None:
    since = draft.speech.bot_since
    if frame.opened_version is not None and frame.opened_version != since:
        return "target_over"
    if since is not None:
        draft.speech = replace(draft.speech, bot_since=None)
        runs.bot_stopped(draft)
    return None
