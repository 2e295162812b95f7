"""One of two real brokers is unreachable: how long publishing waits, and which error it raises."""

import asyncio
import logging
from contextlib import suppress
from itertools import count

import pytest
from aiokafka import TopicPartition
from tests.bounds import ON_SERVERS, PROGRAM, scaled
from tests.support.polling import look_again
from tests.support.two_brokers import two_brokers

from frameledger.record import Outgoing
from frameledger_services import transient
from frameledger_services.event_log import (
    broker,
    failover,
    log_rate_limit,
    producer,
    sender,
    slow_requests,
)
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import PublishError
from frameledger_services.event_log.topics import TopicSpec, home_partition, problems
from frameledger_services.projector.row_sender import RowSender
from frameledger_services.projector.stalled import PartlySentError
from frameledger_services.settings import Settings
from frameledger_services.store.outbox import OutboxRow

pytestmark = pytest.mark.long

_names = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with two_brokers(tmp_path_factory.mktemp("two-brokers")) as both:
        yield both


@pytest.fixture(autouse=True)
def patience_for_the_reason(monkeypatch):
    monkeypatch.setattr(producer, "WHY_SECONDS", ON_SERVERS)


@pytest.fixture
def topic(cluster):
    """Creates topics on both brokers, of which a test may kill the second. Yields name and settings of each."""
    cluster.rise()
    settings = Settings(kafka_bootstrap_servers=cluster.bootstrap_servers)

    def make(partitions, copies, config):
        async def made():
            async with broker.connect(settings) as ask, asyncio.timeout(ON_SERVERS):
                while len(ask._client.cluster.brokers()) < 2:
                    await ask._client.force_metadata_update()
                    await look_again()
                while True:
                    wanted = TopicSpec(f"test-{next(_names)}", partitions, copies, config)
                    # On a busy machine one may be taken for dead for a moment, since its second is over.
                    with suppress(BrokerError):
                        await ask.create_missing([wanted])
                        found = (await ask.describe([wanted.name]))[wanted.name]
                        if partitions == 1 or len({one.leader for one in found.states.values()}) == 2:
                            return wanted
                    await look_again()

        return settings, asyncio.run(made())

    return make


async def until(settings, name, is_so):
    async with asyncio.timeout(ON_SERVERS), broker.connect(settings) as ask:
        while not is_so(found := (await ask.describe([name], configs=True))[name]):
            await look_again()
        return found


RECORDS = [Outgoing(b"key-%d" % number, b"1", ()) for number in range(20)]


@pytest.mark.regression("fault 6")
def test_publishing_waits_for_a_leader_that_comes_back(cluster, topic, monkeypatch):
    """Also for a producer that begins meanwhile: the topic is there, though not all of it has a leader."""
    monkeypatch.setattr(sender, "REQUEST_SECONDS", scaled(1))
    settings, wanted = topic(4, 1, {})

    async def scenario():
        async with Producer(settings) as before, Producer(settings) as meanwhile:
            await before.publish(wanted.name, RECORDS, within=ON_SERVERS)
            await asyncio.to_thread(cluster.kill)
            found = await until(settings, wanted.name, lambda found: found.leaderless)
            assert "No broker leads partition" in "".join(problems([wanted], {wanted.name: found}))
            with pytest.raises(PublishError, match=rf"No broker leads partition \d of {wanted.name}"):
                await before.publish(wanted.name, RECORDS, within=scaled(3))
            async with asyncio.TaskGroup() as tasks:
                publishing = [
                    tasks.create_task(one.publish(wanted.name, RECORDS, within=PROGRAM))
                    for one in (before, meanwhile)
                ]
                cluster.begin()
            return [one.result() for one in publishing]

    assert [len(places) for places in asyncio.run(scenario())] == [len(RECORDS)] * 2


@pytest.mark.regression("fault 109")
def test_only_the_rows_of_partitions_without_a_leader_are_not_sent_by_the_relay(cluster, topic, monkeypatch):
    monkeypatch.setattr(sender, "REQUEST_SECONDS", scaled(5))
    settings, wanted = topic(4, 1, {})
    rows = [
        OutboxRow("frames", 0, 0, number, 0, "effect", wanted.name, None, one.key, one.value, ())
        for number, one in enumerate(RECORDS)
    ]

    async def scenario():
        async with Producer(settings) as ours:
            assert await RowSender(ours, PROGRAM)(rows) == []
            await asyncio.to_thread(cluster.kill)
            found = await until(settings, wanted.name, lambda found: found.leaderless)
            with pytest.raises(PartlySentError, match="No broker leads partition") as partly:
                await RowSender(ours, scaled(10))(rows)
            assert partly.value.partitions == 4
            assert {home_partition(row.key, 4) for row in partly.value.unsent} == set(found.leaderless)
            cluster.begin()
            assert await RowSender(ours, PROGRAM)(partly.value.unsent) == []
            return found.leaderless, partly.value.unsent

    leaderless, unsent = asyncio.run(scenario())
    assert unsent == [row for row in rows if home_partition(row.key, 4) in leaderless]


@pytest.mark.regression("trial C8")
def test_copies_that_are_away_are_named_where_they_keep_records_from_being_taken(cluster, topic):
    settings, wanted = topic(1, 2, {"min.insync.replicas": "2"})

    async def scenario():
        async with Producer(settings) as ours:
            await ours.publish(wanted.name, RECORDS[:1], within=ON_SERVERS)
            await asyncio.to_thread(cluster.kill)
            await until(settings, wanted.name, lambda found: found.states[0].in_sync == 1)
            with pytest.raises(PublishError, match="1 of 2 replicas") as late:
                await ours.publish(wanted.name, RECORDS[:1], within=scaled(3))
            return str(late.value)

    assert "min.insync.replicas is 2" in asyncio.run(scenario())


@pytest.mark.regression("trial C8")
def test_a_broker_that_is_away_is_not_asked_in_vain(cluster, topic):
    settings, wanted = topic(1, 1, {})

    async def scenario():
        async with broker.connect(settings) as ask:
            # Its metadata still lists both brokers.
            known = ask._client.cluster.brokers()
            assert len(known) == 2
            await asyncio.to_thread(cluster.kill)
            ask._client.cluster.brokers = lambda: known
            return [await ask.describe([wanted.name]) for _ in range(8)]

    assert [list(found) for found in asyncio.run(scenario())] == [[wanted.name]] * 8


@pytest.mark.regression("fault 108")
def test_ends_are_those_of_the_leaders_that_are_there(cluster, topic):
    settings, wanted = topic(4, 1, {})

    async def scenario():
        async with asyncio.timeout(PROGRAM), open_probe(settings, wanted.name) as probe:

            async def until_there_are(enough):
                while True:
                    with suppress(*transient.BROKER):
                        ends = await probe.ends(range(4), asyncio.get_running_loop().time() + scaled(3))
                        if enough(len(ends)):
                            return
                    await look_again()

            await until_there_are(lambda count: count == 4)
            await asyncio.to_thread(cluster.kill)
            await until_there_are(lambda count: 0 < count < 4)
            # Also once the other partitions have no leader; before, their leader did not answer.
            await until(settings, wanted.name, lambda found: found.leaderless)
            await until_there_are(lambda count: 0 < count < 4)
            cluster.begin()
            await until_there_are(lambda count: count == 4)

    asyncio.run(scenario())


NEVER = 100 * ON_SERVERS
"""Seconds of a limit that is never reached in a test."""


@pytest.fixture
def frozen(cluster):
    """Freezes the second broker. It is killed afterwards and not resumed, because the other one may fence it at any
    moment."""
    yield cluster.freeze
    cluster.kill()


@pytest.mark.regression("trial C4")
def test_records_go_to_the_new_leader_while_the_one_before_it_is_frozen(topic, frozen, monkeypatch):
    monkeypatch.setattr(sender, "REQUEST_SECONDS", NEVER)
    monkeypatch.setattr(slow_requests, "SLOW_SECONDS", 0.1)
    settings, wanted = topic(4, 2, {})

    async def scenario():
        async with Producer(settings) as ours:
            before = await ours.publish(wanted.name, RECORDS, within=ON_SERVERS)
            assert {place.partition for place in before} == {0, 1, 2, 3}
            leads = ours._sender.client.cluster.leader_for_partition
            assert 2 in [leads(TopicPartition(wanted.name, number)) for number in range(4)]
            await asyncio.to_thread(frozen)
            after = await ours.publish(wanted.name, RECORDS, within=ON_SERVERS)
            assert [place.offset for place in after] == [
                place.offset + sum(other.partition == place.partition for other in before) for place in before
            ], "each once and in order"

    asyncio.run(scenario())


@pytest.mark.regression("trial C4")
def test_who_leads_what_is_learned_though_a_broker_is_frozen(topic, frozen, monkeypatch):
    monkeypatch.setattr(broker, "REQUEST_SECONDS", NEVER)
    monkeypatch.setattr(failover, "NEXT_SECONDS", 0.1)
    settings, _ = topic(1, 2, {})

    async def scenario():
        async with broker.connect(settings) as ask:
            client = ask._client
            for node in (1, 2):
                assert await client.ready(node)
            await asyncio.to_thread(frozen)
            async with asyncio.timeout(ON_SERVERS):
                for _ in range(8):
                    assert await client.force_metadata_update()

    asyncio.run(scenario())


@pytest.mark.regression("trial C4")
def test_a_client_begins_with_a_broker_that_answers_though_the_one_named_first_is_frozen(
    cluster, topic, frozen, monkeypatch
):
    monkeypatch.setattr(broker, "REQUEST_SECONDS", NEVER)
    monkeypatch.setattr(failover, "CONNECT_SECONDS", scaled(1))
    settings, wanted = topic(1, 2, {})
    addresses = ",".join(reversed(cluster.bootstrap_servers.split(",")))
    settings = settings.model_copy(update={"kafka_bootstrap_servers": addresses})

    async def scenario():
        await asyncio.to_thread(frozen)
        async with asyncio.timeout(ON_SERVERS), broker.connect(settings) as ask:
            return await ask.describe([wanted.name])

    assert list(asyncio.run(scenario())) == [wanted.name]


@pytest.mark.regression("journey 15", "trial C10")
def test_a_broker_that_is_away_is_told_in_one_line(cluster, topic, monkeypatch, caplog):
    """While it is away aiokafka says so some thirty times a second."""
    # The line comes once a minute, and the test may take longer.
    monkeypatch.setattr(log_rate_limit, "_once_a_minute", log_rate_limit.OnceAMinute(now=lambda: 0.0))
    seen: list[str] = []
    many = asyncio.Event()

    def see(record):
        seen.append(str(record.msg))
        if sum(one.startswith("Unable connect") for one in seen) > 50:
            many.set()
        return True

    settings, _ = topic(1, 1, {})
    alone = settings.model_copy(update={"kafka_bootstrap_servers": cluster.second})
    for name in ("aiokafka", "aiokafka.producer.sender"):
        logger = logging.getLogger(name)
        # This filter runs before ours, so it sees every line.
        monkeypatch.setattr(logger, "filters", [see])
        caplog.set_level(logging.WARNING, name)

    async def scenario():
        async with broker.connect(alone) as ask, asyncio.timeout(ON_SERVERS):
            while (second := ask._client.cluster.broker_metadata(2)) is None:
                await ask._client.force_metadata_update()
            await asyncio.to_thread(cluster.kill)
            # It knows of no other broker.
            ask._client.cluster.brokers = lambda: [second]
            while not many.is_set():
                await ask._client.force_metadata_update()

    asyncio.run(scenario())
    said = [record.getMessage() for record in caplog.records if "not answer" in record.getMessage()]
    assert len(said) == 1, said
    assert "Unable" in said[0]
