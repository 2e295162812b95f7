"""The limits that are checked before a model is called: those of the installation and those of the conversation.

A run that exceeds one ends with an error that names the limit, its value, and how to raise it. So the decision is on
the log like any other failure, and a later fold does not repeat it. If both the settings and the conversation
(`LLMSetLimitsFrame`) have a limit, the smaller one counts.

Times are those of the log: a day is a UTC day, and a run belongs to the day on which it was requested. The usage of a
run is known when it has ended: a run may exceed a limit of tokens or money, and the next one is stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from frameledger import errors
from frameledger_services.claims import ClaimedRun
from frameledger_services.database_types import Connection
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.settings import Settings
from frameledger_services.store import spending
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.spending import Place, Spent

SETTLED = timedelta(hours=1)
"""Runs that were requested this long ago have ended; their usage is added up once."""

MAX_COUNTED = 2**31
"""Up to this number, runs within a minute are counted. A higher limit is never reached."""

REMEMBERED_SECONDS = 2.0
"""Seconds for which the usage of all conversations is cached."""


class LimitReachedError(ProviderError, errors.RefusedError):
    """A run exceeds a limit: the model is not called, or its calls are not made. `code` names the limit.

    Remedy: Raise the limit that the message names: a setting of the inference service, or one of the conversation.
    """

    code = "limit_reached"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that applies, and how to raise it."""

    value: float
    source: str

    def error(self, code: str, what: str) -> LimitReachedError:
        return LimitReachedError(f"{what} {self.source} is {self.value:.15g}.", code=code)


@dataclass(slots=True)
class RunLimits:
    """Checks runs. Create one per service: it caches the usage of all conversations for a short time."""

    settings: Settings
    _day: datetime | None = None
    _upto: datetime | None = None
    _settled: Spent = field(default_factory=lambda: Spent(0, Decimal(0)))
    _known: Spent = field(default_factory=lambda: Spent(0, Decimal(0)))
    _known_until: float = 0.0
    _one_reads: asyncio.Lock = field(default_factory=asyncio.Lock)

    def size(self, stored: StoredContext, request: Request) -> LimitReachedError | None:
        """Returns the error if a context is too large for a call of a model, otherwise None."""
        if (limit := self._limit("context_messages")) and len(stored.context.messages) > limit.value:
            return limit.error(
                "context_too_large", f"The context has {len(stored.context.messages)} messages."
            )
        if (limit := self._limit("context_bytes")) and len(request.content) > limit.value:
            return limit.error("context_too_large", f"The request has {len(request.content)} bytes.")
        return None

    async def used(
        self, connection: Connection, run: ClaimedRun, stored: StoredContext
    ) -> LimitReachedError | None:
        """Returns the error if a run must not be answered because earlier usage exceeds a limit, otherwise None."""
        own = stored.limits
        rounds, minute = self._limit("rounds"), self._limit("runs_per_minute", own)
        tokens, cost = (
            self._limit("conversation_tokens_per_day", own),
            self._limit("conversation_cost_per_day", own),
        )
        all_tokens, all_cost = self._limit("tokens_per_day"), self._limit("cost_per_day")
        if not (rounds or minute or tokens or cost or all_tokens or all_cost):
            return None
        place = await spending.place(connection, run.context_id, run.run_id)
        if place is None:
            return None
        return (
            await _check_runs_of_conversation(connection, run.context_id, place, rounds, minute)
            or await _check_day_of_conversation(connection, run.context_id, place, tokens, cost)
            or await self._check_all_conversations(connection, place, all_tokens, all_cost)
        )

    async def _check_all_conversations(
        self, connection: Connection, place: Place, tokens: Limit | None, cost: Limit | None
    ) -> LimitReachedError | None:
        if tokens is None and cost is None:
            return None
        spent = await self._spent_by_all(connection, place.requested_at)
        return _check_day(spent, tokens, cost, "All conversations have")

    async def _spent_by_all(self, connection: Connection, at: datetime) -> Spent:
        """Returns the usage of all runs of the day. Settled usage is added up once, so that each query, every
        `REMEMBERED_SECONDS`, reads the runs of little more than an hour."""
        # One after another: two concurrent queries at the change of the minute or day would add one interval twice.
        async with self._one_reads:
            return await self._read_spent_by_all(connection, at)

    async def _read_spent_by_all(self, connection: Connection, at: datetime) -> Spent:
        day = day_of(at)
        if day == self._day and time.monotonic() < self._known_until:
            return self._known
        if day != self._day or self._upto is None:
            self._day, self._upto, self._settled = day, day, Spent(0, Decimal(0))
            # The cached usage is that of another day, even if the reads below fail.
            self._known_until = 0.0
        settled = max(day, at.astimezone(UTC).replace(second=0, microsecond=0) - SETTLED)
        read = partial(spending.of_all, connection, priced=bool(self.settings.limit_cost_per_day))
        if settled > self._upto:
            self._settled = _sum(self._settled, await read(self._upto, settled))
            self._upto = settled
        recent = await read(self._upto, day + timedelta(days=1))
        self._known = _sum(self._settled, recent)
        self._known_until = time.monotonic() + REMEMBERED_SECONDS
        return self._known

    def _limit(self, name: str, own: Mapping[str, Any] | None = None) -> Limit | None:
        """Returns a limit, if there is one: that of the settings, or the conversation's own if it is smaller."""
        value = getattr(self.settings, f"limit_{name}")
        limit = Limit(value, f"FRAMELEDGER_LIMIT_{name.upper()}") if value else None
        limit_of_conversation = None if own is None else own.get(name.removeprefix("conversation_"))
        if limit_of_conversation is not None and (limit is None or limit_of_conversation < limit.value):
            return Limit(
                limit_of_conversation, f"{name.removeprefix('conversation_')} of its LLMSetLimitsFrame"
            )
        return limit


def day_of(at: datetime) -> datetime:
    """Returns the beginning of the UTC day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


async def _check_runs_of_conversation(
    connection: Connection, context_id: str, place: Place, rounds: Limit | None, minute: Limit | None
) -> LimitReachedError | None:
    if rounds and place.is_of_a_result:
        most = int(rounds.value)
        if await spending.rounds(connection, context_id, place.requested_version, most) >= most:
            what = f"The model has called functions {most} times in a row without an input."
            return rounds.error("too_many_rounds", what)
    if minute:
        # A conversation may set the largest number of SQL, to which 1 cannot be added.
        most = min(int(minute.value), MAX_COUNTED)
        if await spending.runs_in_minute(connection, context_id, place.requested_at, most + 1) > most:
            what = f"More than {most} runs were requested within a minute."
            return minute.error("too_many_runs", what)
    return None


async def _check_day_of_conversation(
    connection: Connection, context_id: str, place: Place, tokens: Limit | None, cost: Limit | None
) -> LimitReachedError | None:
    if tokens is None and cost is None:
        return None
    first = day_of(place.requested_at)
    spent = await spending.of_conversation(connection, context_id, first, place.requested_at)
    return _check_day(spent, tokens, cost, "The conversation has")


def _check_day(spent: Spent, tokens: Limit | None, cost: Limit | None, who: str) -> LimitReachedError | None:
    if tokens and spent.tokens >= tokens.value:
        return tokens.error("too_many_tokens", f"{who} used {spent.tokens} tokens today.")
    if cost and spent.cost >= Decimal(str(cost.value)):
        return cost.error("too_much_spent", f"{who} cost {spent.cost:.2f} today.")
    return None


def _sum(first: Spent, second: Spent) -> Spent:
    return Spent(first.tokens + second.tokens, first.cost + second.cost)
