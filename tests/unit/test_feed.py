"""The feed over brokers in memory: nothing twice, nothing passed over, whatever moves, dies or is left meanwhile."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import TopicPartition, errors
from aiokafka.protocol.fetch import FetchRequest_v4, FetchRequest_v5, FetchRequest_v11
from tests.bounds import IN_PROCESS
from tests.support import log_in_memory
from tests.support.brokers_in_memory import ABORT, COMMIT, NOBODY, NOT_LEADER, OUT_OF_RANGE, Brokers
from tests.support.turns import turns

from frameledger.record import Record
from frameledger_services.event_log import feed as feeding
from frameledger_services.event_log.feed import Feed

TOPIC = "llm.frames"
LATER = {
    "unknown": 3,
    "no leader": 5,
    "not the leader": NOT_LEADER,
    "no replica": 9,
    "storage": 56,
    "no offset": 78,
}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(feeding, "AGAIN_SECONDS", 0.02)


class Taking:
    """Takes answers in: at once, or, while `halted`, only as far as `go_on` says."""

    def __init__(self, feed):
        self.feed = feed
        self.got = []
        self.doubted = []
        self.answers = 0
        self.halted = False
        self.fetched = []
        self._changed = asyncio.Event()
        self._may = asyncio.Semaphore(0)

    async def __call__(self, fetched):
        self.fetched = fetched
        self.answers += 1
        self._tell()
        if self.halted:
            await self._may.acquire()
        for one in fetched:
            self.got += [(record.partition, record.value) for record in one.some(100) or ()]
        self._tell()

    def go_on(self):
        self._may.release()

    async def doubt(self, offsets):
        """Nothing was lost, as far as we know: it is read on."""
        self.doubted.append(offsets)
        for partition, offset in offsets.items():
            self.feed.follow(partition, offset)

    async def until(self, holds):
        while not holds():
            await self._changed.wait()

    def _tell(self):
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def reading(brokers, **offsets):
    """A feed that reads, beside it what it brings, and its task. `p3=7` follows partition 3 from 7 on."""
    feed = Feed(brokers, TOPIC)
    taking = Taking(feed)
    for name, offset in offsets.items():
        feed.follow(int(name[1:]), offset)
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(feed.run(taking, taking.doubt))
        yield feed, taking, task
        task.cancel()


def of(found, partition):
    return [value for number, value in found if number == partition]


# What the feed and the one in memory promise.


class InMemory:
    """The feed that stands for ours in tests of the projector."""

    def __init__(self, logs):
        self.records = [
            Record(TOPIC, partition, offset, b"key", value, timestamp_ms=1_000)
            for partition, values in enumerate(logs)
            for offset, value in enumerate(values)
        ]
        self.feed = log_in_memory.Feed(self.records)

    @asynccontextmanager
    async def answer(self):
        yield [one for one in self.feed.answer() if one.offset < one.end]


class OverBrokers:
    """Our feed."""

    def __init__(self, logs):
        brokers = Brokers(TOPIC, dict.fromkeys(range(len(logs)), 1))
        for partition, values in enumerate(logs):
            brokers.append(partition, *values)
        self.feed = Feed(brokers, TOPIC)

    @asynccontextmanager
    async def answer(self):
        taking = Taking(self.feed)
        taking.halted = True
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.feed.run(taking, taking.doubt))
            await taking.until(lambda: taking.answers)
            yield taking.fetched
            task.cancel()


@pytest.fixture(params=[InMemory, OverBrokers])
def made(request):
    return lambda *logs: request.param(logs)


def contract(test):
    """A test of a world, which is made of the values that lie in each partition."""

    def run(made):
        asyncio.run(test(made))

    run.__name__ = test.__name__
    return run


@contract
async def test_an_answer_has_what_lies_in_each_partition_from_the_offset_on_and_where_it_ends(made):
    world = made([b"a", b"b", b"c"], [b"d"], [b"e"])
    world.feed.follow(0, 1)
    world.feed.follow(1, 0)
    async with world.answer() as fetched:
        read = {one.partition: one.some(100) for one in fetched}
        assert {one.partition: (one.offset, one.end) for one in fetched} == {0: (3, 3), 1: (1, 1)}
    assert {
        partition: [(one.offset, one.value) for one in records] for partition, records in read.items()
    } == {
        0: [(1, b"b"), (2, b"c")],
        1: [(0, b"d")],
    }
    assert read[1][0] == Record(TOPIC, 1, 0, b"key", b"d", timestamp_ms=1_000)


@contract
async def test_an_answer_is_read_in_pieces_and_has_nothing_more_at_its_end(made):
    world = made([b"a", b"b", b"c"])
    world.feed.follow(0, 0)
    async with world.answer() as (one,):
        pieces = []
        for _ in range(4):
            pieces.append(([record.value for record in one.some(2)], one.offset))
    assert pieces == [([b"a", b"b"], 2), ([b"c"], 3), ([], 3), ([], 3)]


@contract
async def test_what_is_read_is_not_answered_again(made):
    world = made([b"a", b"b", b"c"], [b"d"])
    world.feed.follow(0, 0)
    async with world.answer() as (one,):
        one.some(2)
    async with world.answer() as (one,):
        assert [record.value for record in one.some(100)] == [b"c"]


@contract
async def test_a_partition_that_was_left_gives_nothing_more_of_an_answer_that_is_half_read(made):
    world = made([b"a", b"b", b"c"], [b"d"])
    world.feed.follow(0, 0)
    world.feed.follow(1, 0)
    async with world.answer() as fetched:
        first, second = sorted(fetched, key=lambda one: one.partition)
        assert len(first.some(1)) == 1
        world.feed.leave(0)
        world.feed.leave(0)
        assert first.some(100) is None
        assert [record.value for record in second.some(100)] == [b"d"]


@contract
async def test_a_partition_that_is_followed_anew_is_read_by_a_new_answer(made):
    world = made([b"a", b"b", b"c"])
    world.feed.follow(0, 0)
    async with world.answer() as (one,):
        one.some(1)
        world.feed.follow(0, 1)
        assert one.some(100) is None
    async with world.answer() as (one,):
        assert [record.value for record in one.some(100)] == [b"b", b"c"]


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
    monkeypatch.setattr(feeding, "PARTITION_BYTES", 1_000)
    monkeypatch.setattr(feeding, "FETCH_BYTES", 2_000)

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


# Leaders and brokers.


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
            assert brokers.metadata_asked <= 1 + elapsed / feeding.AGAIN_SECONDS
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


def test_what_was_read_of_a_broker_that_was_away_is_in_doubt_when_it_answers_again():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1, 2: 2})
        brokers.append(0, b"kept", b"lost")
        async with reading(brokers, p0=0, p1=0, p2=0) as (_, taking, _):
            await taking.until(lambda: len(taking.got) == 2)
            brokers.change(away={1})
            brokers.append(2, b"another's")
            await taking.until(lambda: len(taking.got) == 3)
            assert taking.doubted == []
            brokers.append(0, b"new")
            brokers.change(away=set())
            await taking.until(lambda: (0, b"new") in taking.got)
            # Before any record of it was handed on, and once.
            assert taking.doubted == [{0: 2, 1: 0}]

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
    assert asked <= answered + (asyncio.get_running_loop().time() - began) / feeding.AGAIN_SECONDS


@pytest.mark.regression("fault 4")
@pytest.mark.parametrize("code", LATER.values(), ids=LATER)
def test_what_a_broker_could_not_give_for_a_while_is_in_doubt_when_it_gives_it_again(code):
    """It says so too of a topic that was deleted, and that may have been made anew when it is asked again."""

    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 1})
        brokers.append(0, b"old")
        async with reading(brokers, p0=0, p1=0) as (_, taking, _):
            await taking.until(lambda: taking.got == [(0, b"old")])
            brokers.change(errors={0: code})
            brokers.append(1, b"another's")
            await taking.until(lambda: len(taking.got) == 2)
            assert taking.doubted == []
            brokers.change(errors={})
            brokers.append(0, b"new")
            await taking.until(lambda: (0, b"new") in taking.got)
            assert taking.doubted == [{0: 1}]

    asyncio.run(run())


@pytest.mark.regression("fault 4")
def test_what_was_read_of_another_leader_is_in_doubt():
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
            assert taking.doubted == [{0: 1}]

    asyncio.run(run())


@pytest.mark.regression("fault 4")
def test_what_was_read_before_the_process_was_frozen_is_in_doubt():
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 1: 2})
        async with reading(brokers, p0=0, p1=0) as (feed, taking, _):
            brokers.append(0, b"a")
            await taking.until(lambda: taking.got == [(0, b"a")])
            await turns()
            feed._ticked -= 2 * feeding.FROZEN_SECONDS
            brokers.append(0, b"b")
            await taking.until(lambda: (0, b"b") in taking.got)
            brokers.quiet()
            await taking.until(lambda: len(taking.doubted) == 2)
            assert taking.doubted == [{0: 1}, {1: 0}]

    asyncio.run(run())


@pytest.mark.regression("trial C4")
def test_while_a_broker_does_not_answer_the_others_say_who_leads_and_are_read(monkeypatch):
    """It is not away: its connection stands, and what it was asked is waited for."""
    monkeypatch.setattr(feeding, "SLOW_SECONDS", 0.02)

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


# What waiting does not mend.


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, errors.OffsetOutOfRangeError),
        (2, errors.CorruptRecordException),
        (29, errors.TopicAuthorizationFailedError),
        (-1, errors.UnknownError),
        (1_000, errors.UnknownError),
    ],
)
def test_an_error_that_stays_is_raised_with_its_place(code, error):
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 3: 1, 5: 2})
        brokers.errors[3] = code
        async with reading(brokers, p0=0, p3=8, p5=0):
            await asyncio.Event().wait()

    raised = one_error(run)
    assert type(raised) is error
    assert f"{TOPIC}/3 from 8 on" in str(raised)
    assert f"error {code} " in str(raised)


def test_an_offset_that_the_log_does_not_have_is_an_error():
    async def run():
        async with reading(Brokers(TOPIC, {0: 1}), p0=5):
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.OffsetOutOfRangeError)


def test_an_answer_that_is_an_error_as_a_whole_is_one(monkeypatch):
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        monkeypatch.setattr(brokers, "_response", lambda built, _: built.RESPONSE_TYPE(0, 31, 0, []))
        async with reading(brokers, p0=0):
            await turns()
            brokers.quiet()
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.ClusterAuthorizationFailedError)


def test_a_request_that_no_broker_understands_is_an_error():
    class Old(Brokers):
        async def send(self, node, request):
            raise errors.IncompatibleBrokerVersion("too old")

    async def run():
        async with reading(Old(TOPIC, {0: 1}), p0=0):
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.IncompatibleBrokerVersion)


def test_half_a_batch_is_an_error_and_is_not_asked_for_again_and_again(monkeypatch):
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a" * 100)
        ((_, batch),) = brokers._logs[0]._batches
        monkeypatch.setattr(brokers._logs[0], "read", lambda *_: batch[:30])
        async with reading(brokers, p0=0):
            await asyncio.Event().wait()

    raised = one_error(run)
    assert isinstance(raised, errors.RecordTooLargeError)
    assert f"30 bytes of {TOPIC}/0 from 0 on" in str(raised)


def test_bytes_that_were_spoilt_are_an_error():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a")
        last, batch = brokers._logs[0]._batches[0]
        brokers._logs[0]._batches[0] = last, batch[:-3] + b"?" + batch[-2:]
        async with reading(brokers, p0=0):
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.CorruptRecordException)


def one_error(run):
    """The only error that it ends with."""
    with pytest.raises(BaseExceptionGroup) as raised:
        asyncio.run(run())
    error = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


# What lies on a partition beside records.


@pytest.mark.parametrize("request_class", [FetchRequest_v4, FetchRequest_v5, FetchRequest_v11])
def test_only_what_was_committed_is_read_and_markers_are_passed(request_class):
    async def run():
        brokers = Brokers(TOPIC, {0: 1}, request_class)
        brokers.append(0, b"a")
        brokers.append(0, b"kept 1", producer=7)
        brokers.append(0, b"dropped 1", b"dropped 2", producer=8)
        brokers.append(0, b"kept 2", producer=7)
        async with reading(brokers, p0=0) as (_, taking, _):
            await taking.until(lambda: taking.got == [(0, b"a")])
            brokers.end(0, 8, ABORT)
            brokers.append(0, b"b")
            brokers.end(0, 7, COMMIT)
            # The same producer, whose next transaction counts.
            brokers.append(0, b"kept 3", producer=8)
            brokers.end(0, 8, COMMIT)
            await taking.until(lambda: len(taking.got) == 5)
            assert of(taking.got, 0) == [b"a", b"kept 1", b"kept 2", b"b", b"kept 3"]
            brokers.append(0, b"dropped 3", producer=8)
            brokers.end(0, 8, ABORT)
            # Nothing of this is a record, and the partition is read behind it.
            await turns()
            assert brokers.asked[-1] == (1, {0: 12})

    asyncio.run(run())


def test_an_aborted_transaction_is_not_read_from_its_middle_either():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"dropped 1", producer=8)
        brokers.append(0, b"dropped 2", b"dropped 3", producer=8)
        brokers.end(0, 8, ABORT)
        brokers.append(0, b"a")
        async with reading(brokers, p0=2) as (_, taking, _):
            await taking.until(lambda: taking.got)
            assert taking.got == [(0, b"a")]

    asyncio.run(run())


def test_what_was_compacted_away_is_passed():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, None, b"a", None, b"b", None)
        brokers.append(0, None, None)
        async with reading(brokers, p0=0) as (_, taking, _):
            await taking.until(lambda: taking.got)
            await turns()
            assert taking.got == [(0, b"a"), (0, b"b")]
            assert brokers.asked[-1] == (1, {0: 7})

    asyncio.run(run())


def test_what_lies_before_the_offset_in_the_same_batch_is_not_read_again():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a", b"b", b"c")
        async with reading(brokers, p0=2) as (_, taking, _):
            await taking.until(lambda: taking.got)
            assert taking.got == [(0, b"c")]

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
        task = asyncio.create_task(feed.run(taking, taking.doubt))
        await turns(steps)
        task.cancel()
        async with asyncio.timeout(IN_PROCESS):
            with suppress(asyncio.CancelledError):
                await task
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert brokers.cluster._listeners == set()

    asyncio.run(run())
