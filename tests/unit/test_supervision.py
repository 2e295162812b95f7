"""A service continues after an outage of broker or database, and ends with any other error."""

import asyncio

import psycopg
import pytest
from aiokafka.errors import KafkaError
from structlog import get_logger
from structlog.testing import capture_logs
from tests.support.turns import turns

from frameledger_services import supervision

AWAY = psycopg.OperationalError("away")


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made."""
    made = []

    async def pause(_, seconds):
        made.append(seconds)

    monkeypatch.setattr(supervision, "pause", pause)
    return made


def keep_running(*attempts, lasting=0.0):
    """Each attempt raises its error, if it is one, after that many seconds; the last one is told to stop."""
    left = list(attempts)

    async def scenario():
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        now = loop.time()
        vars(loop)["time"] = lambda: now

        async def work():
            nonlocal now
            now += lasting
            error = left.pop(0)
            if not left:
                stopping.set()
            if error is not None:
                raise error

        await supervision.keep_running(work, stopping, get_logger())

    asyncio.run(scenario())
    return left


def test_pauses_double_while_errors_go_on(pauses):
    keep_running(*[AWAY] * 7)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_after_work_that_lasted_the_pause_is_short_again(pauses):
    keep_running(*[AWAY] * 3, lasting=supervision.LONGEST_PAUSE + 1)
    assert pauses == [0.5, 0.5, 0.5]


@pytest.mark.regression("fault 266")
def test_after_work_that_returned_the_pause_is_short_again(pauses):
    """As a worker's session does whose lease ended in an outage."""
    keep_running(AWAY, AWAY, None, AWAY, None)
    assert pauses == [0.5, 1.0, 0.5]


def test_work_that_returned_begins_again_at_once(pauses):
    assert keep_running(None, None, None) == []
    assert pauses == []


def test_an_outage_is_logged_with_its_reason(pauses):
    with capture_logs() as logs:
        keep_running(ExceptionGroup("tasks", [ExceptionGroup("more", [AWAY]), KafkaError()]), None)
    assert logs == [{"event": "service.retrying", "log_level": "warning", "reason": "away", "again_in": 0.5}]


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError()])
def test_any_other_error_ends_it_as_it_is(error, pauses):
    with pytest.raises(type(error)):
        keep_running(error, None)
    assert pauses == []


def test_of_a_group_the_errors_that_are_not_transient_end_it(pauses):
    with pytest.raises(ExceptionGroup) as raised:
        keep_running(ExceptionGroup("tasks", [AWAY, KeyError("a bug")]), None)
    assert [repr(one) for one in raised.value.exceptions] == ["KeyError('a bug')"]


@pytest.mark.regression("worker 178")
def test_a_cancellation_counts_that_comes_while_the_other_tasks_end_after_an_error(pauses):
    async def scenario():
        is_ending, may_end, stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def fails():
            raise AWAY

        async def slow_to_end():
            try:
                await asyncio.Event().wait()
            finally:
                is_ending.set()
                await may_end.wait()

        async def work():
            if may_end.is_set():
                stopping.set()
                return
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(slow_to_end())
                tasks.create_task(fails())

        running = asyncio.create_task(supervision.keep_running(work, stopping, get_logger()))
        await is_ending.wait()
        running.cancel()
        await turns()
        may_end.set()
        await asyncio.wait([running])
        return running.cancelled()

    assert asyncio.run(scenario())


def test_a_pause_lasts_until_its_time_is_over_or_it_is_told_to_stop():
    async def scenario():
        stopping = asyncio.Event()
        await supervision.pause(stopping, 0.01)
        pausing = asyncio.create_task(supervision.pause(stopping, float("inf")))
        await turns()
        assert not pausing.done()
        stopping.set()
        await pausing

    asyncio.run(scenario())
