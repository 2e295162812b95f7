"""The usage of all conversations at a change of the minute or the day. `test_inference_limits` tests the queries."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger_services.inference import limits
from frameledger_services.inference.limits import Limit, RunLimits
from frameledger_services.settings import Settings
from frameledger_services.store import spending
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.store.spending import Spent


def at(day, hour, minute=0):
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


class Ledger:
    """Reads of usage: 100 tokens per hour. A read on the connection "slow" returns once `answer` is set."""

    def __init__(self, monkeypatch, now):
        self.now = now
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        monkeypatch.setattr(spending, "of_all", self._of_all)
        self.limits = RunLimits(Settings())

    async def used(self, connection, requested_at):
        """Check a run that was requested at that time; what all have used by then."""
        return (await self.limits._spent_by_all(connection, requested_at)).tokens

    async def _of_all(self, connection, first, before, *, priced):
        assert not priced
        hours = max(0.0, (min(before, self.now) - first).total_seconds() / 3600)
        if connection == "away":
            raise DatabaseUnavailableError("The database restarts.")
        if connection == "slow":
            self.asked.set()
            await self.answer.wait()
        return Spent(round(hours * 100), Decimal(0))


@pytest.mark.regression("worker 8")
@pytest.mark.parametrize(
    ("before", "after"), [(at(23, 9, 59), at(23, 10)), (at(23, 23, 59), at(24, 0))], ids=["minute", "day"]
)
def test_two_runs_that_are_checked_while_the_time_changes_count_nothing_twice(monkeypatch, before, after):
    async def run():
        monkeypatch.setattr(limits, "REMEMBERED_SECONDS", 0.0)
        ledger = Ledger(monkeypatch, after)
        await ledger.used("quick", before)
        slow = asyncio.create_task(ledger.used("slow", before))
        async with asyncio.timeout(IN_PROCESS):
            await ledger.asked.wait()
            quick = asyncio.create_task(ledger.used("quick", after))
            await turns()
            ledger.answer.set()
            await asyncio.gather(slow, quick)
        return ledger.limits._known.tokens

    assert asyncio.run(run()) == (1_000 if after.hour else 0)


def test_what_all_have_used_is_remembered_for_a_while_of_one_day(monkeypatch):
    async def run():
        ledger = Ledger(monkeypatch, at(23, 9))
        monkeypatch.setattr(limits, "REMEMBERED_SECONDS", float("inf"))
        used = []
        for moment in (at(23, 9), at(23, 10), at(24, 1)):
            ledger.now = moment
            used.append(await ledger.used("quick", moment))
        return used

    assert asyncio.run(run()) == [900, 900, 100]


@pytest.mark.regression("worker 177")
def test_a_day_whose_first_read_fails_does_not_begin_with_what_was_used_the_day_before(monkeypatch):
    async def run():
        ledger = Ledger(monkeypatch, at(23, 9))
        monkeypatch.setattr(limits, "REMEMBERED_SECONDS", float("inf"))
        await ledger.used("quick", at(23, 9))
        ledger.now = at(24, 1)
        with pytest.raises(DatabaseUnavailableError):
            await ledger.used("away", ledger.now)
        return await ledger.used("quick", ledger.now)

    assert asyncio.run(run()) == 100


@pytest.mark.regression("worker 26")
@pytest.mark.parametrize(("value", "told"), [(1_234_567, "1234567"), (2_000_000.0, "2000000"), (0.1, "0.1")])
def test_a_limit_is_told_as_it_was_set(value, told):
    error = Limit(value, "FRAMELEDGER_LIMIT_TOKENS_PER_DAY").error("too_many_tokens", "They used more.")
    assert str(error) == f"They used more. FRAMELEDGER_LIMIT_TOKENS_PER_DAY is {told}."
