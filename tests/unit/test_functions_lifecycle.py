"""One call with its dependencies in memory: for orders of events that servers do not keep to."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from uuid import UUID

import pytest
from tests.bounds import IN_PROCESS, scaled
from tests.support.turns import turns

from frameledger.context import LLMContext
from frameledger.frames import FunctionCallResultFrame, FunctionCallResultProperties
from frameledger.record import outgoing
from frameledger_services import call_words
from frameledger_services.claims import ClaimedRun
from frameledger_services.event_log.publish_errors import RecordRefusedError, TooLargeError
from frameledger_services.functions import (
    FunctionCallParams,
    ResultRefusedError,
    notifications,
)
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_lifecycle import CallLifecycle
from frameledger_services.functions.call_state import BackgroundTasks, CallDependencies
from frameledger_services.functions.execution import Execution, HandlerExecutor, NotBegun, Returned
from frameledger_services.functions.options import Options
from frameledger_services.functions.plan import CallPlan
from frameledger_services.store.tool_calls import CallSnapshot
from frameledger_services.work import Job, LeaseLostError
from frameledger_services.work import publisher as worker_publisher

DISPATCH, FIRST_START, INTERRUPTION = UUID(int=1), UUID(int=2), UUID(int=3)
CALL = CallAttempt("scope", "c", 1, 0, "t", "f", {}, None, 1, "w", dispatched_by=DISPATCH)


class OneCall:
    """Of one running call. The first read of it is `age` seconds old."""

    def __init__(self, *, age=0.0, interrupted=None):
        self._first, self._interrupted = self._status(monotonic() - age), interrupted

    async def read(self, call):
        return self._status(monotonic(), self._interrupted)

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, condition=None):
        folded = asyncio.get_running_loop().create_future()
        folded.set_result(self._first)
        yield folded

    @staticmethod
    def _status(asked_at, interrupted=None):
        return CallSnapshot(
            *(asked_at, 1, "applied"),
            status="running",
            worker="w",
            attempt=1,
            interrupted_version=interrupted,
            interrupted_by=None if interrupted is None else INTERRUPTION,
        )


class NeverFolded(OneCall):
    """Of a call of which no frame is folded: it is dispatched until it is settled."""

    async def read(self, call):
        return CallSnapshot(monotonic(), status="cancelled")

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, condition=None):
        yield asyncio.get_running_loop().create_future()


class NoHook:
    def call_begins(self, call): ...
    def call_ended(self, call): ...
    async def interrupted(self, call, version): ...
    def cancelled(self, call, version): ...


class InMemory:
    """A publisher that keeps frames in a list, but for those that the broker refuses."""

    def __init__(self, refused=lambda frame: None):
        self.frames = []
        self.causes = []
        self._refused = refused

    async def publish(self, context_id, *frames, causation_id):
        for frame in frames:
            if (error := self._refused(frame)) is not None:
                raise error
        self.frames += frames
        self.causes += [(frame.type, causation_id) for frame in frames]

    def may_publish(self):
        return True


def dependencies(background, statuses, handlers=None):
    """What calls need besides their publisher, without hooks."""

    def params(call, plan, reporter):
        return FunctionCallParams("f", "t", {}, None, None, LLMContext, reporter)

    async def notify(*_): ...

    return CallDependencies(
        statuses=statuses,
        handlers=handlers or HandlerExecutor(),
        cancelled=NoHook(),
        background=background,
        stop_secs=1.0,
        notify=notify,
        params=params,
    )


async def ended(
    function,
    options=None,
    *,
    statuses=None,
    handlers=None,
    is_async=True,
    meanwhile=None,
    leased=None,
    timeout_secs=5.0,
    ending=None,
    call=CALL,
    **more,
):
    """The frames of a call, once it has ended."""
    options, leased = options or Options(), leased or InMemory()
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        deps = dependencies(BackgroundTasks(tasks), statuses or OneCall(), handlers)
        plan = CallPlan(options, timeout_secs, function=function, is_async=is_async)
        lifecycle = CallLifecycle(call, plan, deps, leased, **more)
        if meanwhile is not None:
            meanwhile(lifecycle)
        how = await lifecycle.run()
        if ending is not None:
            ending.append(how)
    return leased.frames


def test_a_start_names_its_dispatch_and_what_follows_names_the_start():
    async def handler(params):
        raise ValueError("no")

    leased = InMemory()
    asyncio.run(ended(handler, leased=leased))
    assert leased.causes == [
        ("FunctionCallInProgressFrame", DISPATCH),
        ("ErrorFrame", CALL.in_progress_id),
        ("FunctionCallResultFrame", CALL.in_progress_id),
    ]


@pytest.mark.parametrize(
    ("before", "causes"),
    [
        ({}, [("FunctionCallResultFrame", FIRST_START)]),
        ({"interrupted_version": 7}, [("FunctionCallResultFrame", FIRST_START)]),
        (
            {"interrupted_version": 7, "interrupted_by": INTERRUPTION, "safe_to_retry": True},
            [("FunctionCallCancelFrame", INTERRUPTION)],
        ),
        (
            {"safe_to_retry": True},
            [("FunctionCallInProgressFrame", DISPATCH), ("FunctionCallResultFrame", CALL.in_progress_id)],
        ),
    ],
    ids=["unsafe", "unsafe and interrupted", "interrupted", "safe"],
)
def test_who_takes_a_call_over_settles_it_for_the_first_start_or_starts_it_again(before, causes):
    async def handler(params):
        return "done"

    leased = InMemory()
    started_before = CallSnapshot(monotonic(), status="running", worker="dead", attempt=1, **before)
    call = replace(CALL, attempt=2, started_by=FIRST_START)
    causes = [
        (name, call.in_progress_id if cause == CALL.in_progress_id else cause) for name, cause in causes
    ]
    options = Options(safe_to_retry=True)
    asyncio.run(ended(handler, options, leased=leased, call=call, started_before=started_before))
    assert leased.causes == causes


def test_a_handler_that_is_begun_again_may_still_report_after_it_returned():
    async def run():
        returned, tasks, answers = asyncio.Event(), [], []

        async def report(callback):
            await returned.wait()
            # As many turns as it takes until what was left of the first beginning has come.
            for _ in range(5):
                turn = asyncio.Event()
                asyncio.get_running_loop().call_soon(turn.set)
                await turn.wait()
            try:
                answers.append(await callback("later"))
            except ResultRefusedError as error:
                answers.append(error)

        async def handler(params):
            tasks.append(asyncio.create_task(report(params.result_callback)))
            returned.set()

        frames = await ended(
            handler, Options(), statuses=OneCall(age=60.0), handlers=HandlerExecutor(), is_async=True
        )
        await asyncio.gather(*tasks)
        assert answers == [None]
        assert frames[-1].result == "later"

    asyncio.run(run())


@pytest.mark.regression("repair 6")
def test_a_frame_that_a_handler_returns_is_its_final_result():
    between = FunctionCallResultProperties(is_final=False, run_llm=False)

    async def handler(params):
        return FunctionCallResultFrame(function_name="f", tool_call_id="t", result=[1], properties=between)

    frames = asyncio.run(ended(handler))
    assert frames[-1].result == [1]
    assert (frames[-1].properties.is_final, frames[-1].properties.run_llm) == (True, False)


def test_a_call_that_is_interrupted_while_its_handler_does_not_begin_is_cancelled():
    async def run():
        ran, begun = [], []

        class TooLate:
            """As a thread does it, in whose end the call is told to stop: it lets go of the callback, then ends."""

            def start(self, function, by_place, by_name, *, may_begin, ended, **_):
                execution = Execution(may_begin, ended)
                begun.append(execution)
                loop = asyncio.get_running_loop()
                if len(begun) == 1:
                    loop.call_soon(self._over, loop, execution, [by_place])
                else:
                    loop.call_soon(execution.end, Returned(function(*by_place, **by_name)))
                return execution

            def _over(self, loop, execution, held):
                held.clear()
                loop.call_soon(execution.end, NotBegun())
                loop.call_soon(tell[0])

        tell = []
        frames = await ended(
            lambda params: ran.append(True),
            Options(safe_to_retry=True),
            statuses=OneCall(interrupted=7),
            handlers=TooLate(),
            is_async=False,
            meanwhile=lambda lifecycle: tell.append(lambda: lifecycle.request_stop("obsolete")),
        )
        assert ran == []
        assert frames[-1].type == "FunctionCallCancelFrame"

    asyncio.run(run())


@pytest.mark.regression("worker 2")
def test_a_call_that_is_interrupted_while_an_older_status_is_on_its_way_is_not_begun():
    class SlowAnswer(OneCall):
        """The shared query was sent before the interruption was folded, and is answered after a later one."""

        @asynccontextmanager
        async def folding(self, context_id, frame_id, call=None, condition=None):
            self._folded = asyncio.get_running_loop().create_future()
            yield self._folded

        async def read(self, call):
            asyncio.get_running_loop().call_soon(self._answer, 5)
            return await super().read(call)

        def _answer(self, turns):
            if turns:
                asyncio.get_running_loop().call_soon(self._answer, turns - 1)
            elif not self._folded.done():
                self._folded.set_result(self._first)

    class Interrupted(InMemory):
        async def publish(self, context_id, *frames, causation_id):
            await super().publish(context_id, *frames, causation_id=causation_id)
            if frames[0].type == "FunctionCallInProgressFrame":
                lifecycles[0].request_stop("obsolete")

    lifecycles: list[CallLifecycle] = []
    begun: list[str] = []

    async def pay(params):
        begun.append("pay")
        return "paid"

    frames = asyncio.run(
        ended(pay, statuses=SlowAnswer(interrupted=7), leased=Interrupted(), meanwhile=lifecycles.append)
    )
    assert (said(frames), begun) == (["FunctionCallInProgressFrame", "FunctionCallCancelFrame"], [])
    assert frames[-1].run_llm is False


@pytest.mark.regression("worker 2")
def test_an_interruption_that_a_failover_lost_stops_its_call_once_it_is_folded_again():
    job = Job(ClaimedRun("e", "c", 1, "run", 1, "claim", None))

    class Failover(OneCall):
        """The first read is of a primary that has lost the interruption; the next heartbeat reports it again."""

        async def read(self, call):
            current = await super().read(call)
            self._interrupted = 7
            asyncio.get_running_loop().call_soon(job.request_stop, "obsolete")
            return current

    async def pay(params):
        job.request_stop("obsolete")
        await asyncio.Event().wait()

    frames = asyncio.run(
        ended(
            pay, statuses=Failover(), meanwhile=lambda lifecycle: job.on_stop_request(lifecycle.request_stop)
        )
    )
    assert said(frames) == ["FunctionCallInProgressFrame", "FunctionCallCancelFrame"]
    assert frames[-1].run_llm is False


def said(frames):
    """What the log has of a call, in short."""
    return [getattr(frame, "settled_as", None) or frame.type for frame in frames]


class ApiError(Exception):
    """An error whose `__str__` returns no string, so that `str` of it raises a TypeError."""

    def __init__(self, body):
        self.body = body

    def __str__(self):
        return self.body


@pytest.mark.regression("worker 1")
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_whose_error_has_no_text_ran_once_and_failed(plain):
    begun = []

    async def pay(params):
        begun.append("pay")
        # Otherwise a handler that begins again and again never yields to the event loop.
        await turns(1)
        raise ApiError({"code": 402})

    def in_a_thread(params):
        begun.append("pay")
        raise ApiError({"code": 402})

    frames = asyncio.run(ended(in_a_thread if plain else pay, is_async=not plain))
    assert (said(frames), begun) == (["FunctionCallInProgressFrame", "ErrorFrame", "failed"], ["pay"])
    assert "ApiError" in frames[1].message


class ClosedSession(Mapping):
    """A mapping that raises this error when its value is read, as encoding does."""

    def __init__(self, error):
        self._error = error

    def __getitem__(self, key):
        raise self._error

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


ENDS = SystemExit("Goodbye."), asyncio.CancelledError()
"""They would end the process, or the job."""


class Encoding(InMemory):
    """A publisher that encodes frames, as the real one does."""

    async def publish(self, context_id, *frames, causation_id):
        for frame in frames:
            outgoing(frame, context_id, source="test")
        await super().publish(context_id, *frames, causation_id=causation_id)


@pytest.mark.regression("worker 6")
@pytest.mark.parametrize(
    "error",
    [
        OSError("The session is closed."),
        ApiError({"code": 402}),
        *(pytest.param(error, marks=pytest.mark.regression("worker 49")) for error in ENDS),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("reports", [True, False])
def test_a_result_that_raises_when_it_is_encoded_fails_its_own_call_only(error, reports):
    told = []

    async def handler(params):
        if not reports:
            return ClosedSession(error)
        try:
            await params.result_callback(ClosedSession(error))
        except ResultRefusedError as refusal:
            told.append(str(refusal))

    frames = asyncio.run(ended(handler, leased=Encoding()))
    assert said(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "failed"]
    assert ["its result is not JSON" in text for text in told] == [True] * reports


@pytest.mark.regression("worker 6")
def test_a_result_in_between_that_raises_when_it_is_encoded_is_refused_and_its_call_goes_on():
    told = []

    async def handler(params):
        between = FunctionCallResultProperties(is_final=False)
        try:
            await params.result_callback(ClosedSession(OSError("Closed.")), properties=between)
        except ResultRefusedError as refusal:
            told.append(str(refusal))
        return "done"

    frames = asyncio.run(ended(handler, Options(cancel_on_interruption=False), leased=Encoding()))
    assert said(frames) == ["FunctionCallInProgressFrame", "FunctionCallResultFrame"]
    assert (frames[-1].result, len(told)) == ("done", 1)


@pytest.mark.regression("worker 10")
def test_the_time_to_fold_a_result_counts_from_when_it_was_published(monkeypatch):
    """The broker was away for longer than folding may take."""
    monkeypatch.setattr(notifications, "FOLDED_SECONDS", 0.0)
    called = asyncio.Event()

    class Away(InMemory):
        async def publish(self, context_id, *frames, causation_id):
            if frames[0].type == "FunctionCallResultFrame":
                # A limit that had begun before this is over now.
                await turns()
                monkeypatch.setattr(notifications, "FOLDED_SECONDS", IN_PROCESS)
                statuses.is_published.set()
            await super().publish(context_id, *frames, causation_id=causation_id)

    class Folds(OneCall):
        is_published = asyncio.Event()

        @asynccontextmanager
        async def folding(self, context_id, frame_id, call=None, condition=None):
            if call is not None:
                async with super().folding(context_id, frame_id) as folded:
                    yield folded
                return
            answering = asyncio.create_task(self._answer())
            yield answering
            answering.cancel()

        async def _answer(self):
            await self.is_published.wait()
            return self._first

    async def hook():
        called.set()

    async def handler(params):
        await params.result_callback("x", properties=FunctionCallResultProperties(on_context_updated=hook))

    statuses = Folds()

    async def run():
        await ended(handler, statuses=statuses, leased=Away())
        return called.is_set()

    assert asyncio.run(run())


@pytest.mark.regression("call a")
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_reports_and_then_raises_has_its_result_and_its_error_on_the_log(plain):
    async def handler(params):
        await params.result_callback("paid")
        raise RuntimeError("the receipt could not be printed")

    def in_a_thread(params):
        params.result_callback("paid")
        raise RuntimeError("the receipt could not be printed")

    frames = asyncio.run(ended(in_a_thread if plain else handler, is_async=not plain))
    assert said(frames) == ["FunctionCallInProgressFrame", "FunctionCallResultFrame", "ErrorFrame"]
    assert frames[1].result == "paid"
    assert "the receipt could not be printed" in frames[2].message


@pytest.mark.regression("call a")
def test_a_handler_that_raises_when_it_is_stopped_has_its_error_on_the_log():
    lifecycles: list[CallLifecycle] = []

    async def handler(params):
        lifecycles[0].request_stop("obsolete")
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("the door is stuck")

    statuses = OneCall(interrupted=7)
    frames = asyncio.run(
        ended(handler, Options(safe_to_retry=True), statuses=statuses, meanwhile=lifecycles.append)
    )
    assert said(frames) == ["FunctionCallInProgressFrame", "FunctionCallCancelFrame", "ErrorFrame"]
    assert "the door is stuck" in frames[2].message


@pytest.mark.regression("fault 6")
@pytest.mark.parametrize("safe", [True, False])
def test_a_result_that_the_broker_refuses_is_ambiguous_and_never_told_as_failed(safe, monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    told = []

    async def pay(params):
        try:
            await params.result_callback("paid")
        except ResultRefusedError as error:
            told.append(str(error))

    def refused(frame):
        is_result = frame.type == "FunctionCallResultFrame" and frame.settled_as is None
        return RecordRefusedError("Not authorized to write.", [None]) if is_result else None

    frames = asyncio.run(ended(pay, Options(safe_to_retry=safe), leased=InMemory(refused)))
    assert said(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "ambiguous"]
    assert "Not authorized to write." in frames[1].message
    assert "ended without a result" in told[0]


@pytest.mark.regression("fault 6")
def test_a_result_that_is_refused_for_a_moment_is_taken(monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    refusals = [RecordRefusedError("There is no leader.", [None])] * 2

    async def pay(params):
        return "paid"

    def refused(frame):
        return refusals.pop() if refusals and frame.type == "FunctionCallResultFrame" else None

    frames = asyncio.run(ended(pay, leased=InMemory(refused)))
    assert (said(frames)[-1], frames[-1].result) == ("FunctionCallResultFrame", "paid")


@pytest.mark.regression("fault 6")
def test_a_result_that_is_too_large_is_told_as_finished_and_too_large():
    async def look(params):
        return "much"

    def refused(frame):
        is_result = frame.type == "FunctionCallResultFrame" and frame.settled_as is None
        return TooLargeError("The record is too large.", [None]) if is_result else None

    frames = asyncio.run(ended(look, leased=InMemory(refused)))
    assert (said(frames)[-1], frames[-1].result) == ("failed", call_words.too_large("f"))


@pytest.mark.regression("fault 6")
@pytest.mark.parametrize("error", [RecordRefusedError, LeaseLostError])
def test_a_start_that_is_refused_ends_nothing_but_its_own_call(error, monkeypatch):
    """The task that publishes it runs in the task group of the whole service."""
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    refusals = [error("Not authorized.", [None]) if error is RecordRefusedError else error()] * 5

    async def pay(params):
        return "paid"

    def refused(frame):
        return refusals.pop() if refusals else None

    ending: list[str] = []
    frames = asyncio.run(
        ended(pay, statuses=NeverFolded(), leased=InMemory(refused), ending=ending, timeout_secs=0.2)
    )
    if error is RecordRefusedError:
        assert said(frames) == ["FunctionCallInProgressFrame", "FunctionCallCancelFrame"]
    else:
        assert (said(frames), ending) == ([], ["release"])


@pytest.mark.regression("fault 6")
def test_a_start_that_is_too_large_and_whose_cancel_is_refused_ends_nothing_but_its_own_call(monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    refusals = [RecordRefusedError("Not authorized.", [None])] * 5

    def refused(frame):
        if frame.type == "FunctionCallInProgressFrame":
            return TooLargeError("The record is too large.", [None])
        return refusals.pop() if refusals else None

    async def pay(params):
        return "paid"

    frames = asyncio.run(ended(pay, statuses=NeverFolded(), leased=InMemory(refused)))
    assert said(frames) == ["ErrorFrame", "FunctionCallCancelFrame"]


@pytest.mark.parametrize("says_by", ["reporting", "returning"])
def test_the_last_words_of_a_handler_at_its_deadline_are_its_result(says_by):
    async def handler(params):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # It was nearly done, and finishes.
            if says_by == "returning":
                return "done at last"
            await params.result_callback("done at last")
            raise

    frames = asyncio.run(ended(handler, timeout_secs=scaled(0.5)))
    assert (said(frames)[-1], frames[-1].result) == ("FunctionCallResultFrame", "done at last")


@pytest.mark.parametrize("safe", [True, False])
def test_a_handler_that_stops_at_its_deadline_without_a_word_is_cancelled_and_asks(safe):
    async def handler(params):
        await asyncio.Event().wait()

    frames = asyncio.run(ended(handler, Options(safe_to_retry=safe), timeout_secs=scaled(0.5)))
    assert (said(frames)[-1], frames[-1].run_llm) == ("FunctionCallCancelFrame", True)


@pytest.mark.regression("worker 19")
@pytest.mark.parametrize(("attempt", "ends"), [(1, "release"), (None, "done")])
def test_a_call_whose_start_is_not_folded_before_its_service_stops_is_left_only_where_another_worker_takes_it_over(
    attempt, ends
):
    async def handler(params):
        raise AssertionError("its start is not folded")

    ending: list[str] = []
    frames = asyncio.run(
        ended(
            handler,
            statuses=NeverFolded(),
            meanwhile=lambda lifecycle: lifecycle.request_stop("draining"),
            call=replace(CALL, attempt=attempt),
            ending=ending,
        )
    )
    assert ending == [ends]
    settled = [frame.settled_as for frame in frames if isinstance(frame, FunctionCallResultFrame)]
    assert settled == ([] if ends == "release" else ["failed"])


@pytest.mark.regression("worker 21")
@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_had_not_begun_when_its_service_stopped_is_told_as_not_run(is_async):
    begun: list[str] = []

    async def pay(params):
        begun.append("pay")

    def pay_plainly(params):
        begun.append("pay")

    frames = asyncio.run(
        ended(
            pay if is_async else pay_plainly,
            handlers=HandlerExecutor() if is_async else LateThreads(),
            is_async=is_async,
            # Its start is folded in the same moment.
            meanwhile=lambda lifecycle: lifecycle.request_stop("draining"),
        )
    )
    assert (said(frames), begun) == (["FunctionCallInProgressFrame", "failed"], [])
    assert "was not run" in frames[-1].result


@pytest.mark.regression("worker 21")
def test_a_plain_function_whose_thread_was_not_there_yet_does_not_begin_after_an_interruption():
    begun: list[str] = []

    class Interrupted(OneCall):
        """The interruption is folded after the start."""

        @asynccontextmanager
        async def folding(self, *more):
            asyncio.get_running_loop().call_soon(lifecycles[0].request_stop, "obsolete")
            async with super().folding(*more) as folded:
                yield folded

    lifecycles: list[CallLifecycle] = []

    def pay(params):
        begun.append("pay")

    frames = asyncio.run(
        ended(
            pay,
            statuses=Interrupted(interrupted=7),
            handlers=LateThreads(),
            is_async=False,
            meanwhile=lifecycles.append,
        )
    )
    assert (said(frames), begun) == (["FunctionCallInProgressFrame", "FunctionCallCancelFrame"], [])


class LateThreads(HandlerExecutor):
    """Handlers whose threads get processor time only once they were asked to stop."""

    def start(self, function, by_place, by_name, *, may_begin, **options):
        asked = threading.Event()

        def may_begin_late():
            assert asked.wait(IN_PROCESS)
            return may_begin()

        execution = super().start(function, by_place, by_name, may_begin=may_begin_late, **options)
        stop = execution.stop

        def stop_and_go_on():
            stop()
            asked.set()

        vars(execution)["stop"] = stop_and_go_on
        return execution
