"""The start, the interruption and the stop of one call, with its dependencies in memory."""

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic

import pytest
from tests.bounds import IN_PROCESS
from tests.support.calls_in_memory import (
    CALL,
    DISPATCH,
    FIRST_START,
    INTERRUPTION,
    InMemory,
    NeverFolded,
    OneCall,
    outcomes,
    run_call,
)
from tests.support.turns import turns

from frameledger.frames import FunctionCallResultFrame, FunctionCallResultProperties
from frameledger_services.claims import ClaimedRun
from frameledger_services.functions import ResultRefusedError
from frameledger_services.functions.call_lifecycle import MAX_DEATHS, CallLifecycle
from frameledger_services.functions.execution import Execution, HandlerExecutor, NotBegun, Returned
from frameledger_services.functions.options import Options
from frameledger_services.store.call_snapshots import CallSnapshot
from frameledger_services.work import Ending, Job


def test_a_start_names_its_dispatch_and_what_follows_names_the_start():
    async def handler(params):
        raise ValueError("no")

    leased = InMemory()
    asyncio.run(run_call(handler, leased=leased))
    assert leased.causes == [
        ("FunctionCallInProgressFrame", DISPATCH),
        ("ErrorFrame", CALL.in_progress_id),
        ("FunctionCallResultFrame", CALL.in_progress_id),
    ]


@pytest.mark.regression("journey 129")
@pytest.mark.parametrize("is_first", [True, False])
def test_a_report_that_is_not_awaited_counts_before_the_end_of_its_handler(is_first):
    """Otherwise a refund that was to wait for a person would be told to the model as completed."""

    async def reports(params):
        if not is_first:
            await turns(1)
        params.result_callback("told")

    async def waits(params):
        if not is_first:
            await turns(1)
        params.wait(for_="Anna")

    *_, result = asyncio.run(run_call(reports))
    assert result.result == "told"
    *_, waiting = asyncio.run(run_call(waits))
    assert waiting.waiting.for_ == "Anna"


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
    asyncio.run(run_call(handler, options, leased=leased, call=call, started_before=started_before))
    assert leased.causes == causes


@pytest.mark.regression("worker 105")
@pytest.mark.parametrize(
    ("before", "left_alone"),
    [
        ({"status": "waiting"}, True),
        ({"status": "done"}, True),
        ({"status": "waiting", "interrupted_version": 7}, False),
        ({"status": "running"}, False),
        ({}, False),
    ],
    ids=["waiting", "settled", "waiting and interrupted", "running", "not in the tables"],
)
def test_who_takes_over_a_call_that_waits_meanwhile_leaves_it_to_the_answer(before, left_alone):
    async def handler(params):
        raise AssertionError

    ending: list[Ending] = []
    frames = asyncio.run(
        run_call(
            handler,
            call=replace(CALL, attempt=2, started_by=FIRST_START),
            started_before=CallSnapshot(monotonic(), worker="dead", attempt=1, **before),
            ending=ending,
        )
    )
    expected = ([], ["over"]) if left_alone else (["ambiguous"], ["done"])
    assert (outcomes(frames), ending) == expected


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

        frames = await run_call(
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

    frames = asyncio.run(run_call(handler))
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
        frames = await run_call(
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
        run_call(pay, statuses=SlowAnswer(interrupted=7), leased=Interrupted(), meanwhile=lifecycles.append)
    )
    assert (outcomes(frames), begun) == (["FunctionCallInProgressFrame", "FunctionCallCancelFrame"], [])
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
        run_call(
            pay, statuses=Failover(), meanwhile=lambda lifecycle: job.on_stop_request(lifecycle.request_stop)
        )
    )
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "FunctionCallCancelFrame"]
    assert frames[-1].run_llm is False


UNTIL_ITS_DEADLINE = IN_PROCESS / 2


def its_deadline_comes():
    """Moves the clock of the loop."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    vars(loop)["time"] = lambda: clock() + UNTIL_ITS_DEADLINE


@pytest.mark.parametrize("says_by", ["reporting", "returning"])
def test_the_last_words_of_a_handler_at_its_deadline_are_its_result(says_by):
    async def handler(params):
        its_deadline_comes()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # It was nearly done, and finishes.
            if says_by == "returning":
                return "done at last"
            await params.result_callback("done at last")
            raise

    frames = asyncio.run(run_call(handler, timeout_secs=UNTIL_ITS_DEADLINE))
    assert (outcomes(frames)[-1], frames[-1].result) == ("FunctionCallResultFrame", "done at last")


@pytest.mark.parametrize("safe", [True, False])
def test_a_handler_that_stops_at_its_deadline_without_a_word_is_cancelled_and_asks(safe):
    async def handler(params):
        its_deadline_comes()
        await asyncio.Event().wait()

    frames = asyncio.run(run_call(handler, Options(safe_to_retry=safe), timeout_secs=UNTIL_ITS_DEADLINE))
    assert (outcomes(frames)[-1], frames[-1].run_llm) == ("FunctionCallCancelFrame", True)


@pytest.mark.regression("worker 19")
@pytest.mark.parametrize(("attempt", "ends"), [(1, "release"), (None, "done")])
def test_a_call_whose_start_is_not_folded_before_its_service_stops_is_left_only_where_another_worker_takes_it_over(
    attempt, ends
):
    async def handler(params):
        raise AssertionError("its start is not folded")

    ending: list[str] = []
    frames = asyncio.run(
        run_call(
            handler,
            statuses=NeverFolded(),
            meanwhile=lambda lifecycle: lifecycle.request_stop("draining"),
            call=replace(CALL, attempt=attempt),
            ending=ending,
            stop_secs=0.1,
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
        run_call(
            pay if is_async else pay_plainly,
            handlers=HandlerExecutor() if is_async else LateThreads(),
            is_async=is_async,
            # Its start is folded in the same moment.
            meanwhile=lambda lifecycle: lifecycle.request_stop("draining"),
        )
    )
    assert (outcomes(frames), begun) == (["FunctionCallInProgressFrame", "failed"], [])
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
        run_call(
            pay,
            statuses=Interrupted(interrupted=7),
            handlers=LateThreads(),
            is_async=False,
            meanwhile=lifecycles.append,
        )
    )
    assert (outcomes(frames), begun) == (["FunctionCallInProgressFrame", "FunctionCallCancelFrame"], [])


@pytest.mark.regression("worker 119")
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("interrupted", [7, None])
def test_a_handler_does_not_begin_while_its_call_is_read_for_an_interruption(interrupted, is_async):
    reading, decided = threading.Event(), threading.Event()
    begun: list[str] = []
    lifecycles: list[CallLifecycle] = []

    async def at_the_last_moment(step):
        if step == "before the handler" and not reading.is_set():
            lifecycles[0].request_stop("obsolete")

    class ReadLate(OneCall):
        async def read(self, call):
            reading.set()
            assert await asyncio.to_thread(decided.wait, IN_PROCESS)
            assert begun == []
            return await super().read(call)

    class BeginsWhileItIsRead(HandlerExecutor):
        """Handlers whose tasks and threads get processor time only then."""

        def start(self, function, by_place, by_name, *, may_begin, **options):
            def may_begin_late():
                assert reading.wait(IN_PROCESS)
                may = may_begin()
                decided.set()
                return may

            return super().start(function, by_place, by_name, may_begin=may_begin_late, **options)

    async def pay(params):
        begun.append("pay")
        await params.result_callback("paid")

    def pay_plainly(params):
        begun.append("pay")
        params.result_callback("paid")

    frames = asyncio.run(
        run_call(
            pay if is_async else pay_plainly,
            statuses=ReadLate(interrupted=interrupted),
            failpoint=at_the_last_moment,
            handlers=BeginsWhileItIsRead(),
            is_async=is_async,
            meanwhile=lifecycles.append,
        )
    )
    if interrupted:
        assert (outcomes(frames), begun) == (["FunctionCallInProgressFrame", "FunctionCallCancelFrame"], [])
    else:
        # It was meant for an earlier call with this id.
        assert (outcomes(frames), begun) == (
            ["FunctionCallInProgressFrame", "FunctionCallResultFrame"],
            ["pay"],
        )


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


@pytest.mark.regression("worker 57")
def test_results_that_come_faster_than_they_are_published_do_not_put_off_the_deadline():
    running: list[CallLifecycle] = []
    between = FunctionCallResultProperties(is_final=False)

    class PastTheDeadline(InMemory):
        async def publish(self, context_id, *frames, causation_id):
            await super().publish(context_id, *frames, causation_id=causation_id)
            if isinstance(frames[0], FunctionCallResultFrame):
                running[0]._state.deadline = 0.0

    async def handler(params):
        reports = [params.result_callback(number, properties=between) for number in range(3)]
        await asyncio.gather(*reports, return_exceptions=True)
        await asyncio.Event().wait()

    frames = asyncio.run(
        run_call(
            handler,
            Options(cancel_on_interruption=False),
            leased=PastTheDeadline(),
            meanwhile=running.append,
        )
    )
    assert outcomes(frames) == [
        "FunctionCallInProgressFrame",
        "FunctionCallResultFrame",
        "FunctionCallCancelFrame",
    ]


@pytest.mark.regression("worker 67")
@pytest.mark.parametrize(
    "on_the_log", [True, False], ids=["its start is on the log", "not even its start is"]
)
@pytest.mark.parametrize(
    ("attempt", "deaths", "runs"),
    [
        (MAX_DEATHS, MAX_DEATHS - 1, True),
        (MAX_DEATHS + 1, MAX_DEATHS, False),
        pytest.param(100, 0, True, marks=pytest.mark.regression("worker 73")),
    ],
)
def test_a_function_that_its_workers_never_survive_is_not_run_for_ever(attempt, deaths, runs, on_the_log):
    ran = []

    async def handler(params):
        ran.append(params)
        return "done"

    before = CallSnapshot(monotonic(), status="running", worker="dead", attempt=1, safe_to_retry=True)
    frames = asyncio.run(
        run_call(
            handler,
            Options(safe_to_retry=True),
            call=replace(CALL, attempt=attempt, deaths=deaths, started_by=FIRST_START),
            started_before=before if on_the_log else None,
        )
    )
    how = "FunctionCallResultFrame" if runs else "failed"
    assert (outcomes(frames), bool(ran)) == (["FunctionCallInProgressFrame", how], runs)


class FoldedWhileRead(OneCall):
    """Of a call whose start is folded while its status is read: after the database has answered, before the answer is
    here."""

    def __init__(self):
        super().__init__()
        self._folded = asyncio.get_running_loop().create_future()

    async def read(self, call):
        answer = CallSnapshot(monotonic(), status="dispatched")
        if self._folded.done():
            return self._status(monotonic())
        self._folded.set_result(self._first)
        await turns()
        return answer

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, condition=None):
        yield self._folded


@pytest.mark.regression("worker 176")
def test_a_start_that_is_folded_while_the_status_is_read_begins_the_handler_at_once():
    """The call was asked to stop, as one before it with the same id was to."""

    async def handler(params):
        return "done"

    async def run():
        statuses = FoldedWhileRead()
        return await run_call(
            handler,
            statuses=statuses,
            timeout_secs=10 * IN_PROCESS,
            meanwhile=lambda lifecycle: lifecycle.request_stop("obsolete"),
        )

    assert outcomes(asyncio.run(run())) == ["FunctionCallInProgressFrame", "FunctionCallResultFrame"]
