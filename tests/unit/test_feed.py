"""The feed with brokers in memory: its requests, partitions that it leaves meanwhile, and its end."""

import asyncio
from contextlib import suppress

import pytest
from tests.bounds import IN_PROCESS
from tests.support.brokers_in_memory import NOBODY, NOT_LEADER, Brokers
from tests.support.feeds import (
    TOPIC,
    Taking,
    of,
    reading,
    soon,  # noqa: F401  # a fixture
)
from tests.support.turns import turns

from frameledger_services.event_log import feed, slow_requests
from frameledger_services.event_log.feed import Feed

pytestmark = pytest.mark.usefixtures("soon")


# How it asks.


def test_each_broker_is_asked_for_what_it_leads_side_by_side():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 2, 2: 1})
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            await turns()
            assert brokers.asked == [(1, {0: 0, 2: 0}), (2, {1: 0})]
            brokers.append(1, b"a")
            await taking.until(lambda: taking.got == [(1, b"a")])
            await turns()
            # The other one still has its request.
            assert brokers.asked[2:] == [(2, {1: 1})]
            brokers.append(2, b"b")
            await taking.until(lambda: taking.got == [(1, b"a"), (2, b"b")])
            await turns()
            assert brokers.asked[3:] == [(1, {0: 0, 2: 1})]

    asyncio.run(run())


def test_nothing_is_asked_while_an_answer_is_taken_in_and_nothing_while_nothing_is_followed():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        async with reading(brokers) as (feed, taking, _):
            await turns()
            assert brokers.asked == []
            taking.halted = True
            feed.follow(0, 0)
            brokers.append(0, b"a")
            await taking.until(lambda: taking.answers == 1)
            brokers.append(0, b"b")
            feed.follow(1, 0)
            await turns()
            assert brokers.asked == [(1, {0: 0})]
            taking.go_on()
            await taking.until(lambda: taking.answers == 2)
            assert brokers.asked == [(1, {0: 0}), (1, {1: 0, 0: 1})]
            feed.leave(0)
            feed.leave(1)
            taking.go_on()
            await turns()
            assert len(brokers.asked) == 2
            feed.follow(1, 0)
            await turns()
            assert brokers.asked[2:] == [(1, {1: 0})]

    asyncio.run(run())


def test_an_answer_without_anything_is_told_too():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        async with reading(brokers, p0=0) as (_, taking, _):
            await turns()
            brokers.quiet()
            await taking.until(lambda: taking.answers == 1)
            assert taking.fetched == []
            await turns()
            assert len(brokers.asked) == 2

    asyncio.run(run())


def test_a_large_record_comes_though_others_always_have_something(monkeypatch):
    monkeypatch.setattr(feed, "PARTITION_BYTES", 1_000)
    monkeypatch.setattr(feed, "FETCH_BYTES", 2_000)

    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1, 2: 1})
        for _ in range(50):
            brokers.append(0, b"x" * 900)
            brokers.append(1, b"x" * 900)
        brokers.append(2, b"large" * 10_000)
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            await taking.until(lambda: len(taking.got) == 101)
            assert [number for number, _ in taking.got].index(2) <= 4

    asyncio.run(run())


# Who leaves while something is under way.


def test_what_is_under_way_of_a_partition_that_was_left_is_dropped():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        brokers.append(0, b"a")
        brokers.append(1, b"b")
        brokers.held[1] = asyncio.Event()
        async with reading(brokers, p0=0, p1=0) as (feed, taking, _):
            await turns()
            feed.leave(0)
            brokers.held.pop(1).set()
            await taking.until(lambda: taking.got)
            await turns()
            assert taking.got == [(1, b"b")]
            assert brokers.asked[1:] == [(1, {1: 1})]

    asyncio.run(run())


@pytest.mark.parametrize("offset", [0, 2])
def test_a_partition_that_is_followed_anew_is_read_from_there_and_not_from_where_it_was_asked(offset):
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a", b"b", b"c")
        brokers.held[1] = asyncio.Event()
        async with reading(brokers, p0=0) as (feed, taking, _):
            await turns()
            feed.leave(0)
            feed.follow(0, offset)
            brokers.held.pop(1).set()
            await taking.until(lambda: (0, b"c") in taking.got)
            assert of(taking.got, 0) == [b"a", b"b", b"c"][offset:]

    asyncio.run(run())


# Its end.


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("trouble", ["nothing", "no leader", "away", "not the leader", "halted"])
def test_it_ends_wherever_it_is_cancelled_and_nothing_is_left_of_it(trouble, steps):
    async def run():
        brokers = Brokers(TOPIC, {0: NOBODY if trouble == "no leader" else 1, 1: 2})
        brokers.append(0, b"a")
        brokers.away = {1} if trouble == "away" else set()
        brokers.errors = {0: NOT_LEADER} if trouble == "not the leader" else {}
        feed = Feed(brokers, TOPIC)
        taking = Taking(feed)
        taking.halted = trouble == "halted"
        feed.follow(0, 0)
        feed.follow(1, 0)
        task = asyncio.create_task(feed.run(taking, taking.revalidate))
        await turns(steps)
        task.cancel()
        async with asyncio.timeout(IN_PROCESS):
            with suppress(asyncio.CancelledError):
                await task
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert brokers.cluster._listeners == set()

    asyncio.run(run())


@pytest.mark.regression("fault 330")
def test_it_ends_when_a_broker_has_just_become_slow_and_asks_nobody_else_any_more(monkeypatch):
    monkeypatch.setattr(slow_requests, "SLOW_SECONDS", IN_PROCESS / 2)

    async def run():
        failed = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failed.append(context["message"]))
        brokers = Brokers(TOPIC, {0: 1, 1: 2})
        async with reading(brokers, p0=0) as (_, _, task):
            await turns()
            clock = loop.time
            vars(loop)["time"] = lambda: clock() + slow_requests.SLOW_SECONDS
            task.cancel()
            await turns()
        assert (failed, brokers.asked_who_leads) == ([], [])

    asyncio.run(run())
