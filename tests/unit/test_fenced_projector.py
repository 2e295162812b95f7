"""A projector that is fenced in the middle of a batch skips none of the records that it read."""

import asyncio
from types import SimpleNamespace

from tests.support.log_in_memory import Feed, Group

from frameledger.record import Record
from frameledger_services import failpoints
from frameledger_services.projector import group_member
from frameledger_services.projector.instance_id import Instance
from frameledger_services.projector.ownership import OwnedPartition, ProjectorFencedError, ProjectorTopics

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
