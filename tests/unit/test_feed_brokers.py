"""The feed while leaders move and brokers are down: no record twice, none skipped, and which partitions are
revalidated."""

import asyncio

import pytest
from aiokafka import TopicPartition
from tests.support.brokers_in_memory import NOBODY, OUT_OF_RANGE, Brokers
from tests.support.feeds import (
    LATER,
    TOPIC,
    of,
    reading,
    soon,  # noqa: F401  # a fixture
)
from tests.support.turns import turns

from frameledger_services.event_log import feed as feeds
from frameledger_services.event_log import leaders, slow_requests

pytestmark = pytest.mark.usefixtures("soon")


def test_a_partition_that_moves_is_read_on_at_its_new_leader():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1, 2: 2})
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            for number in range(3):
                brokers.append(1, b"%d" % number)
                await taking.until(lambda number=number: len(taking.got) == number + 1)
                # It moves, and the broker that led it says so.
                brokers.change(leaders={**brokers.leaders, 1: 3 - brokers.leaders[1]})
                await turns()
                # The one that leads it now is asked for it when it has answered what it was asked before.
                brokers.quiet()
            brokers.append(1, b"3")
            brokers.append(0, b"a")
            await taking.until(lambda: len(taking.got) == 5)
            assert of(taking.got, 1) == [b"0", b"1", b"2", b"3"]

    asyncio.run(run())


def test_a_partition_is_read_on_that_moved_to_a_broker_that_led_nothing_and_of_which_nobody_said_a_word():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        async with reading(brokers, p0=0, p1=0) as (_, taking, _):
            await turns()
            # The client hears of it by itself, as it asks who leads what from time to time.
            brokers.leaders[1] = 2
            brokers.tell()
            await turns()
            assert brokers.asked[1:] == [(2, {1: 0})]
            brokers.append(1, b"a")
            await taking.until(lambda: (1, b"a") in taking.got)

    asyncio.run(run())


@pytest.mark.parametrize("first", [1, 2])
def test_what_two_brokers_answer_while_a_partition_moves_is_read_once(first):
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a", b"b")
        brokers.held = {1: asyncio.Event(), 2: asyncio.Event()}
        async with reading(brokers, p0=0) as (_, taking, _):
            await turns()
            brokers.leaders[0] = 2
            brokers.tell()
            await turns()
            assert brokers.asked == [(1, {0: 0}), (2, {0: 0})]
            taking.halted = True
            brokers.held.pop(first).set()
            await taking.until(lambda: taking.answers == 1)
            # Both lie there unread.
            brokers.held.popitem()[1].set()
            await taking.until(lambda: taking.answers == 2)
            taking.halted = False
            taking.go_on()
            taking.go_on()
            brokers.append(0, b"c")
            await taking.until(lambda: (0, b"c") in taking.got)
            assert taking.got == [(0, b"a"), (0, b"b"), (0, b"c")]

    asyncio.run(run())


def test_an_answer_that_comes_when_another_broker_has_led_further_by_now_does_not_lead_back():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a", b"b")
        brokers.held = {1: asyncio.Event()}
        async with reading(brokers, p0=0) as (_, taking, _):
            await turns()
            brokers.leaders[0] = 2
            brokers.append(0, b"c")
            brokers.tell()
            await taking.until(lambda: len(taking.got) == 3)
            brokers.held.pop(1).set()
            await taking.until(lambda: taking.answers == 2)
            # The broker that leads it now is asked again.
            brokers.quiet()
            await taking.until(lambda: taking.answers == 3)
            brokers.append(0, b"d")
            await taking.until(lambda: (0, b"d") in taking.got)
            assert taking.got == [(0, b"a"), (0, b"b"), (0, b"c"), (0, b"d")]

    asyncio.run(run())


def test_what_a_broker_says_that_led_the_partition_once_is_no_error():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        # As one who follows its new leader and is behind.
        brokers.errors[0] = OUT_OF_RANGE
        brokers.held[1] = asyncio.Event()
        async with reading(brokers, p0=0) as (_, taking, _):
            await turns()
            brokers.errors.clear()
            brokers.leaders[0] = 2
            brokers.tell()
            brokers.held.pop(1).set()
            await taking.until(lambda: taking.answers)
            brokers.append(0, b"a")
            await taking.until(lambda: taking.got == [(0, b"a")])

    asyncio.run(run())


@pytest.mark.parametrize("code", LATER.values(), ids=LATER)
def test_what_a_broker_cannot_give_yet_is_waited_for_and_the_others_go_on(code):
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1, 2: 2})
        brokers.errors[0] = code
        brokers.append(0, b"late")
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            began = asyncio.get_running_loop().time()
            for number in range(3):
                brokers.append(1, b"%d" % number)
                brokers.append(2, b"%d" % number)
                await taking.until(lambda number=number: len(taking.got) == 2 * (number + 1))
            seldom(brokers, began, node=1)
            assert brokers.metadata_asked >= 1
            brokers.errors.clear()
            await taking.until(lambda: (0, b"late") in taking.got)

    asyncio.run(run())


def test_a_partition_without_a_leader_is_waited_for_and_the_others_go_on():
    async def run():
        brokers = Brokers(TOPIC, {0: NOBODY, 1: 1})
        brokers.append(0, b"late")
        # The topic has no partition 7, as far as anybody knows.
        async with reading(brokers, p0=0, p1=0, p7=0) as (feed, taking, _):
            began = asyncio.get_running_loop().time()
            brokers.append(1, b"a")
            await taking.until(lambda: taking.got == [(1, b"a")])
            brokers.leaders[0] = 2
            await taking.until(lambda: (0, b"late") in taking.got)
            elapsed = asyncio.get_running_loop().time() - began
            assert brokers.metadata_asked <= 1 + elapsed / leaders.AGAIN_SECONDS
            feed.leave(7)
            brokers.append(0, b"b")
            await taking.until(lambda: (0, b"b") in taking.got)

    asyncio.run(run())


def test_a_broker_that_is_away_is_waited_for_and_the_others_go_on():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 2})
        async with reading(brokers, p0=0, p1=0) as (_, taking, _):
            await turns()
            began = asyncio.get_running_loop().time()
            brokers.change(away={1})
            for number in range(20):
                brokers.append(1, b"%d" % number)
                await taking.until(lambda number=number: len(taking.got) == number + 1)
            await taking.until(lambda: len(brokers.asked) > 0)
            brokers.append(0, b"late")
            seldom(brokers, began, node=1)
            brokers.change(away=set())
            await taking.until(lambda: (0, b"late") in taking.got)

    asyncio.run(run())


def test_what_was_read_of_a_broker_that_was_away_is_revalidated_when_it_answers_again():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1, 2: 2})
        brokers.append(0, b"kept", b"lost")
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            await taking.until(lambda: len(taking.got) == 2)
            brokers.change(away={1})
            brokers.append(2, b"another's")
            await taking.until(lambda: len(taking.got) == 3)
            assert taking.revalidated == []
            brokers.append(0, b"new")
            brokers.change(away=set())
            await taking.until(lambda: (0, b"new") in taking.got)
            # Before any record of it was handed on, and once.
            assert taking.revalidated == [{0: 2, 1: 0}]

    asyncio.run(run())


def test_the_others_go_on_though_nobody_says_who_leads_what():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1, 2: NOBODY, 3: 2})
        brokers.answers_metadata = False
        async with reading(brokers, p0=0, p1=0, p2=0) as (feed, taking, _):
            await turns()
            # The broker says that it does not lead this one any more; who does cannot be learned.
            brokers.change(leaders={**brokers.leaders, 0: 2})
            for number in range(3):
                brokers.append(1, b"%d" % number)
                await taking.until(lambda number=number: len(taking.got) == number + 1)
            brokers.append(3, b"new")
            feed.follow(3, 0)
            await taking.until(lambda: (3, b"new") in taking.got)

    asyncio.run(run())


def seldom(brokers, began, *, node):
    """A broker was asked in vain no more often than we said."""
    asked = sum(one == node for one, _ in brokers.asked)
    answered = 4  # Before that, and with something.
    assert asked <= answered + (asyncio.get_running_loop().time() - began) / leaders.AGAIN_SECONDS


@pytest.mark.regression("fault 4")
@pytest.mark.parametrize("code", LATER.values(), ids=LATER)
def test_what_a_broker_could_not_give_for_a_while_is_revalidated_when_it_gives_it_again(code):
    """It says so too of a topic that was deleted, and that may have been made anew when it is asked again."""

    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        brokers.append(0, b"old")
        async with reading(brokers, p0=0, p1=0) as (_, taking, _):
            await taking.until(lambda: taking.got == [(0, b"old")])
            brokers.change(errors={0: code})
            brokers.append(1, b"another's")
            await taking.until(lambda: len(taking.got) == 2)
            assert taking.revalidated == []
            brokers.change(errors={})
            brokers.append(0, b"new")
            await taking.until(lambda: (0, b"new") in taking.got)
            assert taking.revalidated == [{0: 1}]

    asyncio.run(run())


@pytest.mark.regression("fault 4")
def test_what_was_read_of_another_leader_is_revalidated():
    """It may have been elected without having had all of it."""

    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        async with reading(brokers, p0=0, p1=0) as (_, taking, _):
            brokers.append(0, b"a")
            await taking.until(lambda: taking.got == [(0, b"a")])
            brokers.leaders[0] = 2
            brokers.tell()
            brokers.append(0, b"b")
            await taking.until(lambda: (0, b"b") in taking.got)
            assert taking.revalidated == [{0: 1}]

    asyncio.run(run())


@pytest.mark.regression("fault 4")
def test_what_was_read_of_a_leader_that_has_not_said_that_it_leads_no_more_is_revalidated():
    """The client heard of the new one by itself, and the new one knows of no error."""

    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        async with reading(brokers, p0=0, p1=0) as (_, taking, _):
            brokers.append(0, b"a")
            await taking.until(lambda: taking.got == [(0, b"a")])
            await turns()
            brokers.held[1] = asyncio.Event()
            brokers.leaders[0] = 2
            brokers.tell()
            brokers.append(0, b"b")
            await taking.until(lambda: (0, b"b") in taking.got)
            assert taking.revalidated == [{0: 1}]
            brokers.held[1].set()

    asyncio.run(run())


@pytest.mark.regression("fault 4")
def test_what_was_read_before_the_process_was_frozen_is_revalidated():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 2})
        async with reading(brokers, p0=0, p1=0) as (feed, taking, _):
            brokers.append(0, b"a")
            await taking.until(lambda: taking.got == [(0, b"a")])
            await turns()
            feed._ticked -= 2 * feeds.FROZEN_SECONDS
            brokers.append(0, b"b")
            await taking.until(lambda: (0, b"b") in taking.got)
            brokers.quiet()
            await taking.until(lambda: len(taking.revalidated) == 2)
            assert taking.revalidated == [{0: 1}, {1: 0}]

    asyncio.run(run())


@pytest.mark.regression("trial C4")
def test_while_a_broker_does_not_answer_the_others_say_who_leads_and_are_read(monkeypatch):
    """It is not away: its connection stands, and what it was asked is waited for."""
    monkeypatch.setattr(slow_requests, "SLOW_SECONDS", 0.02)

    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 2, 2: 3})
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            brokers.append(0, b"a")
            await taking.until(lambda: taking.got == [(0, b"a")])
            brokers.held = {1: asyncio.Event()}
            brokers.answers_metadata = False
            await turns()
            brokers.change(leaders={0: 2, 1: 2, 2: 3})
            brokers.append(0, b"b")
            while len(brokers.asked_who_leads) < 6:
                await turns(1)
            brokers.answers_metadata = True
            while brokers.cluster.leader_for_partition(TopicPartition(TOPIC, 0)) != 2:
                await turns(1)
            # Its new leader is asked for it when it has answered what it was asked before.
            brokers.quiet()
            await taking.until(lambda: (0, b"b") in taking.got)
            assert {2, 3} <= set(brokers.asked_who_leads)
            assert not brokers.held[1].is_set()

    asyncio.run(run())
