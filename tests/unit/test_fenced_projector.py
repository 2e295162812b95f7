"""What a projector does that finds itself fenced in the middle of what it read: nothing of it may be passed over."""

import asyncio
from types import SimpleNamespace

from aiokafka import TopicPartition

from frameledger_services.projector import service
from frameledger_services.projector.batches import FencedError, Owned, Topics, nobody_listens

TOPIC = "llm.frames"
TOPICS = Topics(frames=TOPIC, dead_letters="llm.frames.dlq", effects={}, partitions=2)


class Consumer:
    """Two partitions, of which three records each were fetched."""

    def __init__(self):
        self.paused = set()

    async def getmany(self, **_):
        return {place: [received(place, n) for n in range(3)] for place in self.assignment()}

    def assignment(self):
        return {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}

    async def position(self, place):
        return 3

    def highwater(self, place):
        return 3

    def pause(self, *places):
        self.paused.update(place.partition for place in places)


class FencedBatches:
    """Each batch meets another owner."""

    async def store(self, records, owned, positions):
        raise FencedError(set(positions))


def test_a_fence_in_the_first_batch_of_a_fetch_takes_the_others_back_too(monkeypatch):
    consumer, relay = Consumer(), SimpleNamespace(hand_over=None)
    projector = service._Projector(consumer, None, relay, None, TOPICS, nobody_listens)
    monkeypatch.setattr(projector, "_batches", FencedBatches())
    projector._owned.update({number: Owned(number, epoch=1, next_offset=0) for number in (0, 1)})
    monkeypatch.setattr(service, "MAX_BATCH_BYTES", 1)  # each record is a batch

    async def two_looks():
        await projector._ahead.look()
        # What was read ahead by then is of no use either.
        await projector._ahead.look()
        await projector._store(projector._ahead.take(1))
        assert projector._ahead.take(100).found == []

    asyncio.run(two_looks())

    # What was read of both is dropped, so both are read again from where the database says.
    assert projector._owned == {}
    assert projector._to_take == consumer.paused == {0, 1}


def received(place, offset):
    return SimpleNamespace(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        key=b"ctx",
        value=b"{}",
        headers=(),
        timestamp=0,
    )
