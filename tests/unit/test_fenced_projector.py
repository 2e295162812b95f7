"""A projector that is fenced in the middle of a batch skips none of the records that it read, and one whose partitions
are revoked fences nobody."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.support.log_in_memory import Feed, Group

from frameledger.record import Record
from frameledger_services import failpoints
from frameledger_services.event_log.consumer import TopicPartition
from frameledger_services.projector import group_member, instance_id, takeover, topic_identity
from frameledger_services.projector.crashes import Crashes
from frameledger_services.projector.instance_id import Instance
from frameledger_services.projector.ownership import OwnedPartition, ProjectorFencedError, ProjectorTopics
from frameledger_services.projector.takeover import TakenOver
from frameledger_services.store import outbox

TOPIC = "llm.frames"
TOPICS = ProjectorTopics(frames=TOPIC, dead_letters="llm.frames.dlq", effects={}, partitions=2)
RECORDS = [
    Record(TOPIC, partition, offset, b"ctx", b"{}", timestamp_ms=0)
    for partition in (0, 1)
    for offset in range(3)
]


class FencedBatches:
    """Each batch meets another owner."""

    async def store(self, records, owned, positions):
        raise ProjectorFencedError(set(positions))

    def is_isolated(self, partition):
        return False

    def forget(self, partition):
        """Nothing is known of any."""


def test_a_fence_in_the_first_batch_of_a_fetch_takes_the_others_back_too(monkeypatch):
    feed, relay = Feed(RECORDS), SimpleNamespace(enqueue=None)
    projector = group_member.GroupMember(
        Group(TOPIC, 2), feed, None, relay, None, None, TOPICS, failpoints.none, Instance("here")
    )
    monkeypatch.setattr(projector, "_isolation", FencedBatches())
    for number in (0, 1):
        projector._owned[number] = OwnedPartition(number, epoch=1, next_offset=0)
        feed.follow(number, 0)
    monkeypatch.setattr(group_member, "MAX_BATCH_BYTES", 1)  # each record is a batch

    async def fenced_while_more_waits():
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(projector._prefetch.receive(feed.answer()))
            await projector._prefetch.until_ready()
            look = projector._prefetch.read(1)
            # What comes by now is of no use either.
            feed.follow(0, 0)
            again = tasks.create_task(projector._prefetch.receive(feed.answer()))
            await projector._prefetch.until_ready()
            await projector._store(look)
            assert projector._prefetch.read(100).records == []
            await asyncio.wait([receiving, again])

    asyncio.run(fenced_while_more_waits())

    # What was read of both is dropped, so both are read again from where the database says.
    assert projector._owned == {}
    assert projector._to_take_over == {0, 1}
    assert feed.answer() == []


class Partitions:
    """The rows of two partitions. To take one over begins when it is asked for, and ends when it may."""

    def __init__(self):
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.epochs = {0: 0, 1: 0}

    async def take_over(self, connection, log, topic, partition, owner):
        self.began.set()
        await self.may_end.wait()
        self.epochs[partition] += 1
        return TakenOver(OwnedPartition(partition, self.epochs[partition], 0), Crashes())


async def nothing(*_):
    return []


async def no_difference(*_):
    return None


@pytest.mark.regression("fault 41")
def test_partitions_that_are_revoked_while_they_are_taken_over_are_not_taken_from_their_next_owner(
    monkeypatch,
):
    feed, relay, rows = Feed(RECORDS), SimpleNamespace(enqueue_pages=list), Partitions()
    places = [TopicPartition(TOPIC, number) for number in (0, 1)]
    monkeypatch.setattr(takeover, "take_over", rows.take_over)
    monkeypatch.setattr(instance_id, "check", nothing)
    monkeypatch.setattr(topic_identity, "difference", no_difference)
    monkeypatch.setattr(outbox, "left_behind", nothing)

    async def run():
        projector = group_member.GroupMember(
            Group(TOPIC, 2), feed, None, relay, None, None, TOPICS, failpoints.none, Instance("here")
        )
        await projector.on_partitions_assigned(places)
        async with asyncio.TaskGroup() as tasks:
            taking_over = tasks.create_task(projector._take_over_assigned())
            await rows.began.wait()
            revoking = tasks.create_task(projector.on_partitions_revoked(places))
            # It either waits for what has begun, or is over by now.
            await asyncio.wait([revoking], timeout=0)
            rows.may_end.set()
            await revoking
            seen = dict(rows.epochs)
            await taking_over
        # From here on the next owner has them, whose epoch no other one follows.
        assert (rows.epochs, projector._owned) == (seen, {})

    asyncio.run(run())
