"""The dependencies of a run: everything that answering it needs from outside, as values and functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services.inference.metrics import InferenceMetrics
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.url_masking import HIDDEN

RunOutcome = Literal["done", "given_up", "release"]
"""`done`: the run has its terminal frame. `given_up`: it had too many attempts, and a terminal frame reports that.
`release`: its claim is lost, or may be, and is released; releasing another worker's claim does nothing."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """The request of a run's context, or the reason why there is none, and the metadata of its answer."""

    request: Request | ProviderError
    skip_tts: bool | None = None

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For the start frame: what is needed to rebuild the request."""


@dataclass(frozen=True, slots=True)
class RunDependencies:
    """The dependencies of a run besides the model. All functions raise once the lease has ended."""

    worker: str
    """The worker's id, for the start frame."""

    prepare: Callable[[], Awaitable[PreparedRequest]]
    """Reads the context at exactly the run's version, and makes the request from it."""

    publish: Callable[[ContextId, Sequence[AnyFrame]], Awaitable[object]]
    """Publishes frames in order, and returns when they are on the log."""

    next_attempt: Callable[[int], Awaitable[int | None]]
    """Keeps the claim, with the next attempt. Returns its number; None if the claim is lost, or may be."""

    merge_secs: float
    """How long pieces of text are buffered before they are published."""

    retries: int
    """How often a request is retried within an attempt as long as no part of its answer has arrived."""

    keepalive_secs: float | None = None
    """Interval of empty pieces of text while the model is silent, which may be longer than the timekeeper's limit for
    silence. None disables them."""

    secrets: Sequence[str] = ()
    """Texts that no message may contain, even if a provider repeats them."""

    metrics: InferenceMetrics = field(default_factory=InferenceMetrics)
    """Counts the requests."""

    calls_per_run: int | None = None
    """Maximum number of calls of one attempt; None for no limit."""

    def redacted(self, message: str) -> str:
        """Returns the message without secrets, for publication and logs."""
        for secret in self.secrets:
            message = message.replace(secret, HIDDEN)
        return message
