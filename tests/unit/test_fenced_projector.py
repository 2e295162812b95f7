"""A projector that is fenced in the middle of a batch skips none of the records that it read, one whose partitions are
revoked fences nobody, and one partition without a leader holds up no other."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError, LeaderNotAvailableError, TopicAuthorizationFailedError
from tests.support.log_in_memory import Feed, Group
from tests.support.turns import turns

from frameledger.record import Record
from frameledger_services.event_log.consumer import TopicPartition
from frameledger_services.event_log.failover import NO_LEADER
from frameledger_services.event_log.log_probe import LogProbe
from frameledger_services.projector import (
    group_member,
    held_effects,
    instance_id,
    pending_takeovers,
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
    projector = member(feed, relay)
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
    assert projector._pending._partitions == {0, 1}
    assert feed.answer() == []


class StoredBatches(FencedBatches):
    """Each batch is stored."""

    async def store(self, records, owned, positions):
        return []

    def end(self, positions):
        """None is isolated."""


@pytest.mark.regression("fault 119")
def test_the_conversations_of_the_first_batch_of_a_partition_are_announced_too(monkeypatch):
    """Its records are not decoded before the batch is, whose owner may crash by them."""
    keys = (b"ctx", b"another", b"no \xff conversation", None)
    feed = Feed([Record(TOPIC, 0, offset, key, b"{}", timestamp_ms=0) for offset, key in enumerate(keys)])
    announced = []

    def notify(offsets, context_ids, **_):
        announced.append((offsets, context_ids))

    async def run():
        projector = member(feed, SimpleNamespace(enqueue=list))
        monkeypatch.setattr(projector, "_isolation", StoredBatches())
        monkeypatch.setattr(projector, "_notifier", SimpleNamespace(notify=notify))
        projector._owned[0] = OwnedPartition(0, epoch=1, next_offset=0)
        feed.follow(0, 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(projector._prefetch.receive(feed.answer()))
            await projector._prefetch.until_ready()
            await projector._store(projector._prefetch.read(100))

    asyncio.run(run())
    assert announced == [({0: len(keys)}, {"ctx", "another"})]


class Partitions:
    """The rows of two partitions. To assign one begins when it is asked for, and ends when it may."""

    def __init__(self):
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.checking, self.may_check = asyncio.Event(), asyncio.Event()
        self.epochs = {0: 0, 1: 0}
        self.away: dict[int, Exception] = {}

    async def assign(self, connection, topic, partition, owner):
        self.began.set()
        await self.may_end.wait()
        self.epochs[partition] += 1
        return partition

    async def check_log(self, connection, log, topic, partition):
        epoch = self.epochs[partition]
        self.checking.set()
        await self.may_check.wait()
        if partition in self.away:
            raise self.away[partition]
        return TakenOver(OwnedPartition(partition, epoch, 0), Crashes())


@pytest.fixture
def rows(monkeypatch):
    found = Partitions()
    monkeypatch.setattr(takeover, "assign", found.assign)
    monkeypatch.setattr(takeover, "check_log", found.check_log)
    monkeypatch.setattr(instance_id, "check", nothing)
    monkeypatch.setattr(topic_identity, "difference", no_difference)
    monkeypatch.setattr(outbox, "left_behind", nothing)
    return found


class Log:
    """The logs of partitions, of which some have a leader that does not answer: it is waited for, as long as may be."""

    def __init__(self, silent=()):
        self.silent = set(silent)
        self.waited = []

    async def ends(self, partitions, until):
        found = {one: 0 for one in partitions if one not in self.silent}
        if len(found) < len(partitions):
            self.waited.append(until - asyncio.get_running_loop().time())
        if not found:
            raise TimeoutError
        return found


def member(feed=None, relay=None, log=None):
    """A member of a group of two partitions, without a database."""
    return group_member.GroupMember(
        Group(TOPIC, 2),
        feed or Feed(RECORDS),
        Commits(None, TOPICS, HeadCache()),
        relay or SimpleNamespace(enqueue_pages=list),
        None,
        log or Log(),
        Instance("here"),
    )


PLACES = [TopicPartition(TOPIC, number) for number in (0, 1)]


async def nothing(*_):
    return []


async def no_difference(*_):
    return None


@pytest.mark.regression("fault 41")
def test_partitions_that_are_revoked_while_they_are_taken_over_are_not_taken_from_their_next_owner(rows):
    async def run():
        rows.may_check.set()
        projector = member()
        await projector.on_partitions_assigned(PLACES)
        async with asyncio.TaskGroup() as tasks:
            taking_over = tasks.create_task(projector._take_over_assigned())
            await rows.began.wait()
            revoking = tasks.create_task(projector.on_partitions_revoked(PLACES))
            # It either waits for what has begun, or is over by now.
            await asyncio.wait([revoking], timeout=0)
            rows.may_end.set()
            await revoking
            seen = dict(rows.epochs)
            await taking_over
        # From here on the next owner has them, whose epoch no other one follows.
        assert (rows.epochs, projector._owned) == (seen, {})

    asyncio.run(run())


@pytest.mark.regression("fault 41")
def test_a_partition_that_is_assigned_again_while_its_log_is_checked_is_taken_over_anew(rows):
    """Another member may have owned it in between."""

    async def run():
        rows.may_end.set()
        projector = member()
        await projector.on_partitions_assigned(PLACES)
        async with asyncio.TaskGroup() as tasks:
            taking_over = tasks.create_task(projector._take_over_assigned())
            await rows.checking.wait()
            await projector.on_partitions_revoked(PLACES)
            await projector.on_partitions_assigned(PLACES)
            rows.may_check.set()
            await taking_over
        await projector._take_over_assigned()
        assert projector._owned[0].epoch == rows.epochs[0] == 2

    asyncio.run(run())


@pytest.mark.regression("fault 320")
def test_a_partition_that_is_revoked_before_it_is_revalidated_is_left_to_its_next_owner(answering):
    """aiokafka counts it as assigned until the group has assigned all partitions anew."""

    async def run():
        projector = member()
        await projector.on_partitions_assigned(PLACES)
        await projector._take_over_assigned()
        seen = dict(answering.epochs)
        async with asyncio.TaskGroup() as tasks, projector._batch_lock:
            # While a batch is being stored, the group rebalances, and the answer of a broker that was away arrives.
            tasks.create_task(projector.on_partitions_revoked(PLACES))
            tasks.create_task(projector._revalidate({0: 0}))
            await turns()
        await projector._take_over_assigned()
        assert (answering.epochs, projector._owned) == (seen, {})

    asyncio.run(run())


@pytest.mark.regression("fault 320")
def test_a_partition_that_was_revoked_is_left_to_its_next_owner_that_fences_us(answering, monkeypatch):
    """By then its effects are being released."""
    releasing, may_release = asyncio.Event(), asyncio.Event()

    async def check_log(connection, log, topic, partition):
        return TakenOver(OwnedPartition(partition, answering.epochs[partition], 0, held_until=0), Crashes())

    async def release(connection, topics, owned):
        releasing.set()
        await may_release.wait()
        raise ProjectorFencedError({owned.partition})

    monkeypatch.setattr(takeover, "check_log", check_log)
    monkeypatch.setattr(held_effects, "release", release)

    async def run():
        projector = member()
        await projector.on_partitions_assigned(PLACES[:1])
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(projector._take_over_assigned())
            await releasing.wait()
            await projector.on_partitions_revoked(PLACES[:1])
            may_release.set()
        await projector._take_over_assigned()
        assert (answering.epochs, projector._owned) == ({0: 1, 1: 0}, {})

    asyncio.run(run())


@pytest.fixture
def answering(rows):
    rows.may_end.set()
    rows.may_check.set()
    return rows


@pytest.mark.regression("fault 107")
@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize("error", [LeaderNotAvailableError(), TimeoutError()], ids=["no leader", "no answer"])
def test_a_partition_whose_log_does_not_answer_holds_up_no_other(answering, monkeypatch, away, error):
    async def run():
        answering.away[away] = error
        projector = member()
        await projector.on_partitions_assigned(PLACES)
        await projector._take_over_assigned()
        assert set(projector._owned) == {0, 1} - {away}
        # Meanwhile the others are read.
        assert projector._pending.due() == []
        assert projector._pending._partitions == {away}
        monkeypatch.setattr(pending_takeovers, "LEADER_AGAIN_SECONDS", 0.0)
        projector._pending._not_before.clear()
        await projector._take_over_assigned()
        assert projector._pending.due() == [away]
        del answering.away[away]
        await projector._take_over_assigned()
        assert set(projector._owned) == {0, 1}
        assert projector._pending._partitions == set()

    asyncio.run(run())


@pytest.mark.regression("fault 107")
@pytest.mark.parametrize(
    "away",
    [
        # The broker itself is away: the projector begins anew, after a pause.
        {0: TimeoutError(), 1: LeaderNotAvailableError()},
        # This does not pass by itself.
        {1: TopicAuthorizationFailedError()},
    ],
)
def test_an_outage_and_what_is_no_outage_end_the_projector(answering, away):
    async def run():
        answering.away |= away
        projector = member()
        await projector.on_partitions_assigned(PLACES)
        with pytest.raises(type(away[1])):
            await projector._take_over_assigned()

    asyncio.run(run())


class CutOff(Feed):
    """Cannot reach the leaders of some partitions."""

    def __init__(self, unreachable):
        super().__init__(RECORDS)
        self._unreachable = unreachable

    async def topic(self, partition):
        if partition in self._unreachable:
            raise KafkaConnectionError
        return await super().topic(partition)


@pytest.mark.regression("fault 116")
@pytest.mark.parametrize("away", [0, 1])
def test_a_partition_whose_leader_cannot_be_reached_holds_up_no_other(answering, monkeypatch, away):
    """Its leader goes on as such, for all others."""
    monkeypatch.setattr(pending_takeovers, "LEADER_AGAIN_SECONDS", 0.0)

    async def run():
        log = Log({away})
        projector = member(CutOff(log.silent), log=log)
        await projector.on_partitions_assigned(PLACES)
        await projector._take_over_assigned()
        assert set(projector._owned) == {0, 1} - {away}
        # It is not waited for as long again, now that another one is to be stored.
        await projector._take_over_assigned()
        assert log.waited[1] <= pending_takeovers.ANSWER_SECONDS < log.waited[0]
        assert set(projector._owned) == {0, 1} - {away}
        log.silent.clear()
        await projector._take_over_assigned()
        assert set(projector._owned) == {0, 1}

    asyncio.run(run())


@pytest.mark.regression("fault 116")
def test_partitions_that_were_waited_for_are_tried_again_after_longer():
    async def run():
        loop = asyncio.get_running_loop()
        now = loop.time()
        vars(loop)["time"] = lambda: now
        pending = pending_takeovers.PendingTakeovers()
        for waited, again in ((0.0, 2.0), (1.0, 6.0), (60.0, 10.0)):
            pending.postpone([0], now - waited, "its leader does not answer")
            assert pending._not_before[0] == pytest.approx(now + again, abs=1e-6)

    asyncio.run(run())


@pytest.mark.regression("fault 107")
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_partition_without_a_leader_is_not_waited_for(comes_back):
    class Client:
        """aiokafka's, which would wait for the leader."""

        def __init__(self):
            self._client = self.cluster = self
            self.leader = NO_LEADER

        def leader_for_partition(self, place):
            return self.leader

        async def force_metadata_update(self):
            if comes_back:
                self.leader = 1

        async def beginning_offsets(self, places):
            assert self.leader == 1
            return dict.fromkeys(places, 3)

        async def end_offsets(self, places):
            return dict.fromkeys(places, 7)

    probe = LogProbe(Client(), TOPIC)
    if comes_back:
        assert asyncio.run(probe.offsets(0)) == (3, 7)
    else:
        with pytest.raises(LeaderNotAvailableError, match=f"{TOPIC}/0"):
            asyncio.run(probe.offsets(0))
