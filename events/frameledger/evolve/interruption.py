"""Interruptions and the end of a conversation, which affect turn, response, calls and runs at once."""

from __future__ import annotations

from frameledger.evolve import calls, capacity, groups, history, responses, runs, turns
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.frames import CancelFrame, EndFrame, InterruptionFrame
from frameledger.values import replace


def interrupted(draft: Draft, frame: InterruptionFrame) -> Reason | None:
    """Stop the assistant: keep its words so far, close its run, and drop what waits for it (R2.6, R4.1).

    The user's words stay, and the user's turn will request a run. A cough has no words, though, so every run that an
    interruption inside an open turn drops is deferred to the end of that turn.
    """
    if history.is_for_another_mirror(draft, frame):
        return "mirror_superseded"
    responses.interrupted(draft, _heard(draft, frame))
    before = draft.runs
    runs.close(draft, "interrupted")
    touched = calls.interrupted(draft)
    deferred = (
        before.owed_to_bot or before.wanted is not None or (before.open is not None and before.open.untouched)
    )
    owed_to_turn = before.owed_to_turn
    if draft.turn is not None and draft.terms.mirror is None:
        owed_to_turn |= groups.stop_waiting(draft, touched) or deferred
    runs.release(draft)
    draft.runs = replace(draft.runs, wanted=None, owed_to_bot=False, owed_to_turn=owed_to_turn)
    return None


def _heard(draft: Draft, frame: InterruptionFrame) -> str | None:
    """The heard text, if there is capacity for it (R8.4); otherwise None, and the text stays as it was generated."""
    heard = frame.heard_text
    if heard is None or not capacity.is_limited(draft):
        return heard
    need = (1, capacity.CHARACTER * len(heard) + capacity.ENVELOPE)
    return heard if capacity.fits(draft, need) else None


def ended(draft: Draft, frame: EndFrame | CancelFrame) -> Reason | None:
    """Apply `EndFrame` or `CancelFrame`: write open text and words, settle open calls, and request no run (R1.6)."""
    if history.is_for_another_mirror(draft, frame):
        return "mirror_superseded"
    if draft.terms.ended and not _has_open_work(draft):
        return "context_ended"
    responses.end(draft)
    runs.release(draft)
    turns.end(draft)
    calls.end(draft)
    runs.close(draft, "context_ended")
    runs.drop_pending(draft)
    history.end(draft)
    return None


def _has_open_work(draft: Draft) -> bool:
    """Whether something arrived after the context had ended, and has to be settled too."""
    return not (
        draft.turn is None
        and draft.speech.response is None
        and draft.speech.thought is None
        and draft.speech.bot_since is None
        and not draft.calls.open
    )
