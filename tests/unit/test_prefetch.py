"""The prefetch buffer: what can be read, how much, and when the next answer is accepted."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.bounds import IN_PROCESS
from tests.support.log_in_memory import Feed
from tests.support.turns import turns

from frameledger.record import LoggedFrame, Record
from frameledger_services.projector import prefetch as reading_ahead
from frameledger_services.projector.ownership import OwnedPartition
from frameledger_services.projector.prefetch import CHUNK_RECORDS, Prefetch

TOPIC = "llm.frames"
VALUE = b'{"type":"LLMRunFrame"}'


class World:
    """A log with so many records in each partition, who follows and owns them all, and what is read ahead of it."""

    def __init__(self, *counts):
        self.feed = Feed(
            [
                Record(TOPIC, partition, offset, b"ctx", VALUE, timestamp_ms=1_000)
                for partition, count in enumerate(counts)
                for offset in range(count)
            ]
        )
        self.owned: dict[int, OwnedPartition] = {}
        self.undecoded: set[int] = set()
        self.ahead = Prefetch(self.owned, lambda partition: partition not in self.undecoded)
        for partition in range(len(counts)):
            self.own(partition)

    def own(self, partition, offset=0):
        self.owned[partition] = OwnedPartition(partition, 1, offset)
        self.feed.follow(partition, offset)

    def let_go(self, partition):
        """In the order of the projector."""
        self.owned.pop(partition)
        self.feed.leave(partition)
        self.ahead.drop(partition)

    @asynccontextmanager
    async def receiving(self, *answers):
        """An answer of each of some brokers is taken in; without any, what one broker has of everything."""
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            received = [tasks.create_task(self.ahead.receive(one)) for one in answers or [self.feed.answer()]]
            yield received
            while not all(task.done() for task in received):
                self.ahead.read(1)
                await turns()

    def positions(self):
        return {one.partition: one.offset for one in self.feed.answer()}


@dataclass
class Marker:
    """What an answer has of a partition in which there is nothing but a transaction's marker."""

    partition: int
    offset: int
    end: int

    def read(self, _):
        return []


def places(look):
    return [(record.partition, record.offset) for record, _ in look.records]


def all_of(partition, count, start=0):
    return [(partition, offset) for offset in range(start, count)]


def running(test):
    def run():
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@running
async def test_an_answer_is_read_in_looks_of_bounded_size_that_say_where_the_partitions_stand():
    world = World(450, 30)
    async with world.receiving():
        taken = []
        for _ in range(3):
            await world.ahead.until_ready()
            taken.append(world.ahead.read(1))
            await turns()
    assert [places(look) for look in taken] == [
        all_of(0, CHUNK_RECORDS),
        all_of(0, 2 * CHUNK_RECORDS, CHUNK_RECORDS),
        all_of(0, 450, 2 * CHUNK_RECORDS) + all_of(1, 30),
    ]
    assert [look.next_offsets for look in taken] == [{0: 200}, {0: 400}, {0: 450, 1: 30}]
    assert [look.size for look in taken] == [200 * len(VALUE), 200 * len(VALUE), 80 * len(VALUE)]
    assert {one.end_offset for one in world.owned.values()} == {450, 30}


@running
async def test_others_get_their_turn_between_two_looks():
    world = World(3 * CHUNK_RECORDS)
    async with world.receiving():
        await turns(1)
        assert world.positions() == {0: CHUNK_RECORDS}
        await turns(1)
        assert world.positions() == {0: 2 * CHUNK_RECORDS}


@running
async def test_what_is_taken_ends_with_the_look_that_brings_it_to_as_many_as_are_wanted():
    world = World(5 * CHUNK_RECORDS)
    async with world.receiving():
        await turns()
        first, second = world.ahead.read(CHUNK_RECORDS + 1), world.ahead.read(10_000)
        assert world.ahead.read(10_000).records == []
    assert places(first) == all_of(0, 2 * CHUNK_RECORDS)
    assert first.next_offsets == {0: 2 * CHUNK_RECORDS}
    assert places(second) == all_of(0, 5 * CHUNK_RECORDS, 2 * CHUNK_RECORDS)
    assert second.next_offsets == {0: 5 * CHUNK_RECORDS}


@running
async def test_an_answer_is_received_when_a_batch_was_taken_since_its_last_look_was_read():
    world = World(3 * CHUNK_RECORDS + 1)
    async with world.receiving() as (task,):
        # The first look.
        await turns(1)
        world.ahead.read(1)
        # The others.
        await turns()
        assert world.positions() == {0: 3 * CHUNK_RECORDS + 1}
        assert not task.done()
        world.ahead.read(1)
        await turns()
        assert task.done()


@running
async def test_where_much_waits_there_may_be_more_at_once():
    world = World(reading_ahead.BACKLOG_RECORDS)
    async with world.receiving() as (task,):
        await turns()
        assert task.done()


@running
async def test_nobody_waits_for_a_batch_that_was_taken_as_soon_as_it_was_there():
    world = World(1)
    async with world.receiving() as (task,):
        await turns(1)
        assert places(world.ahead.read(1)) == all_of(0, 1)
        await turns(1)
        assert task.done()


@running
async def test_an_answer_without_anything_is_received_at_once():
    world = World(0)
    async with world.receiving([]) as (task,):
        await turns(1)
        assert task.done()
    async with world.receiving() as (task,):
        await turns(1)
        assert task.done()


@pytest.mark.parametrize(
    ("limit", "reached"),
    [("MAX_BYTES", 2 * CHUNK_RECORDS * len(VALUE)), ("MAX_RECORDS", 2 * CHUNK_RECORDS)],
)
def test_no_look_is_begun_while_so_much_waits(monkeypatch, limit, reached):
    monkeypatch.setattr(reading_ahead, limit, reached)

    async def run():
        world = World(5 * CHUNK_RECORDS - 1)
        async with world.receiving() as (task,):
            await turns()
            assert world.positions() == {0: 2 * CHUNK_RECORDS}
            assert places(world.ahead.read(1)) == all_of(0, CHUNK_RECORDS)
            await turns()
            assert world.positions() == {0: 3 * CHUNK_RECORDS}
            assert places(world.ahead.read(10_000)) == all_of(0, 3 * CHUNK_RECORDS, CHUNK_RECORDS)
            await turns()
            assert places(world.ahead.read(10_000)) == all_of(0, 5 * CHUNK_RECORDS - 1, 3 * CHUNK_RECORDS)
            await turns()
            assert task.done()

    asyncio.run(run())


def test_of_an_answer_that_is_half_read_nothing_is_left_of_a_partition_that_is_forgotten(monkeypatch):
    monkeypatch.setattr(reading_ahead, "MAX_BYTES", 1)

    async def run():
        world = World(3 * CHUNK_RECORDS, 5)
        async with world.receiving() as (task,):
            await turns()
            assert world.positions()[0] == CHUNK_RECORDS
            world.let_go(0)
            look = world.ahead.read(10_000)
            assert (look.records, look.next_offsets) == ([], {})
            await turns()
            look = world.ahead.read(10_000)
            assert places(look) == all_of(1, 5)
            assert look.next_offsets == {1: 5}
            await turns()
            assert task.done()

    asyncio.run(run())


def test_nor_when_it_is_owned_again_meanwhile(monkeypatch):
    monkeypatch.setattr(reading_ahead, "MAX_BYTES", 1)

    async def run():
        world = World(3 * CHUNK_RECORDS)
        async with world.receiving() as (task,):
            await turns()
            world.let_go(0)
            world.own(0, 7)
            look = world.ahead.read(10_000)
            assert (look.records, look.next_offsets) == ([], {})
            await turns()
            assert task.done()
        async with world.receiving():
            await turns()
            assert places(world.ahead.read(1)) == all_of(0, 7 + CHUNK_RECORDS, 7)

    asyncio.run(run())


@running
async def test_what_was_read_of_the_others_stays_when_a_partition_is_forgotten():
    world = World(3, 4)
    async with world.receiving():
        await turns()
        world.let_go(0)
        look = world.ahead.read(10_000)
        assert places(look) == all_of(1, 4)
        assert look.next_offsets == {1: 4}
        assert world.ahead._records == 0


@running
async def test_an_answer_brings_nothing_of_a_partition_that_is_not_ours_by_now():
    world = World(3, 4)
    answer = world.feed.answer()
    world.let_go(0)
    async with world.receiving(answer):
        await turns()
        assert places(world.ahead.read(10_000)) == all_of(1, 4)


def test_two_brokers_answer_at_once_and_what_waits_is_bounded_for_both(monkeypatch):
    monkeypatch.setattr(reading_ahead, "MAX_BYTES", 3 * CHUNK_RECORDS * len(VALUE))

    counts = 5 * CHUNK_RECORDS - 1, 4 * CHUNK_RECORDS - 1

    async def run():
        world = World(*counts)
        first, second = ([one] for one in world.feed.answer())
        found: list[tuple[int, int]] = []
        ends: dict[int, int] = {}
        async with world.receiving(first, second) as received:
            while len(found) < sum(counts):
                await turns()
                # Each stops when there is so much, whoever it is of.
                assert world.ahead._size <= 4 * CHUNK_RECORDS * len(VALUE)
                look = world.ahead.read(1)
                found += places(look)
                ends |= look.next_offsets
            await turns()
            assert all(task.done() for task in received)
        assert [place for place in found if place[0] == 0] == all_of(0, counts[0])
        assert [place for place in found if place[0] == 1] == all_of(1, counts[1])
        assert ends == dict(enumerate(counts))
        assert (world.ahead._size, world.ahead._records) == (0, 0)

    asyncio.run(run())


@running
async def test_what_may_not_be_decoded_ahead_is_not():
    world = World(1, 1)
    world.undecoded.add(0)
    async with world.receiving():
        await turns()
        (_, kept), (_, decoded) = world.ahead.read(10).records
    assert kept is None
    assert isinstance(decoded, LoggedFrame)


@running
async def test_a_marker_moves_its_partition_until_that_is_stored():
    world = World(0, 0)
    world.owned[0].next_offset = 4
    world.owned[1].next_offset = 9
    async with world.receiving([Marker(0, offset=5, end=5), Marker(1, offset=9, end=12)]):
        await turns()
        look = world.ahead.read(10)
    assert (look.records, look.next_offsets) == ([], {0: 5})
    assert [world.owned[0].end_offset, world.owned[1].end_offset] == [5, 12]


@running
async def test_who_waits_is_woken_by_what_comes_or_by_somebody():
    world = World(1)
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(world.ahead.until_ready())
        await turns()
        assert not waiting.done()
        world.ahead.wake()
        await waiting
        # That was for once.
        waiting = tasks.create_task(world.ahead.until_ready())
        await turns()
        assert not waiting.done()
        async with world.receiving():
            await waiting


@pytest.mark.parametrize("steps", range(5))
def test_receiving_ends_wherever_it_is_cancelled(steps):
    async def run():
        world = World(3 * CHUNK_RECORDS)
        task = asyncio.create_task(world.ahead.receive(world.feed.answer()))
        await turns(steps)
        task.cancel()
        await asyncio.wait([task], timeout=IN_PROCESS)
        assert task.cancelled()

    asyncio.run(run())
