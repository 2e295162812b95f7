"""The fence: which frames of a response may still speak (RA5.fence)."""

from __future__ import annotations

from typing import Protocol

from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason


class OfARun(Protocol):
    """A frame that may say which attempt of which run it belongs to. An absent attempt is the first."""

    @property
    def run_id(self) -> str | None: ...

    @property
    def attempt(self) -> int | None: ...


def refusal(draft: Draft, frame: OfARun) -> Reason | None:
    """Why this frame may not speak now, or None.

    A frame that names a run is accepted only from the open run's latest attempt; one that names none is ignored while
    a response that does is open.
    """
    if frame.run_id is None:
        response = draft.speech.response
        return "run_response_open" if response is not None and response.fenced else None
    run = draft.runs.open
    if run is None or run.run_id != frame.run_id:
        return "run_over"
    attempt = frame.attempt or 1
    if attempt < run.attempt:
        return "attempt_superseded"
    return "no_open_response" if attempt > run.attempt else None
