"""Helpers for tests of `recover`: its commands, and the resulting log and tables."""

import asyncio
import json
from dataclasses import replace

import psycopg
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from tests.bounds import ON_SERVERS
from tests.support import pipeline as pipelines
from tests.support.killable import projector
from tests.support.polling import look_again
from tests.support.power_cut import machine as machine_in

from frameledger_services.event_log import broker

RUN = b'{"type":"LLMRunFrame"}'

SAID = b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"%s"}]}'


@pytest.fixture(name="machine", scope="module")
def machine_with_power(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine")) as running:
        yield running


@pytest.fixture(name="fragile_pipeline")
def pipeline_with_power_cuts(machine, database, make_database, migrated_template):
    """A pipeline whose broker can suffer a power failure."""
    return pipelines.made(
        machine.server.bootstrap_servers, database, lambda: make_database(template=migrated_template)
    )


@pytest.fixture(name="run")
def command_on_pipeline(command):
    """Run a command on a pipeline."""
    return lambda one, *words, answer=None: command(one.settings, *words, input=answer)


def projected(one, *bursts):
    """Publish bursts, each after the previous one is stored."""
    with projector(one.settings) as running:
        for burst in bursts:
            one.publish(burst)
            one.until_idle(running)
        assert running.stop() == 0


def refused(one):
    """Assert that a projector refuses to continue."""
    with projector(one.settings) as running:
        assert running.ended() == 1


def looked(one, run, exit_code):
    result = run(one, "recover", "--json")
    assert result.exit_code == exit_code, result.output
    found = json.loads(result.stdout)
    return found, {part["partition"]: part["happened"] for part in found["partitions"]}


def applied(one, run):
    result = run(one, "recover", "--apply", "--yes", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["applied"]


def all_put_back(*, generation, frames):
    """Returns what the command prints after a complete recovery."""
    return {"generation": generation, "put_back": frames, "left": 0, "too_large": 0, "not_put_back": []}


def diagnosed(one, run):
    """Returns what `doctor` prints about the log, with the remedy."""
    result = run(one, "doctor", "--json")
    assert result.exit_code == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    (said, *_) = [
        finding
        for finding in found
        if finding["check"] in ("same topic", "same log") and finding["state"] == "fail"
    ]
    assert "`frameledger recover`" in said["found"] + said["remedy"]
    return said["found"]


def in_generations(one):
    """Returns the records of the topic, each with the generation in which it was read."""
    with psycopg.connect(one.address) as connection:
        began = connection.execute(
            "SELECT partition, generation, begins_at FROM recoveries ORDER BY generation"
        ).fetchall()
    records = []
    for record in one.records():
        generation = 1
        for partition, number, begins_at in began:
            if partition == record.partition and record.offset >= begins_at:
                generation = number
        records.append(replace(record, generation=generation))
    return records


def frames_of(address):
    with psycopg.connect(address) as connection:
        return set(
            connection.execute(
                "SELECT context_id, version, frame_id, outcome, reason, payload::text FROM frames"
            ).fetchall()
        )


def without_duplicates(rows):
    """Returns rows without the count of duplicates, which copies change."""
    return {
        table: sorted(json.dumps(json.loads(row) | {"duplicate_count": 0}) for row in some)
        for table, some in rows.items()
    }


def lose(machine, one, keep):
    """Let a power failure remove the records after these ends."""
    machine.power_cut({(one.names.frames, partition): end for partition, end in keep.items()})
    return one.ends()


async def expire(one, partition, before):
    admin = AIOKafkaAdminClient(bootstrap_servers=one.settings.kafka_bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(one.names.frames, partition): RecordsToDelete(before_offset=before)}
        )
    finally:
        await admin.close()


async def make_again(one):
    admin = AIOKafkaAdminClient(bootstrap_servers=one.settings.kafka_bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([one.names.frames])
    finally:
        await admin.close()


def until_gone(one):
    async def wait():
        async with asyncio.timeout(ON_SERVERS), broker.connect(one.settings) as brokers:
            while await brokers.describe([one.names.frames]):
                await look_again()

    asyncio.run(wait())
