"""What the statements take and give: an offer of work, claimed work, and what a heartbeat says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from psycopg import AsyncConnection

from frameledger.errors import FencedError
from frameledger.ids import ContextId, GroupId, RunId, ToolCallId, Version

Connection = AsyncConnection[Any]

Kind = Literal["inference", "functions", "timekeeper"]

Finish = Literal["done", "over", "given_up"]
"""How a claim ends: its work was done; what it was for had ended; it was tried too often."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker, one life of one process, and what it does."""

    worker_id: str
    service: str
    """The name that all who share its work have: its consumer group."""

    kind: Kind
    host: str
    pid: int
    lease_secs: float
    """Seconds after its last heartbeat that it is taken for alive."""

    slots: int
    serves: tuple[str, ...] = ()
    """Names of functions, or of models."""

    serves_all: bool = False
    """It takes what no live worker of its kind lists."""

    offers: Mapping[str, Any] = field(default_factory=dict)
    """JSON: the functions with schemas and options, or how requests are made."""


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


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is this worker's to answer, as `attempt`: a number that nobody reads again. Nobody else has it, unless
    the database lost its latest commits: then `claim` tells the two apart."""

    effect_id: str
    context_id: ContextId
    version: Version
    """Of the context that the model is to see."""

    run_id: RunId
    attempt: int
    claim: str
    """The claim's token, which all that is said under it names: nobody else ever has it."""


@dataclass(frozen=True, slots=True)
class ClaimedCall:
    """A call that is this worker's, as `call_attempt`, with all that is needed to run it or to settle it."""

    effect_id: str
    context_id: ContextId
    version: Version
    """The version that dispatched it."""

    requested_version: Version
    ordinal: int
    tool_call_id: ToolCallId
    function_name: str
    arguments: Any
    """As the model gave them: text, or a JSON value."""

    group_id: GroupId | None
    run_id: RunId | None
    call_attempt: int
    age_secs: float
    """Seconds since it was dispatched, by the database's clock."""

    status: Literal["dispatched", "running"]
    """As the ledger said when it was claimed: `running` if an earlier attempt had started."""

    safe_to_retry: bool | None
    """What its first start said; null before it started."""

    interrupted: bool
    """An interruption owes it a cancel."""

    builtin: bool
    """`cancel_<name>`, which whoever serves `<name>` serves."""

    claim: str
    """The claim's token, which all that is said under it names: nobody else ever has it."""


class WorkerDeadError(FencedError):
    """A worker that asks for work is dead by the database's clock: it sent no heartbeat for a lease.

    Remedy: None is needed: it begins again as another worker. If it happens often, give the machine more processor
    time, or raise `FRAMELEDGER_WORK_LEASE_SECS`.
    """


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class ClaimResult(Generic[C]):
    """What became of effects that were asked for: what is ours now, in their order, and how many of them, the last
    ones, have to be asked for again, because the limit was reached before them."""

    claimed: list[C]
    left: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a heartbeat was answered."""

    alive: bool
    """False: the row is gone, or was too old already. A worker that is dead once is dead: a new one has to be made."""

    over: frozenset[str] = frozenset()
    """Effects held whose run is closed, or whose call is settled, or is owed a cancel."""

    lost: frozenset[str] = frozenset()
    """Effects held that are not this worker's any more, or whose latest start is somebody else's."""
