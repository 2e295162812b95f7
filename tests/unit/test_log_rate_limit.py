"""aiokafka's log lines about our clients are limited to one a minute; those about other clients are unchanged."""

import asyncio
import logging

import pytest
from aiokafka import errors as kafka_errors

from frameledger_services.event_log import log_rate_limit
from frameledger_services.event_log.log_rate_limit import MINUTE, OnceAMinute, rate_limited

pytestmark = [pytest.mark.regression("journey 15", "trial C10")]


LOGGERS = ("aiokafka", "aiokafka.test_kafka_log")


@pytest.fixture
def clock(monkeypatch, caplog):
    """Of the filter, which begins anew: what this process logged before, through its own filter, does not count."""
    caplog.set_level(logging.WARNING, "aiokafka")
    now = [1_000.0]
    filter_ = OnceAMinute(lambda: now[0])
    monkeypatch.setattr(log_rate_limit, "_once_a_minute", filter_)
    for name in LOGGERS:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    yield now
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).removeFilter(filter_)


def fail(times=100):
    """As aiokafka does while a broker is away."""
    for number in range(times):
        logging.getLogger("aiokafka").error("Unable connect to node with id %s: %s", 1, "[Errno 111] refused")
        logging.getLogger("aiokafka.test_kafka_log").warning("Got error produce response: %s", number)
        logging.getLogger("aiokafka").error("Unable to update metadata from %s", [1])


def test_a_broker_that_is_away_is_said_once_a_minute_with_the_cause(clock, caplog):
    with rate_limited():
        fail()
        clock[0] += MINUTE
        fail(1)
    assert [record.getMessage() for record in caplog.records] == [
        "Kafka does not answer; waiting for it: Unable connect to node with id 1: [Errno 111] refused",
        "Kafka does not answer; waiting for it: Unable connect to node with id 1: [Errno 111] refused (299 more "
        "such lines since the last one)",
    ]


@pytest.mark.regression("journey 106")
def test_a_cause_without_words_is_named(clock, caplog):
    with rate_limited():
        logging.getLogger("aiokafka").error("Unable connect to %s: %s", "one:9092", ConnectionResetError())
    assert caplog.records[0].getMessage().endswith("Unable connect to one:9092: ConnectionResetError")


def not_ready():
    """As aiokafka does after a broker's first start: for a group, and for a topic that was just created."""
    log, no_coordinator = logging.getLogger("aiokafka"), kafka_errors.GroupCoordinatorNotAvailableError()
    log.error("Group Coordinator Request failed: %s", no_coordinator)
    log.warning("Marking the coordinator dead (node %s)for group %s.", 1, "projector")
    logging.getLogger("aiokafka.test_kafka_log").warning(
        "Got error produce response on topic-partition %s, retrying. Error: %s",
        "frames-0",
        kafka_errors.NotLeaderForPartitionError,
    )


@pytest.mark.regression("journey 139")
def test_a_broker_that_answers_that_it_is_not_ready_is_a_warning_and_not_said_to_be_silent(clock, caplog):
    with rate_limited():
        not_ready()
        clock[0] += MINUTE
        not_ready()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "Kafka is not ready; waiting for it: Group Coordinator Request failed: [Error 15] "
            "GroupCoordinatorNotAvailableError",
        ),
        (
            "WARNING",
            "Kafka is not ready; waiting for it: Group Coordinator Request failed: [Error 15] "
            "GroupCoordinatorNotAvailableError (2 more such lines since the last one)",
        ),
    ]


@pytest.mark.regression("journey 139")
def test_an_outage_is_logged_after_a_broker_that_was_not_ready_and_its_end_is_not(clock, caplog):
    silent = kafka_errors.RequestTimedOutError()
    with rate_limited():
        not_ready()
        logging.getLogger("aiokafka").error("Group Coordinator Request failed: %s", silent)
        clock[0] += MINUTE / 2
        fail()
        clock[0] += MINUTE / 2 - 1
        not_ready()
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "Kafka is not ready",
        "Kafka does not answer",
    ]


def test_other_warnings_come_each_by_itself_and_what_is_no_warning_comes_always(clock, caplog):
    caplog.set_level(logging.INFO, "aiokafka")
    log = logging.getLogger("aiokafka.test_kafka_log")
    with rate_limited():
        for number in range(3):
            log.warning("one thing %s", number)
            log.error("another %d%%", number)
            log.info("by the way")
    said = [record.getMessage() for record in caplog.records]
    assert said == ["one thing 0", "another 0%", *["by the way"] * 3]


def test_what_other_clients_of_the_process_log_is_left_as_it_is(clock, caplog):
    with rate_limited():
        fail(1)
    caplog.clear()
    fail(10)
    assert len(caplog.records) == 30
    assert caplog.records[0].getMessage() == "Unable connect to node with id 1: [Errno 111] refused"


def test_tasks_that_a_client_of_ours_begins_are_its_own(clock, caplog):
    async def client():
        fail(1)

    async def program():
        with rate_limited():
            begun = asyncio.create_task(client())
        fail(1)
        await begun

    asyncio.run(program())
    assert len(caplog.records) == 3 + 1
