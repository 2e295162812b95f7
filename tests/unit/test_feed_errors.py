"""The feed raises all errors that are not transient."""

import asyncio

import pytest
from aiokafka import errors
from tests.support.brokers_in_memory import Brokers
from tests.support.feeds import (
    TOPIC,
    one_error,
    reading,
    soon,  # noqa: F401  # a fixture
)
from tests.support.turns import turns

pytestmark = pytest.mark.usefixtures("soon")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, errors.OffsetOutOfRangeError),
        (2, errors.CorruptRecordException),
        (29, errors.TopicAuthorizationFailedError),
        (-1, errors.UnknownError),
        (1_000, errors.UnknownError),
    ],
)
def test_an_error_that_stays_is_raised_with_its_place(code, error):
    async def run():
        brokers = Brokers(TOPIC, {0: 1, 3: 1, 5: 2})
        brokers.errors[3] = code
        async with reading(brokers, p0=0, p3=8, p5=0):
            await asyncio.Event().wait()

    raised = one_error(run)
    assert type(raised) is error
    assert f"{TOPIC}/3 from 8 on" in str(raised)
    assert f"error {code}." in str(raised)


def test_an_offset_that_the_log_does_not_have_is_an_error():
    async def run():
        async with reading(Brokers(TOPIC, {0: 1}), p0=5):
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.OffsetOutOfRangeError)


def test_an_answer_that_is_an_error_as_a_whole_is_one(monkeypatch):
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        monkeypatch.setattr(brokers, "_response", lambda built, _: built.RESPONSE_TYPE(0, 31, 0, []))
        async with reading(brokers, p0=0):
            await turns()
            brokers.quiet()
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.ClusterAuthorizationFailedError)


def test_a_request_that_no_broker_understands_is_an_error():
    class Old(Brokers):
        async def send(self, node, request):
            raise errors.IncompatibleBrokerVersion("too old")

    async def run():
        async with reading(Old(TOPIC, {0: 1}), p0=0):
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.IncompatibleBrokerVersion)


def test_half_a_batch_is_an_error_and_is_not_asked_for_again_and_again(monkeypatch):
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a" * 100)
        ((_, batch),) = brokers._logs[0]._batches
        monkeypatch.setattr(brokers._logs[0], "read", lambda *_: batch[:30])
        async with reading(brokers, p0=0):
            await asyncio.Event().wait()

    raised = one_error(run)
    assert isinstance(raised, errors.RecordTooLargeError)
    assert f"30 bytes of {TOPIC}/0 from 0 on" in str(raised)


def test_bytes_that_were_spoilt_are_an_error():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a")
        last, batch = brokers._logs[0]._batches[0]
        brokers._logs[0]._batches[0] = last, batch[:-3] + b"?" + batch[-2:]
        async with reading(brokers, p0=0):
            await asyncio.Event().wait()

    assert isinstance(one_error(run), errors.CorruptRecordException)
