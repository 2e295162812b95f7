"""Frames of a run that the broker rejects."""

import asyncio

import pytest
from tests.bounds import IN_PROCESS

from frameledger.frames import LLMFullResponseStartFrame, LLMTextFrame
from frameledger_services.claims import ClaimedRun
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.publish_errors import (
    RecordRefusedError,
    TooLargeError,
    UnacknowledgedError,
)
from frameledger_services.inference.run_publisher import RunPublisher
from frameledger_services.work import LeaseLostError
from frameledger_services.work import publisher as worker_publisher

RUN = ClaimedRun("effect", "ctx", 7, "run-1", 1, "claim", None)
FRAMES = (
    LLMFullResponseStartFrame(id="start", run_id="run-1"),
    LLMTextFrame(id="text", run_id="run-1", text="Hi"),
)


class Publisher:
    """Raises these errors, one for each publication, and then takes what comes."""

    def __init__(self, *errors):
        self._errors = list(errors)
        self.tried = []

    async def publish(self, context_id, *frames, causation_id):
        self.tried.append(frames)
        if self._errors:
            raise self._errors.pop(0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)


def publish(publishing):
    async def life():
        async with asyncio.timeout(IN_PROCESS):
            await publishing.publish("ctx", FRAMES)

    asyncio.run(life())


@pytest.mark.regression("worker 18")
def test_what_the_broker_does_not_take_is_published_again_and_not_left_to_another_attempt():
    away = (
        UnacknowledgedError("not in time", [None, None]),
        BrokerError("no broker answers"),
        RecordRefusedError("not allowed", [None, None]),
    )
    publisher = Publisher(*away)
    publish(RunPublisher(publisher, RUN))
    assert publisher.tried == [FRAMES] * 4


@pytest.mark.regression("worker 44")
def test_what_the_broker_refuses_is_an_error_and_what_it_does_not_take_yet_a_warning(caplog):
    away = UnacknowledgedError("not in time", [None, None]), BrokerError("no broker answers")
    refused = RecordRefusedError("not allowed", [None, None])
    publish(RunPublisher(Publisher(*away, refused), RUN))
    assert [
        (one.levelname, one.frameledger["event"], one.frameledger["reason"]) for one in caplog.records
    ] == [
        ("WARNING", "run.frames_not_published", "not in time"),
        ("WARNING", "run.frames_not_published", "no broker answers"),
        ("ERROR", "run.frames_refused", "not allowed"),
    ]


@pytest.mark.parametrize(
    "error", [TooLargeError("too large", [None]), ValueError("no JSON"), LeaseLostError()]
)
def test_what_is_never_taken_and_a_lost_lease_are_raised_at_once(error):
    publisher = Publisher(error)
    with pytest.raises(type(error)):
        publish(RunPublisher(publisher, RUN))
    assert publisher.tried == [FRAMES]


@pytest.mark.parametrize(("tried", "ending"), [(False, "untried"), (True, "release")])
def test_a_run_counts_as_an_attempt_once_something_may_be_on_the_log(tried, ending):
    publishing = RunPublisher(Publisher(LeaseLostError()), RUN)
    if tried:
        with pytest.raises(LeaseLostError):
            publish(publishing)
    assert publishing.if_released == ending
