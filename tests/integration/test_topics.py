"""Topics on a real broker: created once, described, checked, and compared with those that filled the database."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support.polling import look_again

from frameledger.effects import RunInference
from frameledger.partition import partition_for
from frameledger.record import Outgoing
from frameledger_services.database import connect
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import problems, topic_specs
from frameledger_services.exception_groups import first
from frameledger_services.projector import service as projector
from frameledger_services.projector import takeover, topic_identity
from frameledger_services.settings import Settings
from frameledger_services.store import projections, topics
from frameledger_services.store.topics import TopicChangedError
from frameledger_services.timekeeper import service as timekeeper
from frameledger_services.work.effect_consumer import EffectConsumer
from frameledger_services.work.effect_decoding import decode_effect


def ask(settings, question):
    """The answer of a connected broker to `question`."""

    async def connected():
        async with broker.connect(settings) as connection:
            return await question(connection)

    return asyncio.run(connected())


def make(settings):
    return ask(settings, lambda connection: connection.create_missing(topic_specs(settings)))


def describe(settings):
    names = [topic.name for topic in topic_specs(settings)]
    return ask(settings, lambda connection: connection.describe(names, configs=True))


def test_topics_are_made_as_the_settings_ask_and_are_right_then(log_settings):
    made = make(log_settings)
    assert made == [topic.name for topic in topic_specs(log_settings)]
    found = describe(log_settings)
    assert problems(topic_specs(log_settings), found) == []
    assert {one.partitions for name, one in found.items() if not name.endswith("roots")} == {
        log_settings.topic_partitions
    }
    assert len({one.topic_id for one in found.values()} - {None}) == len(made)


def test_to_make_them_again_changes_nothing(log):
    before = describe(log)
    assert make(log) == []
    assert describe(log) == before


def test_two_who_make_them_at_once_make_each_once(log_settings):
    async def both():
        async with broker.connect(log_settings) as one, broker.connect(log_settings) as other:
            return await asyncio.gather(
                one.create_missing(topic_specs(log_settings)), other.create_missing(topic_specs(log_settings))
            )

    made = asyncio.run(both())
    assert sorted(made[0] + made[1]) == sorted(topic.name for topic in topic_specs(log_settings))


def test_to_ask_for_a_topic_does_not_make_it(log_settings):
    assert describe(log_settings) == {}
    assert describe(log_settings) == {}


@pytest.mark.regression("fault 42")
def test_a_worker_whose_topic_is_missing_says_so_and_does_not_make_it(log_settings):
    async def run():
        effects = EffectConsumer(
            log_settings, topic="unmade", group="it", decode=partial(decode_effect, RunInference)
        )
        with pytest.raises(BrokerError, match="There is no topic unmade"):
            await effects.start(asyncio.Event())
        async with broker.connect(log_settings) as connection:
            assert await connection.describe(["unmade"]) == {}

    asyncio.run(run())


def test_a_topic_made_otherwise_is_a_problem(log_settings):
    frames, *_ = topic_specs(log_settings)
    by_hand = replace(frames, config={"cleanup.policy": "compact", "retention.ms": "1000"})
    ask(log_settings, lambda connection: connection.create_missing([by_hand]))
    sentences = problems([frames], describe(log_settings))
    assert [sentence.split("=")[0] for sentence in sentences] == [
        f"{frames.name} has {name}"
        for name in ("cleanup.policy", "retention.ms", "message.timestamp.type", "max.message.bytes")
    ]


def test_a_broker_that_refuses_says_why(log_settings):
    settings = log_settings.model_copy(update={"topic_replication": 3})
    with pytest.raises(BrokerError, match=r"does not create the topic test-.*[Rr]eplication factor"):
        make(settings)


def test_no_broker_is_an_error_that_says_where_it_was_looked_for():
    with pytest.raises(BrokerError, match=r"No Kafka answers at 127\.0\.0\.1:1\."):
        describe(Settings(kafka_bootstrap_servers="127.0.0.1:1"))


def hold(database, found):
    async def connected():
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await topic_identity.pin(connection, found)

    asyncio.run(connected())


def test_a_topic_that_stays_the_same_may_be_read_again_and_again(log, database):
    frames = describe(log)[topic_specs(log)[0].name]
    hold(database, frames)
    hold(database, frames)
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT topic, generation, partitions, topic_id FROM topics").fetchall()
    assert rows == [(frames.name, 1, frames.partitions, frames.topic_id)]


def test_a_topic_with_more_partitions_than_before_is_refused(log, database):
    name = topic_specs(log)[0].name
    hold(database, describe(log)[name])
    asyncio.run(grow(log, name, 5))
    with pytest.raises(TopicChangedError, match=r"had 4 partitions .* and has 5 now"):
        hold(database, describe(log)[name])


@pytest.mark.regression("fault 45")
def test_what_is_published_first_after_partitions_were_added_lies_where_their_publisher_reads_it(log):
    """A projector forwards with the number of partitions by which it finds what to forward. Otherwise it would forward
    its own copies."""
    frames = describe(log)[topic_specs(log)[0].name]
    asyncio.run(grow(log, frames.name, 2 * frames.partitions))
    keys = [f"ctx-{number}".encode() for number in range(20)]
    homes = [partition_for(key, frames.partitions) for key in keys]
    assert homes != [partition_for(key, 2 * frames.partitions) for key in keys]

    async def published():
        async with Producer(log, topics=[frames]) as forwarding:
            return await forwarding.publish(frames.name, [Outgoing(key, b"{}", ()) for key in keys])

    assert [place.partition for place in asyncio.run(published())] == homes


async def grow(settings, name, partitions):
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka_bootstrap_servers)
    await admin.start()
    try:
        await admin.create_partitions({name: NewPartitions(partitions)})
    finally:
        await admin.close()
    # The controller has added them; the broker that answers here learns of it a moment later.
    async with asyncio.timeout(ON_SERVERS), broker.connect(settings) as brokers:
        while (await brokers.describe([name]))[name].partitions != partitions:
            await look_again()


def test_a_topic_that_was_deleted_and_made_again_is_refused(log, database):
    frames = describe(log)[topic_specs(log)[0].name]
    hold(database, frames)
    with pytest.raises(TopicChangedError, match="deleted and recreated"):
        hold(database, replace(frames, topic_id=uuid4()))


def test_a_broker_without_ids_is_held_to_the_number_of_partitions(log, database):
    frames = describe(log)[topic_specs(log)[0].name]
    hold(database, frames)
    hold(database, replace(frames, topic_id=None))
    with pytest.raises(TopicChangedError):
        hold(database, replace(frames, topic_id=None, partitions=1))


async def read_one(database, topic):
    """Note in the database that a record of this topic was read, as its projector does."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await projections.assign(connection, topic, 0, "its projector", ended=True)
        await connection.execute("UPDATE projections SET next_offset = 1, last_offset = 0")


@pytest.mark.regression("fault 94")
def test_a_database_that_was_filled_from_a_topic_of_another_prefix_is_refused(log, database):
    frames = describe(log)[topic_specs(log)[0].name]
    hold(database, replace(frames, name="other.llm.frames"))
    asyncio.run(read_one(database, "other.llm.frames"))
    settings = log.model_copy(update={"database_url": SecretStr(database)})
    with pytest.raises(ExceptionGroup) as stopped:
        asyncio.run(asyncio.wait_for(timekeeper.serve(settings, asyncio.Event()), ON_SERVERS))
    with pytest.raises(TopicChangedError) as caught:
        hold(database, frames)
    assert {str(first(stopped.value)), str(caught.value)} == {
        f"This database was filled from the topic other.llm.frames, and the topic of these settings is {frames.name}. "
        "Give each topic prefix (FRAMELEDGER_TOPIC_PREFIX) its own database (FRAMELEDGER_DATABASE_URL)."
    }


async def own(connection, topic):
    """Become the owner of a partition, as its projector does."""
    return await takeover.assign(connection, topic, 0, f"projector of {topic}")


@pytest.mark.regression("fault 95")
def test_a_database_that_a_connected_projector_is_about_to_fill_is_refused_to_those_of_other_prefixes(
    log, database
):
    frames = describe(log)[topic_specs(log)[0].name]
    settings = log.model_copy(update={"database_url": SecretStr(database)})

    async def both():
        async with await connect(settings, "the first") as first_one:
            await own(first_one, "other.llm.frames")
            pid = first_one.info.backend_pid
            with pytest.raises(TopicChangedError) as refused:
                await asyncio.wait_for(projector.serve(settings, asyncio.Event()), ON_SERVERS)
        return str(refused.value), pid

    async def corrected():
        async with asyncio.timeout(ON_SERVERS), await connect(settings, "the second") as connection:
            while True:
                with suppress(TopicChangedError):
                    return await own(connection, frames.name)
                await look_again()  # PostgreSQL has not ended the first one's session yet

    message, pid = asyncio.run(both())
    assert message == (
        f"A connected projector fills this database from the topic other.llm.frames (process {pid} of the database), "
        f"and the topic of these settings is {frames.name}. Give each topic prefix (FRAMELEDGER_TOPIC_PREFIX) its own "
        "database (FRAMELEDGER_DATABASE_URL); if that projector has the wrong prefix, stop it first."
    )
    assert asyncio.run(corrected()).epoch == 1


@pytest.mark.regression("fault 95")
def test_of_projectors_of_two_prefixes_that_take_over_at_the_same_time_one_is_refused(log_settings, database):
    settings = log_settings.model_copy(update={"database_url": SecretStr(database)})

    async def at_once():
        async with (
            asyncio.timeout(ON_SERVERS),
            await connect(settings, "a") as one,
            await connect(settings, "b") as other,
            await connect(settings, "looks") as looks,
        ):
            async with one.transaction():
                await topics.reserve(one, "a.llm.frames")
                waiting = asyncio.create_task(own(other, "b.llm.frames"))
                while await waits(looks) == 0:
                    await look_again()
                await projections.assign(one, "a.llm.frames", 0, "projector of a")
            with pytest.raises(TopicChangedError, match=r"connected projector .* topic a\.llm\.frames"):
                await waiting
            # Further projectors of the same prefix can still own partitions.
            assert [(await own(each, "a.llm.frames")).epoch for each in (one, other)] == [2, 3]

    async def waits(connection):
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return (await cursor.fetchone())[0]

    asyncio.run(at_once())


def test_a_database_keeps_a_corrected_prefix_if_nothing_was_read_with_the_wrong_one(log, database):
    frames = describe(log)[topic_specs(log)[0].name]
    hold(database, replace(frames, name="wrong.frames"))
    hold(database, frames)


@pytest.fixture
def run(log_settings, database, command):
    """Runs `frameledger`, on this test's topics and database. It waits for a busy database, which it would otherwise
    leave out."""
    address = make_conninfo(database, connect_timeout=int(ON_SERVERS))
    return partial(command, log_settings.model_copy(update={"database_url": SecretStr(address)}))


def test_the_command_makes_topics_and_says_so(run, log_settings):
    missing = run("topics")
    assert missing.exit_code == 1
    assert "missing" in missing.stdout
    assert "frameledger topics --create" in missing.stderr

    made = run("topics", "--create", "--json")
    assert made.exit_code == 0
    listed = json.loads(made.stdout)
    assert listed["problems"] == []
    assert [topic["created"] for topic in listed["topics"]] == [True] * 6

    there = run("topics", "--json")
    assert there.exit_code == 0
    assert [topic["created"] for topic in json.loads(there.stdout)["topics"]] == [False] * 6
    assert log_settings.topic_prefix in run("topics").stdout


def test_the_command_says_that_the_database_was_filled_from_another_topic(run, log, database):
    frames = describe(log)[topic_specs(log)[0].name]
    hold(database, replace(frames, topic_id=uuid4()))
    result = run("topics")
    assert result.exit_code == 1
    assert "deleted and recreated" in result.stderr
