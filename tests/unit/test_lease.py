"""How long a worker may assume that its work is its own."""

import asyncio
import time

import pytest
from tests.bounds import IN_PROCESS
from tests.support.polling import look_again

from frameledger_services.work.lease import Lease, LeaseLostError


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_it_lasts_from_before_the_heartbeat_was_sent(clock):
    lease = Lease(5, clock)
    assert not lease.valid()
    clock.now = 102
    lease.renew(sent=101)
    assert lease.left() == 4
    clock.now = 105.9
    assert lease.valid()
    clock.now = 106
    assert not lease.valid()


@pytest.mark.regression("fault 17i")
def test_it_is_counted_by_a_clock_that_goes_on_while_the_machine_is_suspended(monkeypatch):
    at = {7: 100.0}
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", at.__getitem__)
    lease = Lease(5)
    lease.renew(sent=lease.clock())
    assert lease.valid()
    # The monotonic clock of Linux would not have moved.
    at[7] = 106.0
    assert not lease.valid()


def test_a_heartbeat_renews_it_and_a_late_answer_does_not_shorten_it(clock):
    lease = Lease(5, clock)
    lease.renew(sent=100)
    lease.renew(sent=103)
    lease.renew(sent=102)
    clock.now = 107.9
    assert lease.valid()


def test_once_it_is_over_nothing_renews_it(clock):
    lease = Lease(5, clock)
    lease.renew(sent=100)
    clock.now = 106
    lease.renew(sent=105)
    assert not lease.valid()
    ended = Lease(5, clock)
    ended.renew(sent=106)
    ended.end()
    ended.renew(sent=106)
    assert not ended.valid()


def test_a_block_does_not_begin_without_it(clock):
    async def scenario():
        async with Lease(5, clock).held():
            raise AssertionError("the block began")

    with pytest.raises(LeaseLostError, match="lease has ended"):
        asyncio.run(scenario())


def test_a_block_ends_with_it_and_not_before():
    class Looked(Clock):
        looks = 0

        def __call__(self):
            self.looks += 1
            return super().__call__()

    went_on = []

    async def scenario():
        clock = Looked()
        lease = Lease(0.02, clock)
        lease.renew(clock.now)

        async def block():
            async with asyncio.timeout(IN_PROCESS), lease.held():
                lease.seconds = 0.1
                lease.renew(clock.now)
                # It is looked at when it would have ended, and this clock stands still meanwhile.
                before = clock.looks
                while clock.looks < before + 4:
                    await look_again()
                went_on.append(True)
                clock.now += 0.1
                await asyncio.Event().wait()

        with pytest.raises(LeaseLostError):
            await block()

    asyncio.run(scenario())
    assert went_on


def test_a_block_ends_at_once_when_it_is_ended():
    async def scenario():
        lease = Lease(1_000)
        lease.renew(lease.clock())

        async def block():
            async with asyncio.timeout(IN_PROCESS), lease.held():
                lease.end()
                await asyncio.Event().wait()

        with pytest.raises(LeaseLostError):
            await block()

    asyncio.run(scenario())


def test_what_a_block_raises_is_passed_on_also_its_own_time_limit():
    async def scenario():
        lease = Lease(1_000)
        lease.renew(lease.clock())
        with pytest.raises(TimeoutError):
            async with lease.held():
                raise TimeoutError("of something else")

    asyncio.run(scenario())
