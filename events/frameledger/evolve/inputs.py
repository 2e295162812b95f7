"""Second inputs: inputs of users and clients that arrive while the conversation is busy with an earlier one (R7).

An input is any request for a run that is not a result: a user's words, an append, an update or a context frame with
`run_llm`, or an `LLMRunFrame`. The conversation is busy while a run is open or a committed call has not started yet,
because a new run could not open at once (R4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frameledger.evolve import calls, responses, runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.state import Pace
from frameledger.fold_settings import SECOND_INPUT
from frameledger.frames.base import SecondInput
from frameledger.values import replace

_ACTIONS: dict[object, SecondInput] = {
    "enqueue": "enqueue",
    "interrupt": "interrupt",
    "reject": "reject",
    "coalesce": "coalesce",
}


def action(draft: Draft, requested: SecondInput | None) -> SecondInput:
    """How an input that arrives now is handled: by its own field, else by the setting, else `enqueue` (R7.1).

    An input to an idle conversation is always `enqueue`. So is every input in a mirror, whose program decides itself
    what is stopped (RA5.mirror), and `coalesce` where no run opens: held messages would never be written.
    """
    if draft.terms.mirror is not None:
        return "enqueue"
    if draft.terms.recording:
        interrupts = draft.speech.response is not None and _named(draft, requested) == "interrupt"
        return "interrupt" if interrupts else "enqueue"
    if not runs.is_busy(draft):
        return "enqueue"
    named = _named(draft, requested)
    return "enqueue" if named == "coalesce" and draft.terms.is_answered_elsewhere else named


def _named(draft: Draft, requested: SecondInput | None) -> SecondInput:
    if requested is not None:
        return requested
    setting = draft.terms.settings.get(SECOND_INPUT)
    return _ACTIONS.get(setting, "enqueue") if isinstance(setting, str) else "enqueue"


def accept(draft: Draft, requested: SecondInput | None) -> SecondInput:
    """Handle that a client's input arrived, and interrupt for it (R7.4). Returns its action: `reject` changed nothing
    (R7.3), and for `coalesce` its messages have to be held (R7.5)."""
    now = action(draft, requested)
    if now == "reject":
        return now
    if now == "interrupt":
        interrupt(draft)
    noted(draft)
    return now


def hold(draft: Draft, messages: Sequence[Mapping[str, Any]]) -> None:
    """Request a run, and hold these messages until it opens (R7.5)."""
    runs.request(draft)
    runs.hold(draft, messages)


def noted(draft: Draft) -> None:
    """Count rounds from 0 again, because an input arrived (R8.3)."""
    pace = draft.pace
    if pace.rounds:
        draft.pace = Pace(0, None, pace.second, pace.frames)


def interrupt(draft: Draft) -> None:
    """Stop the assistant, as an interruption does, for an input whose run takes its place (R7.4). That run covers all
    runs that were requested before, so none is deferred."""
    responses.interrupted(draft, None)
    runs.close(draft, "interrupted")
    calls.interrupted(draft)
    runs.release(draft)
    draft.runs = replace(draft.runs, wanted=None, owed_to_bot=False)
