"""The limits of a conversation (R8): a frame beyond a limit is ignored, with a reason that names the limit.

`LLMSetLimitsFrame` sets them; without it they are off, so conversations from before there were limits fold as before.
The limits of an installation (settings) are not part of the fold: workers enforce them by frames.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from frameledger.evolve import capacity
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Announced, Pace
from frameledger.frames import (
    BotStartedSpeakingFrame,
    FunctionCallsStartedFrame,
    HeardFrame,
    KnownFrame,
    LLMSetLimitsFrame,
    OfContext,
    TextFrame,
    UserStartedSpeakingFrame,
)
from frameledger.ids import Version

NAMES = (
    "context_messages",
    "context_bytes",
    "frames_per_second",
    "calls_per_run",
    "rounds",
    "runs_per_minute",
    "tokens_per_day",
    "cost_per_day",
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of(frame: LLMSetLimitsFrame) -> dict[str, float]:
    """Returns the limits that the frame sets, by name."""
    return {name: value for name in NAMES if (value := getattr(frame, name)) is not None}


def refusal(draft: Draft, frame: KnownFrame, logged_at: datetime | None) -> Reason | None:
    """Why this frame exceeds a limit of the conversation, or None: the frames of this second (R8.5), or its size
    (R8.4)."""
    if draft.terms.recording or frame.type == "LLMSetLimitsFrame":
        return None
    most = draft.terms.limits.get("frames_per_second")
    if most is not None and logged_at is not None and _is_counted(frame):
        second = _second(logged_at)
        if second == draft.pace.second and draft.pace.frames >= most:
            return "too_many_frames"
    return capacity.refusal(draft, frame)


def count(draft: Draft, frame: KnownFrame, logged_at: datetime | None) -> None:
    """Count a frame that was applied (R8.5)."""
    if logged_at is None or draft.terms.recording or "frames_per_second" not in draft.terms.limits:
        return
    if _is_counted(frame):
        second, pace = _second(logged_at), draft.pace
        frames = pace.frames + 1 if second == pace.second else 1
        draft.pace = Pace(pace.rounds, pace.round_of, second, frames)


def _is_counted(frame: KnownFrame) -> bool:
    """Whether a frame counts: it comes neither from a run nor from a call, and ends nothing."""
    if isinstance(frame, OfContext | UserStartedSpeakingFrame | BotStartedSpeakingFrame | HeardFrame):
        return True
    return isinstance(frame, TextFrame) and frame.run_id is None


def _second(logged_at: datetime) -> int:
    return (logged_at - _EPOCH) // timedelta(seconds=1)


def announcement(draft: Draft, frame: FunctionCallsStartedFrame, by: Announced) -> Reason | None:
    """Why these calls exceed a limit, or None: the calls of one run (R8.2), or the rounds without an input (R8.3). If
    they do not, their round is counted, once for each run."""
    if draft.terms.recording:
        return None
    limits, calls = draft.terms.limits, draft.calls.open
    new = len({one.tool_call_id for one in frame.function_calls if one.tool_call_id not in calls})
    if not new:
        return None
    most = limits.get("calls_per_run")
    if most is not None and new + _open_of(draft, by) > most:
        return "too_many_calls"
    round_of, pace = _round_of(draft, by), draft.pace
    if round_of == pace.round_of:
        return None
    most = limits.get("rounds")
    if most is not None and pace.rounds >= most:
        return "too_many_rounds"
    draft.pace = Pace(pace.rounds + 1, round_of, pace.second, pace.frames)
    return None


def _open_of(draft: Draft, by: Announced) -> int:
    """Returns how many calls of the same response are open. Each attempt of a run has a response of its own."""
    if by.response is None:
        return 0
    announced = [call.announced for call in draft.calls.open.values()]
    return sum(one is not None and one.response == by.response for one in announced)


def _round_of(draft: Draft, by: Announced) -> Version:
    """The version that identifies a round: the one at which the announcing run opened, so that all its attempts are one
    round; for a response that names no run, that of the response; else this version."""
    run = draft.runs.open
    if by.run_id is not None and run is not None:
        return run.opened_version
    return draft.version if by.response is None else by.response
