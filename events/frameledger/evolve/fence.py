"""The fence: which frames of a response still count (RA5.fence)."""

from __future__ import annotations

from typing import Protocol

from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason


class OfARun(Protocol):
    """A frame that may name the run and attempt that it belongs to. An absent attempt is the first."""

    @property
    def run_id(self) -> str | None: ...

    @property
    def attempt(self) -> int | None: ...

    @property
    def claim(self) -> str | None: ...


def refusal(draft: Draft, frame: OfARun) -> Reason | None:
    """Why this frame is ignored, or None.

    A frame that names a run is accepted only from the open run's latest attempt, and not under another claim than that
    attempt's start; one that names none is ignored while a response that names a run is open.
    """
    # Called for every token. Reading a field of a model takes ten times as long as reading a local name.
    run_id = frame.run_id
    if run_id is None:
        response = draft.speech.response
        return "run_response_open" if response is not None and response.fenced else None
    run = draft.runs.open
    if run is None or run.run_id != run_id:
        return "run_over"
    attempt = frame.attempt or 1
    if attempt < run.attempt:
        return "attempt_superseded"
    if attempt > run.attempt:
        return "no_open_response"
    return "attempt_superseded" if is_anothers(frame.claim, run.claim) else None


def supersedes(attempt: int, claim: str | None, latest_attempt: int, latest_claim: str | None) -> bool:
    """Whether a start replaces the latest one: it has a higher attempt, or the same attempt under another claim.

    Of two claims of one attempt the last one folded wins, since it is most likely the one that the database still has.
    """
    if attempt == latest_attempt:
        return latest_claim is not None and is_anothers(claim, latest_claim)
    return attempt > latest_attempt


def is_anothers(claim: str | None, started: str | None) -> bool:
    """Whether a frame under this claim comes from another worker than the start under that one, although both have
    the same attempt: a database that lost its latest commits assigned the attempt twice. False for a frame without a
    claim."""
    return claim is not None and claim != started
