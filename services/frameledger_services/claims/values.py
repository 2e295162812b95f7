"""Parameters and results of the statements: a worker's registration, claimed work, and the answer to a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar
from uuid import UUID

from frameledger.errors import FencedError
from frameledger.ids import ContextId, GroupId, RunId, ToolCallId, Version

Kind = Literal["inference", "functions", "timekeeper"]

Finish = Literal["done", "over", "given_up"]
"""How a claim ends: its work was done; its run or call had already ended; it was attempted too often."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker, which is one session of one process, and what it serves."""

    worker_id: str
    service: str
    """The name of its consumer group, which is the same for all workers that share its work."""

    kind: Kind
    host: str
    pid: int
    lease_secs: float
    """Seconds after its last heartbeat for which it counts as alive."""

    slots: int
    serves: tuple[str, ...] = ()
    """Names of functions, or of models."""

    serves_all: bool = False
    """Whether it is a catch-all, which takes what no live worker of its kind lists."""

    offers: Mapping[str, Any] = field(default_factory=dict)
    """JSON: the functions with their schemas and options, or the options for requests."""


class Claimed(Protocol):
    """Work that a worker has, whatever its kind."""

    @property
    def effect_id(self) -> str: ...
    @property
    def context_id(self) -> ContextId: ...
    @property
    def version(self) -> Version: ...
    @property
    def claim(self) -> str: ...
    @property
    def age_secs(self) -> float: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def taken_over(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that this worker answers as `attempt`, a number that is assigned once. No other worker has it, unless the
    database lost its latest commits; then `claim` distinguishes the two."""

    effect_id: str
    context_id: ContextId
    version: Version
    """The version of the context that the model receives."""

    run_id: RunId
    attempt: int
    claim: str
    """The claim's token. Every frame that is published under the claim contains it. No two claims have the same."""

    causation_id: UUID | None
    """The frame that opened the run: the cause of every frame that is published for it. None if its effect has no
    cause."""

    trigger: str | None = None
    """The type of the frame that first requested it."""

    age_secs: float = field(default=0.0, compare=False)
    """Seconds since it was opened, by the database's clock."""

    traceparent: str | None = None
    """The span in which it was requested, from its effect (W3C). After a takeover only its trace is known."""

    taken_over: bool = False
    """Whether another worker had it before."""

    deaths: int = 0
    """Number of earlier attempts whose worker died, counted as for a call (`ClaimedCall.deaths`)."""


@dataclass(frozen=True, slots=True)
class CallColumns:
    """The columns of a call in `tool_calls` when it is claimed. `rules.CALL_COLUMNS` has its fields, in this order."""

    function_name: str
    arguments: Any
    """As the model sent them: text, or a JSON value."""

    group_id: GroupId | None
    run_id: RunId | None
    age_secs: float
    """Seconds since it was dispatched, by the database's clock."""

    status: Literal["dispatched", "running"]
    """The status when it was claimed: `running` if an earlier attempt had started."""

    safe_to_retry: bool | None
    """From its first start; None before it started."""

    interrupted: bool
    """Whether an interruption requested its cancellation."""

    builtin: bool
    """Whether it is a built-in `cancel_<name>`, which the workers of `<name>` serve."""

    started_by: UUID | None
    """The frame of its first start: the cause of the settlement if a worker settles it for another one. None before it
    started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedCall(CallColumns):
    """A call that this worker runs or settles as `call_attempt`, with everything that is needed for that."""

    effect_id: str
    context_id: ContextId
    version: Version
    """The version that dispatched it."""

    requested_version: Version
    ordinal: int
    tool_call_id: ToolCallId
    call_attempt: int
    claim: str
    """The claim's token. Every frame that is published under the claim contains it. No two claims have the same."""

    causation_id: UUID | None
    """The frame that dispatched it: the cause of its start. None if its effect has no cause."""

    traceparent: str | None = None
    """The span in which it was dispatched, from its effect (W3C). After a takeover only its trace is known."""

    deaths: int = 0
    """Number of earlier attempts whose worker died. Released attempts do not count, nor those whose claim the database
    lost with its latest commits: the log does not show how an attempt ended."""

    taken_over: bool = False
    """Whether another worker had it before."""


class WorkerDeadError(FencedError):
    """A worker that requests work is dead by the database's clock: it sent no heartbeat for a lease.

    Remedy: None is needed: it registers again as another worker. If it happens often, give the machine more processor
    time, or raise `FRAMELEDGER_WORK_LEASE_SECS`.
    """


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class ClaimResult(Generic[C]):
    """The result of a request for effects: the claimed work, in order; and the number of effects at the end that were
    not examined because the limit was reached, and have to be requested again."""

    claimed: list[C]
    unexamined: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer to a heartbeat."""

    alive: bool
    """False if the row is gone, or its lease had ended. A dead worker stays dead; a new session has to register."""

    obsolete: frozenset[str] = frozenset()
    """Effects held whose run is closed, or whose call is settled or must be cancelled."""

    lost: frozenset[str] = frozenset()
    """Effects held that are no longer this worker's, or whose latest start is another worker's."""
