"""The contract of the projector's log, for Kafka and for the two logs in memory that replace it in tests.

Brokers in memory answer our feed as Kafka does; the log in memory replaces the feed. A test names the logs that cannot
pass it, and fails if one of them does.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition, errors
from tests.bounds import ON_SERVERS
from tests.support import log_in_memory
from tests.support.brokers_in_memory import ABORT, COMMIT, Brokers
from tests.support.feeds import TOPIC, Taking
from tests.support.topic_prefixes import topic_prefix

from frameledger.record import Record
from frameledger_services.event_log import broker
from frameledger_services.event_log.consumer import PARTITION_BYTES, consumer
from frameledger_services.event_log.feed import Feed
from frameledger_services.event_log.topics import TopicSpec
from frameledger_services.settings import Settings

PARTITIONS = 3


class InMemory:
    """The log in memory, and its feed."""

    def __init__(self, _):
        self.topic = TOPIC
        self._records = []

    async def __aenter__(self):
        self.feed = log_in_memory.Feed(self._records)
        return self

    async def __aexit__(self, *_):
        pass

    async def append(self, partition, *values, transaction=None):
        assert transaction is None, "the log in memory has no transactions"
        offset = sum(one.partition == partition for one in self._records)
        for number, value in enumerate(values, offset):
            self._records.append(Record(TOPIC, partition, number, b"key", value, timestamp_ms=1_000))

    @asynccontextmanager
    async def answer(self):
        yield [one for one in self.feed.answer() if one.offset < one.end]


class OverClient:
    """Our feed."""

    feed: Feed

    @asynccontextmanager
    async def answer(self):
        """Returns the first answer that is not empty."""
        taking = Taking(self.feed)
        taking.halted = True
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.feed.run(taking, taking.revalidate))
            await taking.until(lambda: taking.answers)
            while not taking.fetched:
                seen = taking.answers
                taking.go_on()
                await taking.until(lambda seen=seen: taking.answers > seen)
            yield taking.fetched
            task.cancel()


class OverBrokers(OverClient):
    """Our feed over brokers in memory."""

    def __init__(self, _):
        self.topic = TOPIC

    async def __aenter__(self):
        self._brokers = Brokers(TOPIC, dict.fromkeys(range(PARTITIONS), 1))
        self.feed = Feed(self._brokers, TOPIC)
        return self

    async def __aexit__(self, *_):
        pass

    async def append(self, partition, *values, transaction=None):
        self._brokers.append(partition, *values, producer=transaction)

    async def end(self, partition, transaction, how):
        self._brokers.end(partition, transaction, how)


class OverKafka(OverClient):
    """Our feed over Kafka, in a topic of its own."""

    def __init__(self, request):
        self._servers = request.getfixturevalue("kafka").bootstrap_servers
        self.topic = f"{topic_prefix()}contract"
        self._producers = {}

    async def __aenter__(self):
        settings = Settings(kafka_bootstrap_servers=self._servers)
        async with broker.connect(settings) as connection:
            await connection.create_missing(
                [TopicSpec(self.topic, PARTITIONS, 1, {"max.message.bytes": str(1 << 22)})]
            )
        async with AsyncExitStack() as stack:
            reader = consumer(settings)
            await reader.start()
            stack.push_async_callback(reader.stop)
            partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            reader.assign(partitions)
            await reader.end_offsets(partitions)
            self.feed = Feed(reader, self.topic)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_):
        await self._stack.aclose()

    async def append(self, partition, *values, transaction=None):
        producer = await self._producer(transaction)
        batch = producer.create_batch()
        for value in values:
            batch.append(key=b"key", value=value, timestamp=1_000)
        await (await producer.send_batch(batch, self.topic, partition=partition))

    async def end(self, partition, transaction, how):
        producer = self._producers.pop(transaction)
        await (producer.commit_transaction() if how == COMMIT else producer.abort_transaction())

    async def _producer(self, transaction):
        if transaction not in self._producers:
            name = None if transaction is None else f"{self.topic}-{transaction}"
            producer = AIOKafkaProducer(
                bootstrap_servers=self._servers, transactional_id=name, max_batch_size=1 << 22
            )
            await producer.start()
            self._stack.push_async_callback(producer.stop)
            self._producers[transaction] = producer
            if transaction is not None:
                await producer.begin_transaction()
        return self._producers[transaction]


LOGS = {"log_in_memory": InMemory, "brokers_in_memory": OverBrokers, "kafka": OverKafka}


def contract(**cannot):
    """Marks a test that each log has to pass, except the named ones, which cannot for the given reason."""

    def decorate(test):
        def mark(name):
            reason = cannot.get(name)
            return [] if reason is None else [pytest.mark.xfail(strict=True, reason=reason)]

        @pytest.mark.parametrize(
            "kind", [pytest.param(kind, marks=mark(name), id=name) for name, kind in LOGS.items()]
        )
        def run(kind, request):
            async def scenario():
                async with kind(request) as log:
                    await test(log)

            asyncio.run(scenario())

        run.__name__ = test.__name__
        return run

    return decorate


async def read(log, count):
    """Returns the next records of all followed partitions, by partition: at least `count` in total."""
    found: dict[int, list[Record]] = {}
    async with asyncio.timeout(ON_SERVERS):
        while sum(map(len, found.values())) < count:
            async with log.answer() as fetched:
                for one in fetched:
                    found.setdefault(one.partition, []).extend(one.read(100) or ())
    return {partition: [(one.offset, one.value) for one in records] for partition, records in found.items()}


@contract()
async def test_an_answer_has_what_lies_in_a_partition_from_the_offset_on_and_where_it_ends(log):
    await log.append(0, b"a", b"b", b"c")
    log.feed.follow(0, 1)
    async with log.answer() as (one,):
        records = one.read(100)
        assert (one.partition, one.offset, one.end) == (0, 3, 3)
    assert [(one.offset, one.value) for one in records] == [(1, b"b"), (2, b"c")]
    assert records[0] == Record(log.topic, 0, 1, b"key", b"b", timestamp_ms=1_000)


@contract()
async def test_partitions_that_are_followed_are_read_and_others_are_not(log):
    for partition, value in enumerate((b"a", b"b", b"c")):
        await log.append(partition, value)
    log.feed.follow(0, 0)
    log.feed.follow(2, 0)
    assert await read(log, 2) == {0: [(0, b"a")], 2: [(0, b"c")]}


@contract()
async def test_an_answer_is_read_in_pieces_and_has_nothing_more_at_its_end(log):
    await log.append(0, b"a", b"b", b"c")
    log.feed.follow(0, 0)
    async with log.answer() as (one,):
        pieces = [([record.value for record in one.read(2)], one.offset) for _ in range(4)]
    assert pieces == [([b"a", b"b"], 2), ([b"c"], 3), ([], 3), ([], 3)]


@contract()
async def test_what_was_read_is_not_answered_again_and_what_comes_later_is(log):
    await log.append(0, b"a", b"b", b"c")
    log.feed.follow(0, 0)
    async with log.answer() as (one,):
        one.read(2)
    assert await read(log, 1) == {0: [(2, b"c")]}
    await log.append(0, b"d")
    assert await read(log, 1) == {0: [(3, b"d")]}


@contract()
async def test_a_partition_that_was_left_gives_nothing_more_of_an_answer_that_is_half_read(log):
    await log.append(0, b"a", b"b", b"c")
    log.feed.follow(0, 0)
    async with log.answer() as (one,):
        assert len(one.read(1)) == 1
        log.feed.leave(0)
        log.feed.leave(0)
        assert one.read(100) is None


@contract()
async def test_a_partition_that_is_followed_anew_is_read_by_a_new_answer(log):
    await log.append(0, b"a", b"b", b"c")
    log.feed.follow(0, 0)
    async with log.answer() as (one,):
        one.read(1)
        log.feed.follow(0, 1)
        assert one.read(100) is None
    assert await read(log, 2) == {0: [(1, b"b"), (2, b"c")]}


@contract()
async def test_a_record_that_is_larger_than_a_fetch_of_its_partition_comes(log):
    large = bytes(3 * PARTITION_BYTES // 2)
    await log.append(0, b"a")
    await log.append(0, large)
    log.feed.follow(0, 0)
    assert await read(log, 2) == {0: [(0, b"a"), (1, large)]}


@contract(log_in_memory="it has no transactions")
async def test_only_what_was_committed_is_read_and_markers_are_passed(log):
    await log.append(0, b"a")
    await log.append(0, b"kept 1", transaction=7)
    await log.append(0, b"dropped 1", b"dropped 2", transaction=8)
    await log.append(0, b"b")
    log.feed.follow(0, 0)
    # Nothing that follows a transaction which has not ended.
    assert await read(log, 1) == {0: [(0, b"a")]}
    await log.end(0, 8, ABORT)
    await log.end(0, 7, COMMIT)
    await log.append(0, b"c")
    # Kafka may write the markers before or after the last record.
    assert [value for _, value in (await read(log, 3))[0]] == [b"kept 1", b"b", b"c"]


@contract(log_in_memory="it has no transactions")
async def test_an_aborted_transaction_is_not_read_from_its_middle_either(log):
    await log.append(0, b"dropped 1", transaction=8)
    await log.append(0, b"dropped 2", b"dropped 3", transaction=8)
    await log.end(0, 8, ABORT)
    await log.append(0, b"a")
    log.feed.follow(0, 2)
    assert [value for _, value in (await read(log, 1))[0]] == [b"a"]


@contract(log_in_memory="it answers nothing for an offset that it does not have")
async def test_an_offset_that_the_log_does_not_have_is_an_error(log):
    await log.append(0, b"a")
    log.feed.follow(0, 5)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with log.answer():
            pass
    error = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, errors.OffsetOutOfRangeError)


@contract(
    log_in_memory="it knows only the partitions that have records",
    brokers_in_memory="they answer aiokafka's metadata requests only, not ours",
)
async def test_the_topic_is_described_with_all_its_partitions(log):
    await log.append(0, b"a")
    found = await log.feed.topic(0)
    assert (found.name, found.partitions) == (log.topic, PARTITIONS)
