"""A partition without a leader keeps its own rows of the outbox back, and no others.

The producer here acknowledges as `Producer` does: rows whose partition has a leader, and then it raises.
"""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest
from tests.bounds import IN_PROCESS
from tests.support.relay_database import Database
from tests.support.turns import turns

from frameledger.partition import partition_for
from frameledger.record import LogPosition
from frameledger_services import supervision
from frameledger_services.event_log import publish_errors
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.publish_errors import RecordRefusedError, TooLargeError
from frameledger_services.projector import destination
from frameledger_services.projector.relay import Relay
from frameledger_services.projector.row_sender import RowSender, publish_committed
from frameledger_services.projector.stalled import PartlySentError
from frameledger_services.store import dead_letters, outbox
from frameledger_services.store.outbox import OutboxRow

PARTITIONS = 4
TOO_LARGE, FORBIDDEN = b"too large", b"forbidden"
KEYS: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
for _number in range(100):
    KEYS[partition_for(b"c%d" % _number, PARTITIONS)].append(b"c%d" % _number)


def row(number, partition, value=b"{}", source=0):
    key = KEYS[partition][number % 3]
    return OutboxRow("frames", source, 0, number, 0, "effect", "runs", key.decode(), key, value, ())


def numbers(rows):
    return [one.offset for one in rows]


def _number_of(record):
    return int(dict(record.headers)["number"])


async def nothing(_):
    pass


class Cluster:
    """A topic whose partitions lose leaders, the outbox, and what is written to the one and deleted from the other."""

    def __init__(self, monkeypatch):
        self.leaderless = set()
        self.is_away = False
        self.rows = []
        self.written = []
        self.too_large = []
        self.attempts = 0
        self.meanwhile = []
        self.while_read = self.while_sent = nothing
        self.draw = None
        self.forbids = True
        self.reads = 0
        self.largest = 0
        self._changed = asyncio.Event()
        # A connection runs one statement after the other.
        self._connection = asyncio.Lock()
        monkeypatch.setattr(outbox, "PAGE_ROWS", 5)
        monkeypatch.setattr(outbox, "read", self._read)
        monkeypatch.setattr(outbox, "delete", self._delete)
        monkeypatch.setattr(dead_letters, "keep_unsendable", self._keep)
        monkeypatch.setattr(supervision, "SHORTEST_PAUSE", 0.001)
        monkeypatch.setattr(supervision, "LONGEST_PAUSE", 0.002)

    async def _pause(self):
        """A server takes its time: any, if it is drawn."""
        await turns(1 if self.draw is None else self.draw.randrange(6))

    async def publish(self, topic, records, *, within):
        await self._pause()
        try:
            return await self._publish(topic, records, within)
        finally:
            # One test looks at what is in memory right behind an attempt.
            if self.draw is not None:
                await self._pause()

    async def _publish(self, topic, records, within):
        self.attempts += 1
        self._changed.set()
        if self.meanwhile:
            self.meanwhile.pop(0)()
        if self.is_away:
            raise BrokerError("no broker answers")
        await self.while_sent([_number_of(one) for one in records])
        if any(one.value == TOO_LARGE for one in records):
            raise TooLargeError("too large", [None] * len(records))
        refused: set[int] = set()
        places = [self._written(one, refused) for one in records]
        if refused:
            raise RecordRefusedError("not allowed", places)
        if None in places:
            raise publish_errors.unacknowledged(
                topic, places, within, None, "No broker leads it.", PARTITIONS
            )
        return places

    def _written(self, record, refused):
        """`refused` has the partitions of earlier records that the topic refuses: none overtakes these."""
        partition = partition_for(record.key, PARTITIONS)
        if self.forbids and record.value == FORBIDDEN:
            refused.add(partition)
        if partition in self.leaderless or partition in refused:
            return None
        self.written.append((record.key, _number_of(record)))
        return LogPosition("runs", partition, len(self.written))

    async def _read(self, _, page):
        async with self._connection:
            await self._pause()
            self.reads += 1
            found = [
                one
                for one in sorted(self.rows, key=lambda one: one.place)
                if one.partition == page.partition and page.first <= one.place[2:] <= page.last
            ]
            self.largest = max(self.largest, len(found))
            await self.while_read(numbers(found))
            # On the way from the database to us.
            await self._pause()
            return found, []

    async def _delete(self, _, places):
        async with self._connection:
            await self._pause()
            assert set(places) <= {one.place for one in self.rows}
            self.rows = [one for one in self.rows if one.place not in set(places)]
            self._changed.set()
            await self._pause()

    async def _keep(self, _, rows):
        async with self._connection:
            await self._pause()
            self.too_large += numbers(rows)
            await self._pause()

    def commit(self, rows):
        """The rows as a batch has them, and as they are in the table from then on."""
        for one in rows:
            one.headers = (("number", str(one.offset).encode()),)
        self.rows += rows
        return rows

    async def until(self, is_so):
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def until_left(self, *rows):
        await self.until(lambda: sorted(numbers(self.rows)) == sorted(rows))

    async def until_tried(self, times):
        """Whatever is kept back is tried again so often."""
        at = self.attempts + times
        await self.until(lambda: self.attempts >= at)

    @property
    def numbers(self):
        return [number for _, number in self.written]

    def check(self):
        """Each row was written once, and those of a key in their order."""
        for key in {key for key, _ in self.written}:
            of_key = [number for one, number in self.written if one == key]
            assert of_key == sorted(set(of_key))


@pytest.fixture
def cluster(monkeypatch):
    return Cluster(monkeypatch)


@asynccontextmanager
async def relaying(cluster):
    relay = Relay(Database(), RowSender(cluster), nothing)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(IN_PROCESS):
        yield relay
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


def mixed(first, count, source=0):
    """Rows of all partitions, in turn."""
    return [row(number, number % PARTITIONS, source=source) for number in range(first, first + count)]


def of_partitions(rows, *partitions):
    return [one.offset for one in rows if one.offset % PARTITIONS in partitions]


def test_where_every_partition_has_a_leader_all_rows_are_sent_once_and_in_their_order(cluster):
    async def life():
        async with relaying(cluster) as relay:
            left = cluster.commit(mixed(0, 12))
            pages = outbox.OutboxPages()
            for one in left:
                pages.add(one)
            relay.enqueue_pages(pages)
            relay.enqueue(cluster.commit(mixed(12, 8)))
            await relay.until_drained()
            assert cluster.rows == []
            relay.enqueue(cluster.commit(mixed(20, 4)))
            await cluster.until_left()
            assert cluster.numbers == list(range(24))
            assert cluster.reads == 4

    asyncio.run(life())


@pytest.mark.regression("fault 109")
@pytest.mark.parametrize("are_left_behind", [False, True], ids=["of a batch", "of a former owner"])
def test_rows_behind_one_whose_partition_has_no_leader_are_sent_and_it_is_sent_when_that_is_back(
    cluster, are_left_behind
):
    """Also while more comes for every partition. No row is written twice."""

    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            rows = cluster.commit(mixed(0, 40))
            if are_left_behind:
                pages = outbox.OutboxPages()
                for one in rows:
                    pages.add(one)
                relay.enqueue_pages(pages)
            else:
                relay.enqueue(rows)
            await cluster.until_left(*of_partitions(rows, 1))
            for first in range(40, 80, 10):
                rows += (more := cluster.commit(mixed(first, 10)))
                relay.enqueue(more)
                await cluster.until_left(*of_partitions(rows, 1))
            await cluster.until_tried(3)
            assert sorted(cluster.numbers) == of_partitions(rows, 0, 2, 3)
            cluster.leaderless.clear()
            await cluster.until_left()
            assert cluster.numbers[-20:] == of_partitions(rows, 1)
            relay.enqueue(cluster.commit(mixed(80, 4)))
            await cluster.until_left()
            cluster.check()

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_a_row_that_came_while_its_partition_was_waited_for_does_not_overtake_what_was_waited_for(
    cluster,
):
    """Though the leader is back right afterwards."""

    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            later = row(13, 1)
            cluster.meanwhile = [lambda: relay.enqueue(cluster.commit([later])), cluster.leaderless.clear]
            relay.enqueue(cluster.commit([row(1, 1)]))
            await cluster.until_left()
            assert cluster.written == [(later.key, 1), (later.key, 13)]

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_a_partition_whose_leader_is_back_does_not_wait_for_one_that_has_none(cluster):
    async def life():
        cluster.leaderless = {1, 2}
        async with relaying(cluster) as relay:
            rows = cluster.commit(mixed(0, 80))
            relay.enqueue(rows)
            await cluster.until_left(*of_partitions(rows, 1, 2))
            cluster.leaderless = {2}
            await cluster.until_left(*of_partitions(rows, 2))
            # It is sent from memory again: nothing has to be read for it, whatever else is kept back.
            relay.enqueue(cluster.commit([row(81, 1)]))
            await cluster.until_left(*of_partitions(rows, 2))
            cluster.leaderless = set()
            await cluster.until_left()
            cluster.check()

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_rows_that_are_kept_back_are_known_by_their_places_and_few_of_them_are_read(cluster):
    """A pass over them asks once for a partition that has no leader still."""

    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            relay.enqueue(cluster.commit([row(1, 1)]))
            await cluster.until_tried(1)
            rows = [row(number, 1) for number in range(2, 300)]
            relay.enqueue(cluster.commit(rows))
            assert relay._destinations["runs"]._waiting == []
            await cluster.until_tried(2)
            reads, attempts = cluster.reads, cluster.attempts
            await cluster.until_tried(3)
            assert cluster.reads - reads <= cluster.attempts - attempts + 1
            cluster.leaderless.clear()
            await cluster.until_left()
            assert cluster.largest <= outbox.PAGE_ROWS
            assert cluster.numbers == list(range(1, 300))

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_a_row_that_is_too_large_is_kept_as_a_dead_letter_beside_one_whose_partition_has_no_leader(
    cluster,
):
    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            rows = [row(0, 0), row(1, 1), row(2, 2, TOO_LARGE), row(3, 3), row(4, 1), row(5, 1, TOO_LARGE)]
            relay.enqueue(cluster.commit(rows))
            await cluster.until_left(1, 4, 5)
            assert (cluster.numbers, cluster.too_large) == ([0, 3], [2])
            cluster.leaderless.clear()
            await cluster.until_left()
            assert (cluster.numbers, cluster.too_large) == ([0, 3, 1, 4], [2, 5])

    asyncio.run(life())


@pytest.mark.regression("fault 136")
def test_a_row_of_a_command_that_is_too_large_is_kept_as_a_dead_letter(cluster):
    """As of `unpark` and `rebuild`, which publish what they requested."""

    async def life():
        rows = cluster.commit([row(0, 0), row(1, 1, TOO_LARGE), row(2, 2)])
        assert await publish_committed(None, rows, RowSender(cluster)) is None
        assert (cluster.numbers, cluster.too_large, cluster.rows) == ([0, 2], [1], [])

    asyncio.run(life())


@pytest.mark.regression("fault 109")
@pytest.mark.parametrize("stalls", [False, True], ids=["before a partition stalls", "while one is stalled"])
def test_a_topic_that_refuses_a_row_has_the_others_wait_and_nothing_is_sent_twice(cluster, stalls):
    """As it does without a stalled partition: what it may not be sent needs an operator."""

    async def life():
        async with relaying(cluster) as relay:
            if stalls:
                cluster.leaderless = {1}
                relay.enqueue(cluster.commit([row(1, 1)]))
                await cluster.until_tried(2)
            refused = row(6, 2, FORBIDDEN)
            relay.enqueue(cluster.commit([row(4, 0), row(5, 3), refused]))
            await cluster.until(lambda: len(cluster.written) == 2)
            await cluster.until_tried(4)
            relay.enqueue(cluster.commit([row(8, 0)]))
            left = {1, 6, 8} if stalls else {6, 8}
            await cluster.until(lambda: {6} <= set(numbers(cluster.rows)) <= left)
            await relay.until_drained()
            refused.value = b"{}"
            cluster.leaderless.clear()
            await cluster.until_left()
            cluster.check()

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_what_waits_for_a_leader_waits_on_while_no_broker_answers(cluster):
    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            rows = cluster.commit(mixed(0, 40))
            relay.enqueue(rows)
            await cluster.until_left(*of_partitions(rows, 1))
            cluster.is_away = True
            await cluster.until_tried(3)
            relay.enqueue(cluster.commit(mixed(40, 8)))
            await cluster.until_tried(3)
            cluster.is_away = False
            cluster.leaderless = {2}
            await cluster.until_left(42, 46)
            cluster.leaderless.clear()
            await cluster.until_left()
            cluster.check()

    asyncio.run(life())


@pytest.mark.regression("fault 314")
def test_what_is_acknowledged_while_it_is_read_is_not_sent_again(cluster):
    """A page of what was refused spans rows of a stalled partition, which may be sent while it is being read."""

    is_sent, is_read = asyncio.Event(), asyncio.Event()

    async def until_it_is_read(sent):
        if 9 in sent:
            is_sent.set()
            await is_read.wait()
        elif 8 in sent and not is_sent.is_set():
            cluster.leaderless.clear()
            raise BrokerError("no broker answers")

    async def until_it_is_acknowledged(found):
        if is_sent.is_set() and {8, 9} <= set(found):
            is_read.set()
            while 9 not in cluster.numbers:
                await turns(1)
            await turns()

    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            relay.enqueue(cluster.commit(mixed(0, 8)))
            await cluster.until_left(1, 5)
            cluster.while_sent, cluster.while_read = until_it_is_read, until_it_is_acknowledged
            relay.enqueue(cluster.commit(mixed(8, 8)))
            await cluster.until_left()
            cluster.check()

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_a_projector_that_ends_leaves_rows_without_a_leader_to_the_next_owner(cluster):
    async def life():
        cluster.leaderless = {1}
        async with relaying(cluster) as relay:
            rows = cluster.commit(mixed(0, 12))
            relay.enqueue(rows)
            await cluster.until_left(1, 5, 9)
            relay.enqueue(cluster.commit([row(13, 1)]))
            await relay.until_drained()
            assert sorted(numbers(cluster.rows)) == [1, 5, 9, 13]

    asyncio.run(life())


@pytest.mark.regression("fault 109")
@pytest.mark.parametrize("seed", range(40))
def test_whatever_leaders_go_and_come_each_row_is_sent_once_and_those_of_a_key_in_their_order(
    cluster, monkeypatch, seed
):
    """Rows of three partitions of frames, in batches and in pages, with little room in memory."""

    async def life():
        draw = cluster.draw = Random(seed)
        size = row(100, 0).size
        monkeypatch.setattr(destination, "PAGE_BYTES", 4 * size)
        committed = 0
        async with relaying(cluster) as relay:
            for _ in range(60):
                cluster.leaderless = set(draw.sample(range(PARTITIONS), draw.choice([0, 0, 1, 2, 4])))
                cluster.is_away, cluster.forbids = draw.random() < 0.1, draw.random() < 0.3
                rows = []
                for _ in range(draw.randrange(8)):
                    source = draw.randrange(3)
                    # A key is of one partition of frames.
                    key = KEYS[draw.randrange(PARTITIONS)][source]
                    value = draw.choice([b"{}"] * 16 + [TOO_LARGE, FORBIDDEN])
                    rows.append(
                        OutboxRow("frames", source, 0, committed, 0, "effect", "runs", None, key, value, ())
                    )
                    committed += 1
                cluster.commit(rows)
                if draw.random() < 0.3:
                    pages = outbox.OutboxPages()
                    for one in rows:
                        pages.add(one)
                    relay.enqueue_pages(pages)
                else:
                    relay.enqueue(rows)
                await turns(draw.randrange(6))
                settled = len(cluster.written) + len(set(cluster.too_large))
                if draw.random() < 0.3 and settled < committed:
                    await cluster.until_tried(1)
            cluster.leaderless, cluster.is_away, cluster.forbids = set(), False, False
            await cluster.until_left()
            assert sorted([*cluster.numbers, *set(cluster.too_large)]) == list(range(committed))
            cluster.check()

    asyncio.run(life())


@pytest.mark.regression("fault 109")
def test_of_what_is_sent_one_by_one_no_row_overtakes_another_of_its_partition(cluster):
    """Where a row is too large, and before anybody knows the topic's partitions."""

    async def scenario():
        rows = cluster.commit([row(1, 1), row(2, 2, TOO_LARGE), row(5, 1), row(0, 0)])
        cluster.leaderless = {1}
        with pytest.raises(PartlySentError, match="No broker leads it") as partly:
            await RowSender(cluster)(rows)
        assert (numbers(partly.value.unsent), numbers(partly.value.too_large)) == ([1, 5], [2])
        assert (partly.value.partitions, cluster.numbers) == (PARTITIONS, [0])
        cluster.is_away = True
        with pytest.raises(BrokerError):
            await RowSender(cluster)(rows)

    asyncio.run(scenario())
