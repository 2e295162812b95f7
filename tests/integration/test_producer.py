"""Publishing to a real broker, with our producer and with librdkafka, and reading it back."""

import asyncio
import base64
import random
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import OffsetOutOfRangeError
from confluent_kafka import Producer as LibrdkafkaProducer
from tests.bounds import ON_SERVERS, scaled
from tests.support.logs import BadName, frames_topic, make, read, reading, send_raw
from tests.support.polling import look_again
from tests.support.turns import turns

from frameledger.partition import librdkafka_default, partition_for
from frameledger.record import MAX_VALUE_BYTES, LogPosition, Outgoing
from frameledger_services.event_log import broker, producer, sender
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import (
    RecordRefusedError,
    TooLargeError,
    UnacknowledgedError,
)
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import TopicDescription, TopicSpec
from frameledger_services.settings import Settings

KEYS = ["ctx-1", "Zürich ☂", "a", "x" * 255, *(f"conversation/{number}" for number in range(60))]


def record(key, value, *headers):
    return Outgoing(key.encode(), value, headers)


def publish(settings, records, topic=None):
    async def published():
        async with Producer(settings) as ours:
            return await ours.publish(topic or frames_topic(settings), records)

    return asyncio.run(published())


def read_back(settings, how_many, topic=None, **options):
    async def all_of_it():
        async with reading(settings, topic or frames_topic(settings), **options) as reader:
            return await read(reader, how_many)

    return asyncio.run(all_of_it())


def incompressible(size):
    """Returns text of this many bytes that hardly compresses: base64 carries six bits in eight."""
    return base64.b64encode(random.Random(size).randbytes(size * 3 // 4 + 3))[:size]


def test_a_record_comes_back_as_it_was_sent_with_the_time_of_the_broker(log):
    sent = record("ctx-1", b'{"type":"LLMRunFrame"}', ("ce_id", b"1"), ("null", None), ("ce_id", b"\xff"))
    (place,) = publish(log, [sent])
    (received,) = read_back(log, 1)
    assert (received.key, received.value, received.headers) == (sent.key, sent.value, sent.headers)
    assert LogPosition(received.topic, received.partition, received.offset) == place
    assert received.timestamp_ms > 1_700_000_000_000


def test_each_key_lies_where_it_belongs(log):
    places = publish(log, [record(key, b"1") for key in KEYS])
    assert [place.partition for place in places] == [
        partition_for(key.encode(), log.topic_partitions) for key in KEYS
    ]
    assert len({place.partition for place in places}) == log.topic_partitions


@pytest.mark.parametrize(
    ("options", "partition"),
    [({}, librdkafka_default), ({"partitioner": "murmur2_random"}, partition_for)],
    ids=["by default", "with murmur2_random"],
)
def test_librdkafka_puts_a_key_elsewhere_unless_told(log, options, partition):
    theirs = LibrdkafkaProducer({"bootstrap.servers": log.kafka_bootstrap_servers, **options})
    for key in KEYS:
        theirs.produce(frames_topic(log), key=key, value=b"1")
    assert theirs.flush(ON_SERVERS) == 0
    found = {received.key.decode(): received.partition for received in read_back(log, len(KEYS))}
    assert found == {key: partition(key.encode(), log.topic_partitions) for key in KEYS}


def test_what_is_given_in_order_lies_in_order_whoever_else_publishes(log):
    async def scenario():
        async with Producer(log) as ours:
            await asyncio.gather(
                *(
                    ours.publish(
                        frames_topic(log),
                        [record(key, b"%s %d" % (key.encode(), number)) for number in range(300)],
                    )
                    for key in KEYS[:10]
                )
            )

    asyncio.run(scenario())
    by_key: dict[str, list[bytes]] = {}
    for received in read_back(log, 3_000):
        by_key.setdefault(received.key.decode(), []).append(received.value)
    assert by_key == {key: [b"%s %d" % (key.encode(), number) for number in range(300)] for key in KEYS[:10]}


def test_the_largest_frame_there_can_be_is_taken_and_comes_back(log):
    largest = record("k" * 255, incompressible(MAX_VALUE_BYTES), ("ce_source", b"x" * 500))
    # Others are in the same partition and in all others, more than one fetch returns of a partition.
    others = [record(key, incompressible(300_000)) for key in KEYS[:20]]
    publish(log, [*others, largest, *others])
    received = read_back(log, 41)
    assert [one.value for one in received if one.key == largest.key] == [largest.value]


def test_more_than_may_be_under_way_at_once_is_published_all_the_same(log):
    large = [record(f"ctx-{number}", b"a" * MAX_VALUE_BYTES) for number in range(6)]
    assert sum(len(one.value) for one in large) > producer.BYTES_ON_THE_WAY
    assert len(publish(log, large)) == 6


async def make_topic(settings, name, largest):
    async with broker.connect(settings) as connection:
        await connection.create_missing([TopicSpec(name, 1, 1, {"max.message.bytes": str(largest)})])


@pytest.mark.regression("fault 11")
def test_a_record_that_the_topic_does_not_take_is_told_before_anything_is_sent(log_settings):
    topic = f"{log_settings.topic_prefix}small"

    async def scenario():
        await make_topic(log_settings, topic, 100_000)
        async with Producer(log_settings) as ours:
            too_large = [record("a", b"before"), record("a", incompressible(200_000)), record("a", b"after")]
            with pytest.raises(TooLargeError, match=r"max\.message\.bytes is 100000; nothing") as refused:
                await ours.publish(topic, too_large)
            # The compressed size counts: this record is accepted.
            await ours.publish(topic, [record("a", b"x" * 200_000), record("a", b"later")])
            return refused.value.places

    assert asyncio.run(scenario()) == (None, None, None)
    assert [len(received.value) for received in read_back(log_settings, 2, topic)] == [200_000, 5]


def test_a_limit_that_was_raised_since_is_noticed(log_settings):
    topic = f"{log_settings.topic_prefix}small"

    async def scenario():
        await make_topic(log_settings, topic, 100_000)
        admin = AIOKafkaAdminClient(bootstrap_servers=log_settings.kafka_bootstrap_servers)
        await admin.start()
        try:
            async with Producer(log_settings) as ours:
                with pytest.raises(TooLargeError):
                    await ours.publish(topic, [record("a", incompressible(200_000))])
                larger = {"max.message.bytes": "300000"}
                await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, larger)])
                async with broker.connect(log_settings) as connection:
                    while (await connection.describe([topic], configs=True))[
                        topic
                    ].max_message_bytes != 300_000:
                        await look_again()
                return await ours.publish(topic, [record("a", incompressible(200_000))])
        finally:
            await admin.close()

    assert len(asyncio.run(scenario())) == 1


@pytest.mark.regression("fault 11")
def test_what_stands_behind_a_record_that_the_broker_refuses_is_not_published(log_settings, monkeypatch):
    """A broker would accept any record as the first of a new producer in a partition; and aiokafka would reject every
    later record there. The topic's limit is unknown here, as without the permission to describe it."""
    topic = f"{log_settings.topic_prefix}small"
    monkeypatch.setattr(TopicDescription, "max_message_bytes", None)

    async def scenario():
        await make_topic(log_settings, topic, 1_048_588)
        async with Producer(log_settings) as ours:
            too_large = [record("a", incompressible(1_200_000)), record("a", b"after")]
            others = [
                ours.publish(topic, [record(f"other-{number}", b"1"), record(f"other-{number}", b"2")])
                for number in range(20)
            ]
            results = await asyncio.gather(ours.publish(topic, too_large), *others, return_exceptions=True)
            await ours.publish(topic, [record("a", b"later")])
            return results

    refused, *fine = asyncio.run(scenario())
    assert isinstance(refused, RecordRefusedError)
    assert "max.message.bytes" in str(refused)
    assert refused.places == (None, None)
    assert [len(places) for places in fine] == [2] * 20

    values: dict[str, list[bytes]] = {}
    for received in read_back(log_settings, 41, topic):
        values.setdefault(received.key.decode(), []).append(received.value)
    assert values.pop("a") == [b"later"]
    assert set(map(tuple, values.values())) == {(b"1", b"2")}


@pytest.mark.regression("fault 6")
def test_a_partition_without_a_leader_is_waited_for(log, monkeypatch):
    """Also for longer than aiokafka waits, which then fails its records."""
    usual = sender.REQUEST_SECONDS
    monkeypatch.setattr(sender, "REQUEST_SECONDS", 0.5)
    failed = asyncio.Event()

    class Cluster(ClusterMetadata):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
        def leader_for_partition(self, partition):
            return super().leader_for_partition(partition) if failed.is_set() else -1

    class Watched(sender.Sender):
        async def stop(self):
            # The sender is replaced after a record failed. The next one has the usual timeout.
            failed.set()
            monkeypatch.setattr(sender, "REQUEST_SECONDS", usual)
            await super().stop()

    monkeypatch.setattr("aiokafka.client.ClusterMetadata", Cluster)
    monkeypatch.setattr(producer, "Sender", Watched)
    assert len(publish(log, [record("a", b"1"), record("a", b"2")])) == 2
    assert failed.is_set()
    assert [received.value for received in read_back(log, 2)] == [b"1", b"2"]


def test_a_record_beyond_all_limits_is_refused_before_anything_is_sent(log):
    beyond = record("a", bytes(producer.BYTES_ON_THE_WAY + 1))
    with pytest.raises(RecordRefusedError, match="nothing was published"):
        publish(log, [record("a", b"1"), beyond])
    publish(log, [record("a", b"2")])
    assert [received.value for received in read_back(log, 1)] == [b"2"]


def test_who_does_not_wait_long_enough_is_told_and_may_go_on(log):
    async def scenario():
        async with Producer(log) as ours:
            with pytest.raises(UnacknowledgedError, match=r"1 of 1 records .* within 1e-09 s") as late:
                await ours.publish(frames_topic(log), [record("a", b"1")], within=1e-9)
            assert late.value.places == (None,)
            return await ours.publish(frames_topic(log), [record("a", b"2")])

    assert len(asyncio.run(scenario())) == 1


@pytest.mark.regression("fault 118")
def test_a_sender_that_is_replaced_is_stopped_also_if_its_publisher_is_cancelled(log_settings, monkeypatch):
    """As at a deadline. Otherwise its task would run until the process ends, and might send its records later."""
    topic = f"{log_settings.topic_prefix}small"
    monkeypatch.setattr(TopicDescription, "max_message_bytes", None)
    began, may_end, clients = asyncio.Event(), asyncio.Event(), []

    class Slow(sender.Sender):
        async def stop(self):
            clients.append(self.client)
            began.set()
            await may_end.wait()
            await super().stop()

    monkeypatch.setattr(producer, "Sender", Slow)

    async def scenario():
        await make_topic(log_settings, topic, 100_000)
        async with Producer(log_settings) as ours:
            refused = asyncio.create_task(ours.publish(topic, [record("a", incompressible(200_000))]))
            await began.wait()
            refused.cancel()
            with suppress(asyncio.CancelledError):
                await refused
            may_end.set()
            # The next call uses a new sender.
            await ours.publish(topic, [record("a", b"later")])
        return [client._sync_task for client in clients]

    assert asyncio.run(scenario()) == [None, None]


def test_nothing_is_published_to_a_topic_that_is_not_there(log_settings):
    with pytest.raises(BrokerError, match="frameledger topics --create"):
        publish(log_settings, [record("a", b"1")])


def test_a_topic_that_is_not_there_for_a_moment_is_waited_for(log_settings, monkeypatch):
    """Like a broker that has just restarted and does not know its topics yet."""
    looked = asyncio.Event()

    class Looked(broker.Broker):
        async def describe(self, *names, **options):
            found = await super().describe(*names, **options)
            looked.set()
            return found

    monkeypatch.setattr(producer, "Broker", Looked)

    async def scenario():
        async with Producer(log_settings) as ours, asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(ours.publish(frames_topic(log_settings), [record("a", b"1")]))
            await looked.wait()
            await make(log_settings)
        return publishing.result()

    assert len(asyncio.run(scenario())) == 1


def test_all_who_want_a_topic_that_is_not_there_are_told(log_settings):
    """Each call waits only for its own timeout, not one after the other."""

    async def scenario():
        async with Producer(log_settings) as ours:
            wanted = (
                ours.publish(frames_topic(log_settings), [record("a", b"1")], within=ON_SERVERS)
                for _ in range(20)
            )
            return await asyncio.gather(*wanted, return_exceptions=True)

    assert {type(said) for said in asyncio.run(scenario())} == {BrokerError}


def test_who_begins_to_connect_and_then_publishes_or_not_leaves_nothing_behind(log):
    async def scene():
        topic = frames_topic(log)
        async with Producer(log) as ours:
            ours.begin(topic)
            ours.begin(topic)
            assert len(await ours.publish(topic, [record("a", b"{}")])) == 1
        # Closed while it connects; anything left open would cause a warning.
        async with Producer(log) as ours:
            ours.begin(topic)
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await ours.publish(topic, [record("a", b"{}")])
        async with Producer(Settings(kafka_bootstrap_servers="127.0.0.1:1")) as nobody:
            nobody.begin(topic)
            with pytest.raises(BrokerError):
                await nobody.publish(topic, [record("a", b"{}")])

    asyncio.run(scene())


@pytest.mark.regression("fault 184")
@pytest.mark.parametrize("count", [1, 2, 10])
def test_what_is_being_published_at_its_end_is_sent_and_leaves_nothing_open(log, count):
    """Also if the producer is not connected yet."""

    async def scenario():
        before = asyncio.all_tasks()
        async with Producer(log) as ours:
            publishing = asyncio.create_task(ours.publish(frames_topic(log), [record("a", b"1")]))
            await turns(count)
        assert publishing.done()
        assert len(publishing.result()) == 1
        assert asyncio.all_tasks() == before

    asyncio.run(scenario())


@pytest.mark.regression("fault 184")
def test_what_cannot_be_sent_is_given_up_some_seconds_after_its_end(log, monkeypatch):
    class Cluster(ClusterMetadata):  # type: ignore[misc]  # as above
        def leader_for_partition(self, partition):
            return -1

    monkeypatch.setattr("aiokafka.client.ClusterMetadata", Cluster)
    for module in (producer, sender):
        monkeypatch.setattr(module, "FLUSH_SECONDS", scaled(0.2))

    async def scenario():
        before = asyncio.all_tasks()
        async with asyncio.timeout(ON_SERVERS), Producer(log) as ours:
            publishing = asyncio.create_task(
                ours.publish(frames_topic(log), [record("a", b"1")], within=100 * ON_SERVERS)
            )
            await turns()
        with pytest.raises(
            UnacknowledgedError, match=r"may still arrive\..* The producer was closed meanwhile\.$"
        ):
            await publishing
        assert asyncio.all_tasks() == before

    asyncio.run(scenario())


def test_no_broker_is_told_at_once():
    with pytest.raises(BrokerError, match="No Kafka answers"):
        publish(Settings(kafka_bootstrap_servers="127.0.0.1:1"), [record("a", b"1")])


def test_a_header_whose_name_is_no_utf8_stops_nobody(log):
    bad = (b"ctx-1", b'{"type":"LLMRunFrame"}', [(BadName("name"), b"x")])
    asyncio.run(send_raw(log, frames_topic(log), 0, [(b"ctx-1", b"1", []), bad, (b"ctx-1", b"3", [])]))
    first, second, third = read_back(log, 3)
    assert (first.value, third.value) == (b"1", b"3")
    assert second.value == bad[1]
    assert second.headers == (("\N{REPLACEMENT CHARACTER}" * 2, b"x"),)


def test_what_was_not_committed_is_not_read(log):
    async def transactions():
        theirs = AIOKafkaProducer(
            bootstrap_servers=log.kafka_bootstrap_servers, transactional_id=f"{log.topic_prefix}writer"
        )
        await theirs.start()
        try:
            for value, commits in [(b"1", True), (b"2", False), (b"3", True)]:
                await theirs.begin_transaction()
                await theirs.send_and_wait(frames_topic(log), value, key=b"a", partition=0)
                await (theirs.commit_transaction() if commits else theirs.abort_transaction())
        finally:
            await theirs.stop()

    asyncio.run(transactions())
    assert [received.value for received in read_back(log, 2)] == [b"1", b"3"]
    assert [received.value for received in last(log, 10)] == [b"1", b"3"]


def test_an_offset_that_the_log_does_not_have_is_an_error_and_no_leap(log):
    async def scenario():
        async with reading(log, frames_topic(log)) as reader:
            for partition in reader.assignment():
                reader.seek(partition, 1_000)
            await read(reader, 1)

    with pytest.raises(OffsetOutOfRangeError):
        asyncio.run(scenario())


def last(settings, count):
    async def read_them():
        return [one async for one in last_records(settings, frames_topic(settings), count)]

    return asyncio.run(read_them())


def test_the_last_records_of_a_topic_are_over_all_partitions(log):
    for number in range(6):
        publish(log, [record(KEYS[number], b"%d" % number)])
    assert [received.value for received in last(log, 4)] == [b"2", b"3", b"4", b"5"]
    assert last(log, 0) == []
    assert len(last(log, 100)) == 6


def test_a_reader_that_follows_gets_records_as_they_are_published(log):
    async def scenario():
        records = last_records(log, frames_topic(log), 10, follow=True)
        async with asyncio.timeout(ON_SERVERS), Producer(log) as ours:
            await ours.publish(frames_topic(log), [record("a", b"before")])
            assert (await anext(records)).value == b"before"
            await ours.publish(frames_topic(log), [record("b", b"after")])
            assert (await anext(records)).value == b"after"
        await records.aclose()

    asyncio.run(scenario())
