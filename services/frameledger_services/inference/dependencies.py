"""What a run is given and what becomes of it: everything around its life, as values and functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.settings import HIDDEN

RunOutcome = Literal["done", "given_up", "release"]
"""The run has its terminal frame; it had too many attempts, and has one for that; it is not ours any more, or not for
certain, and so is given back: if it is another's, that changes nothing."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What a run's context comes to: the request, or why there can be none, and how its answer is marked."""

    request: Request | ProviderError
    skip_tts: bool | None = None

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For the start frame: what has to be known of the request, so that it can be made again."""


@dataclass(frozen=True, slots=True)
class RunDependencies:
    """What a run needs beside the model. All of it is within the lease: once that is over, it raises."""

    worker: str
    """Who we are, for the start frame."""

    compose: Callable[[], Awaitable[PreparedRequest]]
    """Read the context at exactly the run's version, and make the request of it."""

    publish: Callable[[ContextId, Sequence[AnyFrame]], Awaitable[object]]
    """Put frames on the log, in their order; returns when they are there."""

    next_attempt: Callable[[int], Awaitable[int | None]]
    """Keep the run, with the attempt after this one; None if it is another's by now, or not for certain ours."""

    merge_secs: float
    """How long pieces of text are gathered before they are published."""

    retries: int
    """How often a request is sent again inside an attempt while nothing of its answer came."""

    life_every_secs: float | None = None
    """So often a run of which there is nothing to say shows that it lives; None: never. A model may think for longer
    than the timekeeper waits for words."""

    hidden: Sequence[str] = ()
    """Secrets, which no message may hold even if a provider repeats them."""

    def shown(self, message: str) -> str:
        """A sentence that may be published."""
        for secret in self.hidden:
            message = message.replace(secret, HIDDEN)
        return message
