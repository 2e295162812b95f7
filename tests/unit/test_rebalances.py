"""A member of a group whose partitions come and go at any moment, while brokers come back and others fence it: each
record is stored once, and no partition is taken over that the group has not assigned."""

import asyncio
from random import Random
from types import SimpleNamespace

import pytest
from tests.bounds import IN_PROCESS
from tests.support import log_in_memory
from tests.support.turns import turns

from frameledger.record import Record
from frameledger_services import database
from frameledger_services.event_log.consumer import TopicPartition
from frameledger_services.projector import (
    group_member,
    held_effects,
    instance_id,
    takeover,
    topic_identity,
)
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.crashes import Crashes
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.instance_id import Instance
from frameledger_services.projector.ownership import OwnedPartition, ProjectorFencedError, ProjectorTopics
from frameledger_services.projector.takeover import TakenOver
from frameledger_services.store import outbox

TOPIC = "llm.frames"
PARTITIONS = range(3)
TOPICS = ProjectorTopics(frames=TOPIC, dead_letters="llm.frames.dlq", effects={}, partitions=len(PARTITIONS))


class Database:
    """Who owns each partition and what is stored of it. Its one connection takes a while for each statement."""

    def __init__(self, draw, group, monkeypatch):
        self._draw = draw
        self._group = group
        self._is_busy = False
        self.epochs = dict.fromkeys(PARTITIONS, 0)
        self.stored = dict.fromkeys(PARTITIONS, 0)
        self.taken_unasked = []
        monkeypatch.setattr(takeover, "assign", self._assign)
        monkeypatch.setattr(takeover, "check_log", self._check_log)
        monkeypatch.setattr(held_effects, "release", self._release)
        monkeypatch.setattr(outbox, "left_behind", self._left_behind)
        monkeypatch.setattr(instance_id, "check", self._nothing)
        monkeypatch.setattr(topic_identity, "difference", self._nothing)
        monkeypatch.setattr(database, "ping", self._nothing)

    async def pause(self):
        await turns(self._draw.randrange(6))

    async def _statement(self):
        assert not self._is_busy, "a connection is not shared"
        self._is_busy = True
        await self.pause()
        self._is_busy = False

    async def _nothing(self, *_):
        await self._statement()

    async def _left_behind(self, *_):
        await self._statement()
        return []

    async def _assign(self, _, topic, partition, owner):
        await self._statement()
        if partition not in self._group.assigned:
            self.taken_unasked.append(partition)
        self.epochs[partition] += 1
        return OwnedPartition(partition, self.epochs[partition], self.stored[partition])

    async def _check_log(self, _, log, topic, owned):
        await self.pause()
        owned.held_until = self._draw.choice([None, owned.next_offset])
        return TakenOver(owned, Crashes())

    async def _release(self, _, topics, owned):
        await self._statement()
        self._check_owned(owned)
        owned.held_until = None
        return []

    async def store(self, records, owned, ends):
        await self._statement()
        for partition in ends:
            self._check_owned(owned[partition])
            assert owned[partition].next_offset == self.stored[partition]
            offsets = [one.offset for one, _ in records if one.partition == partition]
            assert offsets == [*range(self.stored[partition], ends[partition])]
        self.stored.update(ends)
        await self.pause()
        for partition, end in ends.items():
            owned[partition].next_offset = end
        return []

    def _check_owned(self, owned):
        if owned.epoch != self.epochs[owned.partition]:
            raise ProjectorFencedError({owned.partition})

    def take(self, partition, end):
        """By another owner, which stores some records."""
        self.epochs[partition] += 1
        self.stored[partition] = self._draw.randint(self.stored[partition], end)


class Isolation:
    """Isolates no partition, and stores batches."""

    def __init__(self, store):
        self.store = store

    def is_isolated(self, partition):
        return False

    def may_decode(self, partition):
        return False

    def take(self, owned, crashes):
        """Nobody crashes."""

    def forget(self, partition):
        """Nothing is known of any."""

    def end(self, positions):
        """None is isolated."""


class Feed(log_in_memory.Feed):
    """Two brokers, which answer in their own time, and at times were away before."""

    def __init__(self, draw, records):
        super().__init__(records)
        self._draw = draw

    async def run(self, receive, revalidate):
        async with asyncio.TaskGroup() as tasks:
            for broker in range(2):
                tasks.create_task(self._read(broker, receive, revalidate))

    async def _read(self, broker, receive, revalidate):
        while True:
            answers = [one for one in self.answer() if one.partition % 2 == broker]
            await turns(1 + self._draw.randrange(8))
            was_away = self._draw.random() < 0.15
            left = {one.partition: one.offset for one in answers if was_away and one.read(0) is not None}
            for partition in left:
                self.leave(partition)
            await receive(answers)
            if left:
                await revalidate(left)


class Group:
    """Assigns partitions to the one member that we look at, and to others. Like aiokafka it names those of before until
    all are assigned anew."""

    def __init__(self, draw):
        self._draw = draw
        self._client = SimpleNamespace(force_metadata_update=None)
        self._places = set()
        self.assigned = set()

    def assignment(self):
        return set(self._places)

    def pause(self, *places):
        assert self._places.issuperset(places)

    def seek(self, place, offset):
        assert place in self._places

    async def getmany(self, *, timeout_ms):
        await turns(5)

    def partitions_for_topic(self, topic):
        return set(PARTITIONS)

    async def rebalance(self, member, partitions, meanwhile):
        """`meanwhile` is what the other owners do."""
        await member.on_partitions_revoked(self.assignment())
        self.assigned = set()
        await turns(self._draw.randrange(12))
        meanwhile()
        await turns(self._draw.randrange(12))
        self.assigned = set(partitions)
        self._places = {TopicPartition(TOPIC, one) for one in partitions}
        await member.on_partitions_assigned(self.assignment())


@pytest.mark.regression("fault 320")
@pytest.mark.parametrize("seed", range(60))
def test_no_partition_is_taken_over_that_is_not_assigned_and_each_record_is_stored_once(monkeypatch, seed):
    monkeypatch.setattr(group_member, "MAX_FENCED_BACKOFF", 0.0)
    draw = Random(seed)
    records: list[Record] = []
    ends = dict.fromkeys(PARTITIONS, 0)

    def publish(partition):
        records.append(Record(TOPIC, partition, ends[partition], b"ctx", b"{}", timestamp_ms=0))
        ends[partition] += 1

    group = Group(draw)
    tables = Database(draw, group, monkeypatch)

    async def ends_of(partitions, until):
        await tables.pause()
        return {one: ends[one] for one in partitions}

    def take_some(partitions):
        for one in partitions:
            if draw.random() < 0.7:
                tables.take(one, ends[one])

    async def life():
        projector = group_member.GroupMember(
            group,
            Feed(draw, records),
            Commits(None, TOPICS, HeadCache()),
            SimpleNamespace(enqueue=list, enqueue_pages=list),
            SimpleNamespace(notify=lambda *_, **__: None),
            SimpleNamespace(ends=ends_of),
            Instance("here"),
        )
        isolation = Isolation(tables.store)
        monkeypatch.setattr(projector, "_isolation", isolation)
        monkeypatch.setattr(projector._prefetch, "_may_decode", isolation.may_decode)
        stopping = asyncio.Event()
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            tasks.create_task(projector.run(stopping))
            for one in PARTITIONS:
                publish(one)
            for _ in range(25):
                for _ in range(draw.randrange(4)):
                    publish(draw.choice(PARTITIONS))
                await turns(draw.randrange(40))
                if draw.random() < 0.15:
                    # One that was frozen, and does not know that it owns nothing any more.
                    tables.epochs[draw.choice(PARTITIONS)] += 1
                if draw.random() < 0.5:
                    ours = draw.sample(PARTITIONS, draw.randint(0, len(PARTITIONS)))
                    others = set(PARTITIONS).difference(ours)
                    await group.rebalance(projector, ours, lambda others=others: take_some(others))
                assert group.assigned.issuperset(projector._owned)
            await group.rebalance(projector, PARTITIONS, lambda: None)
            for one in PARTITIONS:
                publish(one)
            while tables.stored != ends:
                await turns()
            stopping.set()
        assert tables.taken_unasked == []

    asyncio.run(life())
