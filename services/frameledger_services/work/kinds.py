"""The two kinds of work, answering runs and running calls: how each is read, claimed and taken over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Generic, TypeVar

from frameledger import effects
from frameledger_services import claims
from frameledger_services.claims import Claimed, ClaimedCall, ClaimedRun, ClaimResult
from frameledger_services.database_types import Connection
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.work.effect_decoding import decode_effect

E = TypeVar("E", bound=effects.Effect)
C = TypeVar("C", bound=Claimed)


@dataclass(frozen=True, slots=True)
class JobKind(Generic[E, C]):
    """What distinguishes one kind of work from the other."""

    worker: claims.Kind
    topic: Callable[[TopicNames], str]
    decode: Callable[[bytes | None], E]
    """Raises `NoEffectError` for bytes that are not an effect of this kind."""

    claim: Callable[[Connection, str, Sequence[E], int | None, Mapping[str, str]], Awaitable[ClaimResult[C]]]
    take_over: Callable[[Connection, str, int], Awaitable[list[C]]]
    unclaimed: Callable[[Connection, str, int], Awaitable[list[E]]]
    subject: Callable[[C], str]
    """Returns the id of the run or call, which a cancellation names."""


RUNS: JobKind[effects.RunInference, ClaimedRun] = JobKind(
    worker="inference",
    topic=attrgetter("inference"),
    decode=partial(decode_effect, effects.RunInference),
    claim=claims.claim_runs,
    take_over=claims.take_over_runs,
    unclaimed=claims.unclaimed_runs,
    subject=attrgetter("run_id"),
)

CALLS: JobKind[effects.CallFunction, ClaimedCall] = JobKind(
    worker="functions",
    topic=attrgetter("function_calls"),
    decode=partial(decode_effect, effects.CallFunction),
    claim=claims.claim_calls,
    take_over=claims.take_over_calls,
    unclaimed=claims.unclaimed_calls,
    subject=attrgetter("tool_call_id"),
)
