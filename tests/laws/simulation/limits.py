"""The promises of limits and second inputs after each frame, computed without the counts of the fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from frameledger.evolve import State, Step
from frameledger.evolve.changes import CallAnnounced, MessageAppended
from frameledger.frames import (
    AnyFrame,
    BotStartedSpeakingFrame,
    HeardFrame,
    LLMContextFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMSetLimitsFrame,
    OfContext,
    TextFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.json_values import size
from frameledger.messages import Messages

if TYPE_CHECKING:
    from tests.laws.simulation.world import World

LIMITS_OF = {
    "context_full": {"context_messages", "context_bytes"},
    "too_many_frames": {"frames_per_second"},
    "too_many_calls": {"calls_per_run"},
    "too_many_rounds": {"rounds"},
}
"""The limits by the reason that they cause."""

OF_ONE_MESSAGE = 3_000
"""An upper bound of the bytes of one message in the simulation."""


@dataclass(frozen=True)
class Allowed:
    """The counts, and the amounts that already exceeded a limit when it was set."""

    messages: int = 0
    bytes: int = 0
    rounds: int = 0
    calling: frozenset[str] = frozenset()
    """The runs that announced calls since the latest input."""

    second: datetime | None = None
    frames: int = 0
    """The limited frames that were accepted in this second of the log."""


def check(world: World, frame: AnyFrame, at: datetime, before: State, step: Step, messages: Messages) -> None:
    """Raise `PromiseBrokenError` if a frame exceeds a limit or is ignored without a reason, or if a second input is not
    treated as it requests."""
    limits, known = step.state.terms.limits, world.allowed
    if step.outcome == "ignored":
        _check_the_word(world, step, before)
    _check_second_input(world, frame, before, step)
    known = _counted(known, frame, at, before, step)
    rows = [message for _, message in messages.rows()] if limits else []
    if isinstance(frame, LLMSetLimitsFrame) and step.outcome == "applied":
        # Open work may still add messages: a turn, a response and a thought, three messages of a call, and what is
        # held.
        promised = 3 + 3 * len(before.calls.open) + len(_held(before))
        length = sum(map(size, rows)) + OF_ONE_MESSAGE * promised
        known = Allowed(len(rows) + promised, length, len(known.calling), known.calling)
    world.allowed = known
    if not limits:
        return
    most = limits.get("context_messages")
    if most is not None and len(rows) > max(most, known.messages):
        raise world.broken(f"no context has more messages than it may, and this has {len(rows)}")
    most = limits.get("context_bytes")
    if most is not None and sum(map(size, rows)) > max(most, known.bytes):
        raise world.broken("no context has more bytes than it may")
    most = limits.get("rounds")
    if most is not None and len(known.calling) > max(most, known.rounds):
        raise world.broken("no model calls itself more often than it may")
    most = limits.get("frames_per_second")
    if most is not None and step.outcome == "applied" and _is_limited(frame) and known.frames > most:
        raise world.broken("no second has more frames than it may")
    most = limits.get("calls_per_run")
    was, now = _calls(before), _calls(step.state)
    if most is not None and any(many > max(most, was[by]) for by, many in now.items()):
        raise world.broken("no run has more calls than it may")


def _check_the_word(world: World, step: Step, before: State) -> None:
    if step.reason is None:
        raise world.broken("what is ignored is told why")
    world.refusals[step.reason] += 1
    if step.reason in LIMITS_OF and not LIMITS_OF[step.reason] & before.terms.limits.keys():
        raise world.broken(f"only a limit that is set acts, and this was {step.reason}")
    if step.reason == "busy" and before.runs.open is None and not before.calls.open:
        raise world.broken("only who is busy rejects an input")


def _counted(known: Allowed, frame: AnyFrame, at: datetime, before: State, step: Step) -> Allowed:
    if step.outcome == "applied" and _is_input(frame, before, step.state):
        known = replace(known, calling=frozenset())
    if any(isinstance(change, CallAnnounced) for change in step.changes):
        known = replace(known, calling=known.calling | {str(getattr(frame, "run_id", None))})
    if step.outcome == "applied" and _is_limited(frame):
        second = at.replace(microsecond=0)
        frames = known.frames + 1 if second == known.second else 1
        known = replace(known, second=second, frames=frames)
    return known


def _is_input(frame: AnyFrame, before: State, after: State) -> bool:
    """Whether this frame requests an answer, or ends a user's turn."""
    turn = before.turn
    match frame:
        case LLMRunFrame():
            return True
        case LLMMessagesAppendFrame() | LLMMessagesUpdateFrame() | LLMContextFrame():
            return bool(frame.run_llm)
        case TranscriptionFrame():
            return turn is None or not turn.speaking
        case UserStartedSpeakingFrame() | UserStoppedSpeakingFrame():
            if turn is None or turn.words is None:
                return False
            return after.turn is None or after.turn.opened_version != turn.opened_version
        case _:
            return False


def _check_second_input(world: World, frame: AnyFrame, before: State, step: Step) -> None:
    """An append that requests an answer while a run is open is treated as the frame says, or else as the setting
    says."""
    if not isinstance(frame, LLMMessagesAppendFrame) or not frame.run_llm or before.runs.open is None:
        return
    if before.terms.ended:
        return
    way = frame.second_input or before.terms.settings.get("second_input") or "enqueue"
    if step.outcome == "ignored":
        if step.reason == "busy" and way != "reject":
            raise world.broken(f"nobody is rejected who says {way}")
        return
    written = any(isinstance(change, MessageAppended) for change in step.changes)
    open_run = step.state.runs.open
    match way:
        case "reject":
            raise world.broken("who says reject is not taken while a run is open")
        case "interrupt":
            if open_run is None or open_run.run_id == before.runs.open.run_id or not written:
                raise world.broken("an input that interrupts is written, and its run opens in the same step")
        case "coalesce":
            if written or len(_held(step.state)) != len(_held(before)) + len(frame.messages):
                raise world.broken("an input that coalesces is held while a run is open")
        case _:
            if open_run != before.runs.open or not written or step.state.runs.wanted is None:
                raise world.broken("an input that is enqueued is written, and its run waits")


def _is_limited(frame: AnyFrame) -> bool:
    if isinstance(frame, LLMSetLimitsFrame):
        return False
    if isinstance(frame, OfContext | UserStartedSpeakingFrame | BotStartedSpeakingFrame | HeardFrame):
        return True
    return isinstance(frame, TextFrame) and frame.run_id is None


def _held(state: State) -> tuple[Mapping[str, Any], ...]:
    return () if state.runs.wanted is None else state.runs.wanted.held


def _calls(state: State) -> Counter[tuple[str, int]]:
    """Returns the number of open calls, by the run and the attempt that announced them."""
    announced = [call.announced for call in state.calls.open.values()]
    return Counter((by.run_id, by.attempt) for by in announced if by is not None and by.run_id is not None)
