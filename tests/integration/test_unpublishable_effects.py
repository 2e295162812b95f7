"""Effects that Kafka rejects stay in the outbox, and everything else continues."""

import base64
import random

import confluent_kafka
import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from tests.bounds import ON_SERVERS
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import (  # noqa: F401  # a fixture
    PARTITIONS,
    Raw,
    histories,
    own_pipeline,
)

from frameledger.decoding import MAX_VALUE_BYTES
from frameledger.partition import partition_for
from frameledger_services.event_log.topics import MAX_RECORD_BYTES

SAID = b'{"type":"TranscriptionFrame","user_id":"u","timestamp":"","text":"%s"}'


def image(size):
    """Returns text that zstd makes a quarter smaller, and LZ4, which we use, hardly at all."""
    return base64.b64encode(random.Random(size).randbytes(size * 3 // 4))


def publish_compressed(pipeline, raw):
    """Publish like a client with zstd: the topic's limit counts compressed bytes. Returns the offset."""
    offsets = []

    def delivered(error, message):
        assert error is None, error
        offsets.append(message.offset())

    client = confluent_kafka.Producer(
        {
            "bootstrap.servers": pipeline.settings.kafka_bootstrap_servers,
            "compression.type": "zstd",
            "message.max.bytes": 4 * MAX_RECORD_BYTES,
            "log_level": 0,
        }
    )
    client.produce(
        pipeline.names.frames,
        raw.value,
        raw.key,
        partition=partition_for(raw.key, PARTITIONS) if raw.partition is None else raw.partition,
        headers=list(raw.headers),
        on_delivery=delivered,
    )
    assert client.flush(ON_SERVERS) == 0
    return offsets[0]


@pytest.mark.long
@pytest.mark.regression("fault 1")
def test_what_is_too_large_for_any_topic_is_kept_and_everything_else_goes_on(pipeline):
    abroad = (partition_for(b"abroad", PARTITIONS) + 1) % PARTITIONS
    with projector(pipeline.settings) as running:
        dead_letter = publish_compressed(pipeline, Raw(b"large", SAID % image(10_500_000)))
        headers = (("note", image(300_000)),)
        copied = SAID % image(MAX_VALUE_BYTES - 200)
        forwarded = publish_compressed(pipeline, Raw(b"abroad", copied, headers, abroad))
        pipeline.publish(histories("good", ["barge-in"]))
        pipeline.until_idle(running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        kept = connection.execute(
            'SELECT context_id, partition, "offset", code, octet_length(value), json_array_length(headers) '
            "FROM rejected_frames ORDER BY context_id"
        ).fetchall()
        assert [row[:5] for row in kept] == [
            ("abroad", abroad, forwarded, "too_large", len(copied)),
            ("large", partition_for(b"large", PARTITIONS), dead_letter, "too_large", kept[1][4]),
        ]
        assert kept[1][4] > 10_500_000
        # The client's header, the place of the record, and when it was logged.
        assert kept[0][5] == 3
        assert value_of(connection, "SELECT count(*) FROM contexts") == 1
        assert value_of(connection, "SELECT count(*) FROM outbox") == 0


@pytest.mark.regression("fault 17f")
def test_what_one_topic_refuses_waits_in_the_outbox_and_everything_else_goes_on(pipeline):
    """The projector's process goes on and keeps its partitions."""
    admin = AdminClient({"bootstrap.servers": pipeline.settings.kafka_bootstrap_servers})
    for deleted in admin.delete_topics([pipeline.names.dead_letters]).values():
        deleted.result(ON_SERVERS)
    with projector(pipeline.settings) as running:
        pipeline.publish([Raw(b"bad", b"no frame"), Raw(b"bad", b"no frame either")])
        pipeline.until("SELECT count(*) = 2 FROM outbox WHERE kind = 'dead_letter'")
        # Wait until it owns all partitions: effects that are over before are not requested.
        pipeline.until_owned_by(running)
        (owner,) = owners(pipeline)
        pipeline.publish(histories("good", ["barge-in"]))
        pipeline.until("SELECT count(*) = 1 FROM contexts WHERE ended OR version > 5")
        pipeline.until("SELECT count(*) = 0 FROM outbox WHERE kind <> 'dead_letter'")
        assert pipeline.records(pipeline.names.inference) != []
        pipeline.publish([Raw(b"bad", b"no frame even later")])
        pipeline.until("SELECT count(*) = 3 FROM outbox")
        pipeline.make_topics()
        pipeline.until_idle(running)
        assert owners(pipeline) == {owner}
        assert running.stop() == 0
    letters = pipeline.records(pipeline.names.dead_letters)
    assert [one.value for one in letters] == [b"no frame", b"no frame either", b"no frame even later"]


@pytest.mark.regression("fault 17f")
def test_who_stops_while_a_topic_refuses_rows_leaves_them_to_the_next_owner(pipeline):
    admin = AdminClient({"bootstrap.servers": pipeline.settings.kafka_bootstrap_servers})
    for deleted in admin.delete_topics([pipeline.names.dead_letters]).values():
        deleted.result(ON_SERVERS)
    with projector(pipeline.settings) as running:
        pipeline.publish([Raw(b"bad", b"no frame")])
        pipeline.until("SELECT count(*) = 1 FROM outbox")
        assert running.stop() == 0
    pipeline.make_topics()
    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        assert running.stop() == 0
    assert [one.value for one in pipeline.records(pipeline.names.dead_letters)] == [b"no frame"]


@pytest.mark.regression("fault 224")
def test_rows_of_the_outbox_that_somebody_wrote_by_hand_stay_there_and_everything_else_goes_on(pipeline):
    by_hand = [
        ("no topic", "[]"),
        ("", "[]"),
        (pipeline.names.inference, "7"),
        (pipeline.names.frames, '[["a", {}]]'),
    ]
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        for ordinal, (to_topic, headers) in enumerate(by_hand):
            connection.execute(
                'INSERT INTO outbox (topic, partition, "offset", ordinal, kind, to_topic, headers) '
                "SELECT %s, partition, 1000000, %s, 'effect', %s, %s FROM generate_series(0, %s) AS partition",
                (pipeline.names.frames, ordinal, to_topic, headers, PARTITIONS - 1),
            )
    with projector(pipeline.settings) as running:
        # Wait until it owns all partitions: effects that are over before are not requested.
        pipeline.until_owned_by(running)
        pipeline.publish(histories("good", ["barge-in"]))
        pipeline.until("SELECT count(*) = 1 FROM contexts WHERE ended OR version > 5")
        pipeline.until('SELECT count(*) = 0 FROM outbox WHERE "offset" < 1000000')
        assert running.stop() == 0
    assert pipeline.records(pipeline.names.inference) != []
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox") == len(by_hand) * PARTITIONS


def owners(pipeline):
    with psycopg.connect(pipeline.address) as connection:
        return {owner for (owner,) in connection.execute("SELECT DISTINCT owner FROM projections")}
