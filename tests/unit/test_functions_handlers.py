"""Handlers without a server: their arguments, their results and their errors."""

import asyncio
import threading
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from tests.bounds import IN_PROCESS

from frameledger.context import LLMContext
from frameledger.frames import FunctionCallResultProperties
from frameledger_services.functions import FunctionCallParams, ResultRefusedError
from frameledger_services.functions.execution import (
    Execution,
    HandlerEnd,
    HandlerExecutor,
    NotBegun,
    Raised,
    Returned,
    Stopped,
)
from frameledger_services.functions.handler_api import from_anywhere
from frameledger_services.functions.reports import Inbox, Reporter, ReporterGone, ResultReport, WaitReport

executions: list[Execution] = []


async def turn():
    """Let the event loop do all that is due, a few times over."""
    for _ in range(3):
        done = asyncio.Event()
        asyncio.get_running_loop().call_soon(done.set)
        await done.wait()


async def outcome(function, *, is_async, may_begin=lambda: True, stop=False):
    ended = asyncio.get_running_loop().create_future()
    handlers = HandlerExecutor()
    execution = handlers.start(
        function, (), {}, is_async=is_async, name="f", may_begin=may_begin, ended=ended.set_result
    )
    executions.append(execution)
    if stop:
        execution.stop()
    async with asyncio.timeout(IN_PROCESS):
        return await ended


def test_a_handler_ends_by_what_it_returned_or_raised_or_because_it_was_stopped():
    async def returns():
        return 7

    async def raises():
        raise LookupError("x")

    async def waits():
        await asyncio.Event().wait()

    async def cancels_itself():
        raise asyncio.CancelledError

    async def stops_itself():
        executions[-1].stop()
        await asyncio.Event().wait()

    async def leaves():
        raise SystemExit(3)

    async def run():
        assert await outcome(returns, is_async=True) == Returned(7)
        assert await outcome(waits, is_async=True, stop=True) == NotBegun()
        assert await outcome(stops_itself, is_async=True) == Stopped()
        for function, word in [
            (raises, "LookupError: x"),
            (cancels_itself, "Cancelled"),
            (leaves, "SystemExit"),
        ]:
            ended = await outcome(function, is_async=True)
            assert isinstance(ended, Raised)
            assert word in ended.summary
            assert function.__name__ in ended.details

    asyncio.run(run())


@pytest.mark.regression("worker 1")
def test_a_handler_that_may_have_begun_is_never_said_not_to_have_begun():
    ends: list[HandlerEnd] = []
    for asked in (False, True):
        execution = Execution(lambda: True, ends.append)
        if asked:
            execution.may_begin()
        execution.end_unreported()
    assert ends[0] == NotBegun()
    assert isinstance(ends[1], Raised)


def test_a_plain_function_ends_likewise_in_a_thread():
    def raises():
        raise LookupError("x" * 100_000)

    async def run():
        assert await outcome(threading.get_ident, is_async=False) != Returned(threading.get_ident())
        raised = await outcome(raises, is_async=False)
        assert isinstance(raised, Raised)
        assert len(raised.details) < 10_000

    asyncio.run(run())


@pytest.mark.regression("worker 83")
def test_what_a_plain_function_returns_is_awaited_in_the_loop():
    """As of a decorator that is no async function, around one that is."""
    begun = []

    async def where():
        return threading.get_ident()

    async def raises():
        raise LookupError("x")

    async def stops_itself():
        executions[-1].stop()
        await asyncio.Event().wait()

    async def never():
        begun.append("never")

    entered, stopped = threading.Event(), threading.Event()

    def is_stopped_in_its_thread():
        entered.set()
        stopped.wait(IN_PROCESS)
        return never()

    async def run():
        assert await outcome(lambda: where(), is_async=False) == Returned(threading.get_ident())
        raised = await outcome(lambda: raises(), is_async=False)
        assert isinstance(raised, Raised)
        assert raised.summary == "LookupError: x"
        assert await outcome(lambda: stops_itself(), is_async=False) == Stopped()
        ending = asyncio.create_task(outcome(is_stopped_in_its_thread, is_async=False))
        await asyncio.to_thread(entered.wait, IN_PROCESS)
        executions[-1].stop()
        stopped.set()
        assert (await ending, begun) == (Stopped(), [])

    asyncio.run(run())


@pytest.mark.regression("worker 25")
def test_a_plain_function_for_which_there_is_no_thread_fails_and_nothing_else_does(monkeypatch):
    def no_more(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    ended = asyncio.run(outcome(lambda: "never", is_async=False))
    assert isinstance(ended, Raised)
    assert ended.summary == "RuntimeError: can't start new thread"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_may_not_begin_does_not(is_async):
    ran = []

    async def handler():
        ran.append(True)

    async def run():
        function = handler if is_async else lambda: ran.append(True)
        ended = await outcome(function, is_async=is_async, may_begin=lambda: False)
        assert ended == NotBegun()

    asyncio.run(run())
    assert ran == []


def test_one_that_ignores_its_cancellation_is_counted():
    async def run():
        leave, entered = asyncio.Event(), asyncio.Event()

        async def stubborn():
            while not leave.is_set():
                entered.set()
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    continue

        handlers = HandlerExecutor()
        handlers.start(
            stubborn, (), {}, is_async=True, name="f", may_begin=lambda: True, ended=lambda _: None
        )
        await entered.wait()
        assert await handlers.stop(0.05) == 1
        leave.set()
        assert await handlers.stop(5) == 0

    asyncio.run(run())


def test_what_a_plain_function_returns_after_all_were_stopped_is_not_begun():
    entered, stopped = threading.Event(), threading.Event()
    begun = []

    async def rest():
        begun.append("rest")

    def function():
        entered.set()
        stopped.wait(IN_PROCESS)
        return rest()

    async def run():
        ended = asyncio.get_running_loop().create_future()
        handlers = HandlerExecutor()
        handlers.start(
            function, (), {}, is_async=False, name="f", may_begin=lambda: True, ended=ended.set_result
        )
        assert await asyncio.to_thread(entered.wait, IN_PROCESS)
        assert await handlers.stop(IN_PROCESS) == 0
        stopped.set()
        async with asyncio.timeout(IN_PROCESS):
            assert (await ended, begun) == (Stopped(), [])

    asyncio.run(run())


def test_what_is_said_arrives_from_the_loop_and_from_a_thread():
    async def run():
        loop, heard = asyncio.get_running_loop(), []

        def put(message):
            heard.append(message)
            message.reply.set_result(None)

        reporter = Reporter(loop, put, lambda: None)
        await reporter(1)
        # The properties by place too, as the documents have it.
        await asyncio.to_thread(reporter, 2, FunctionCallResultProperties(is_final=False))
        await reporter.wait(for_="a word", deadline=datetime(2026, 1, 1, tzinfo=UTC))
        assert [(type(one), getattr(one, "result", None)) for one in heard] == [
            (ResultReport, 1),
            (ResultReport, 2),
            (WaitReport, None),
        ]
        assert [heard[0].is_final, heard[1].is_final] == [True, False]
        assert heard[2].waiting.deadline == "2026-01-01T00:00:00+00:00"
        with pytest.raises(ValueError, match="time zone"):
            reporter.wait(for_="a word", deadline="2026-01-01T00:00:00")
        before = datetime.now(UTC)
        await reporter.wait(for_="a word", deadline=timedelta(hours=1))
        assert datetime.fromisoformat(heard[3].waiting.deadline) >= before + timedelta(hours=1)

    asyncio.run(run())


@pytest.mark.regression("worker 141")
@pytest.mark.parametrize(
    ("deadline", "told"),
    [
        (60, "60 is not a time; give a datetime"),
        (date(2026, 1, 1), r"datetime\.date\(2026, 1, 1\) is not a time"),
        (timedelta.max, "out of range"),
    ],
    ids=["seconds", "date", "endless"],
)
def test_a_deadline_that_is_no_time_is_a_value_error(deadline, told):
    async def run():
        reporter: Any = Reporter(asyncio.get_running_loop(), lambda _: None, lambda: None)
        with pytest.raises(ValueError, match=told):
            reporter.wait(for_="a word", deadline=deadline)

    asyncio.run(run())


def test_a_cancelled_handler_takes_nothing_back():
    async def run():
        heard: list[ResultReport] = []
        reporter = Reporter(asyncio.get_running_loop(), heard.append, lambda: None)

        async def handler():
            await reporter("done")

        task = asyncio.create_task(handler())
        await turn()
        assert heard
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not heard[0].reply.cancelled()

    asyncio.run(run())


def test_when_nobody_holds_the_callback_that_is_told():
    async def run():
        gone = asyncio.Event()
        reporter = Reporter(asyncio.get_running_loop(), lambda _: None, gone.set)
        params = FunctionCallParams("f", "c", {}, None, None, LLMContext(), reporter, wait=reporter.wait)
        del reporter
        await turn()
        assert not gone.is_set()
        del params
        async with asyncio.timeout(IN_PROCESS):
            await gone.wait()

    asyncio.run(run())


def test_an_inbox_keeps_the_last_word_and_refuses_what_came_before():
    async def run():
        inbox = Inbox(lambda: ResultRefusedError("over"))
        heard = []

        def put(message):
            heard.append(message)
            inbox.put(message)

        reporter = Reporter(asyncio.get_running_loop(), put, lambda: None)
        halfway = reporter("half", properties=FunctionCallResultProperties(is_final=False))
        whole = reporter("whole")
        await turn()
        assert len(heard) == 2
        inbox.put(ReporterGone())
        inbox.put(Returned(None))
        assert inbox.take_last() is heard[1]
        with pytest.raises(ResultRefusedError):
            await halfway
        assert inbox.take_last() == Returned(None)
        # How the handler ended stays known.
        assert inbox.take_last() == Returned(None)
        assert inbox.reporter_gone
        inbox.close()
        late = reporter("late")
        with pytest.raises(ResultRefusedError):
            await late
        heard[1].reply.set_result(None)
        await whole

    asyncio.run(run())


def test_an_answer_of_the_loop_is_awaited_there_and_returned_in_a_thread():
    async def run():
        loop = asyncio.get_running_loop()

        async def text():
            return "text"

        assert await from_anywhere(loop, text()) == "text"
        assert await asyncio.to_thread(lambda: from_anywhere(loop, text())) == "text"

    asyncio.run(run())


def test_parameters_are_frozen_and_load_their_context_once():
    loads = []

    def load():
        loads.append(True)
        return LLMContext()

    params = FunctionCallParams("f", "c", {"a": 1}, None, None, load, None, app_resources="shared")
    assert loads == []
    assert params.context is params.context
    assert loads == [True]
    with pytest.raises(FrozenInstanceError):
        params.arguments = {}
    with pytest.raises(FrozenInstanceError):
        del params.arguments
    with pytest.warns(DeprecationWarning, match="app_resources"):
        assert params.tool_resources == "shared"
    with pytest.raises(ResultRefusedError, match="cannot wait"):
        params.wait(for_="a person")
    assert "'f', 'c', {'a': 1}" in repr(params)
