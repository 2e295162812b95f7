"""Clients that are not ours: their partitioners, their compression, and the plainest of them on a command line."""

import shutil
import subprocess

import confluent_kafka
import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import (  # noqa: F401  # a fixture
    PARTITIONS,
    histories,
    own_pipeline,
)

from frameledger.partition import librdkafka_default, partition_for

FEW = ("barge-in", "parallel-tools", "plain-client", "recording", "tool-changes")


def produce(pipeline, records, **settings):
    """Publish with librdkafka's defaults, which choose partitions otherwise. Returns how many records are in a foreign
    partition."""
    astray = []

    def delivered(error, message):
        assert error is None, error
        if message.partition() != partition_for(message.key(), PARTITIONS):
            assert message.partition() == librdkafka_default(message.key(), PARTITIONS)
            astray.append(message)

    client = confluent_kafka.Producer(
        {
            "bootstrap.servers": pipeline.settings.kafka_bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 0,
            **settings,
        }
    )
    for raw in records:
        client.produce(pipeline.names.frames, raw.value, raw.key, on_delivery=delivered)
    assert client.flush(ON_SERVERS) == 0
    return len(astray)


def test_what_librdkafka_puts_elsewhere_is_forwarded_in_order_and_folded_once(pipeline):
    records = histories("foreign", FEW)
    with projector(pipeline.settings) as running:
        astray = produce(pipeline, records)
        pipeline.until_idle(running)
        assert running.stop() == 0
    assert astray > 20
    pipeline.check()
    with psycopg.connect(pipeline.address) as connection:
        for key in {raw.key for raw in records}:
            payloads = connection.execute(
                "SELECT payload::text FROM frames WHERE context_id = %s ORDER BY version", (key.decode(),)
            ).fetchall()
            sent = [raw.value.decode() for raw in records if raw.key == key]
            assert [payload for (payload,) in payloads] == sent


@pytest.mark.long
def test_clients_of_both_partitioners_may_write_at_once(pipeline):
    with projector(pipeline.settings) as running:
        for number in range(2):
            records = histories(str(number), FEW[:3])
            produce(pipeline, records[: len(records) // 2], partitioner="consistent")
            produce(pipeline, records[len(records) // 2 :], partitioner="murmur2_random")
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()


def test_every_compression_of_kafka_is_read(pipeline):
    with projector(pipeline.settings) as running:
        for compression in ("gzip", "snappy", "lz4", "zstd"):
            packed = {"compression.type": compression, "linger.ms": 50}
            produce(pipeline, histories(compression, FEW[:1]), **packed)
        pipeline.until_idle(running)
        assert running.stop() == 0
    assert len(pipeline.check().frames) == 4 * len(histories("any", FEW[:1]))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_a_line_of_kcat_is_a_frame(pipeline):
    with projector(pipeline.settings) as running:
        subprocess.run(
            [
                *("kcat", "-P", "-b", pipeline.settings.kafka_bootstrap_servers, "-t", pipeline.names.frames),
                "-K:",
            ],
            input=b'ctx-1:{"type":"LLMRunFrame"}\nctx-2:{"type":"LLMRunFrame"}\n',
            check=True,
            timeout=ON_SERVERS,
        )
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check(every=1)
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT json_agg(context_id ORDER BY context_id) FROM frames") == [
            "ctx-1",
            "ctx-2",
        ]
