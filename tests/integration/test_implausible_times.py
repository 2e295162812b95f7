"""Implausible timestamps of records are stored as values that every client can read, and block nothing."""

import asyncio
import dataclasses
import time

import psycopg
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # four that it does not list
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.bounds import ON_SERVERS
from tests.support.batches import Log, project
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import look_again

from frameledger_services.event_log.broker import BrokerError
from frameledger_services.projector import topic_identity

PLACES = ["Pacific/Kiritimati", "Etc/GMT+12", "UTC"]


def run_frame(produced_at):
    return b'{"type":"LLMRunFrame","produced_at":"%s"}' % produced_at


def readable(database):
    """Check, for each of these time zones, that every row of `frames` can be read; yields the zone for more checks."""
    for place in PLACES:
        with psycopg.connect(database, options=f"-c TimeZone={place}") as connection:
            connection.execute("SELECT * FROM frames").fetchall()
            connection.execute("SELECT * FROM timeline").fetchall()
            yield place


@pytest.mark.regression("fault 14")
def test_frames_of_any_time_can_be_read_back(database):
    log = Log()
    for written in (b"9999-12-31T23:59:59-14:00", b"0001-01-01T00:00:00+14:00", b"2026-05-01T08:00:00Z"):
        log.add("ctx", run_frame(written))
    project(database, log.records)
    assert list(readable(database)) == PLACES


@pytest.mark.regression("fault 33")
@pytest.mark.parametrize("written", [b"1770000000", b"null", b"{}", b'["2026-05-01"]'])
def test_a_frame_of_an_unknown_type_is_stored_whatever_its_time_is(database, written):
    log = Log()
    log.add("ctx", b'{"type":"NewFrame","produced_at":%s}' % written)
    project(database, log.records)
    with psycopg.connect(database) as connection:
        stored = connection.execute("SELECT outcome, produced_at FROM frames").fetchall()
    assert stored == [("unknown", None)]


@pytest.mark.regression("fault 15")
@pytest.mark.parametrize("milliseconds", [2**63 - 1, -(2**63), 1_770_000_000_000_000_000])
@pytest.mark.parametrize("value", [b'{"type":"LLMRunFrame"}', b"no frame"])
def test_records_of_any_time_are_stored(database, milliseconds, value):
    log = Log()
    for _ in range(3):
        log.add("ctx", value)
    project(database, [dataclasses.replace(one, timestamp_ms=milliseconds) for one in log.records])
    assert list(readable(database)) == PLACES
    with psycopg.connect(database) as connection:
        stored = connection.execute(
            "SELECT (SELECT count(*) FROM frames) + (SELECT count(*) FROM rejected_frames)"
        ).fetchone()
        assert stored == (3,)


@pytest.mark.regression("fault 15")
def test_a_topic_with_its_publishers_times_is_not_read_and_the_remedy_is_said(pipeline):
    assert asyncio.run(topic_identity.describe(pipeline.settings, pipeline.names.frames)).partitions > 0
    change = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, pipeline.names.frames, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": pipeline.settings.kafka_bootstrap_servers})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(ON_SERVERS)
    with pytest.raises(
        BrokerError, match=r"CreateTime and needs LogAppendTime.*kafka-configs.sh --bootstrap-server"
    ):
        asyncio.run(described_until(pipeline, time.monotonic() + ON_SERVERS))


async def described_until(pipeline, until):
    """Wait until the broker reports the changed configuration."""
    while time.monotonic() < until:
        await topic_identity.describe(pipeline.settings, pipeline.names.frames)
        await look_again()
