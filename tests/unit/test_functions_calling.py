"""One call with its surroundings in memory: what needs an order of events that servers do not keep to."""

import asyncio
from contextlib import asynccontextmanager
from time import monotonic

from frameledger.context import LLMContext
from frameledger_services.functions import FunctionCallParams, ResultRefusedError
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.calling import Calling
from frameledger_services.functions.handling import Execution, Handlers, NotBegun, Returned
from frameledger_services.functions.ledger import Standing
from frameledger_services.functions.options import Options
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.surroundings import Surroundings
from frameledger_services.functions.tails import Tails

CALL = Call("scope", "c", 1, 0, "t", "f", {}, None, 1, "w")


class OneLedger:
    """Of one running call. The first read of it is `age` seconds old."""

    def __init__(self, *, age=0.0, interrupted=None):
        self._first, self._interrupted = self._standing(monotonic() - age), interrupted

    async def standing(self, call):
        return self._standing(monotonic(), self._interrupted)

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, enough=None):
        folded = asyncio.get_running_loop().create_future()
        folded.set_result(self._first)
        yield folded

    @staticmethod
    def _standing(asked_at, interrupted=None):
        return Standing(
            asked_at, 1, "applied", status="running", worker="w", attempt=1, interrupted_version=interrupted
        )


class NoActs:
    def entered(self, call): ...
    def left(self, call): ...
    async def joined(self, call, version): ...
    def cancelled(self, call, version): ...


class OnPaper:
    """Hands that write frames down."""

    def __init__(self):
        self.frames = []

    async def publish(self, context_id, *frames):
        self.frames += frames

    def may_publish(self):
        return True


async def ended(function, options, *, ledger, handlers, is_async, meanwhile=None):
    """The frames of a call, once it has ended."""
    hands = OnPaper()

    def params(call, plan, reporter):
        return FunctionCallParams("f", "t", {}, None, None, LLMContext, reporter)

    async def notify(*_): ...

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        around = Surroundings(ledger, handlers, NoActs(), Tails(tasks), 1.0, notify, params)
        plan = Plan(options, 5.0, function=function, is_async=is_async)
        calling = Calling(CALL, plan, around, hands)
        if meanwhile is not None:
            meanwhile(calling)
        await calling.run()
    return hands.frames


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
            handler, Options(), ledger=OneLedger(age=60.0), handlers=Handlers(), is_async=True
        )
        await asyncio.gather(*tasks)
        assert answers == [None]
        assert frames[-1].result == "later"

    asyncio.run(run())


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
            ledger=OneLedger(interrupted=7),
            handlers=TooLate(),
            is_async=False,
            meanwhile=lambda calling: tell.append(lambda: calling.tell("over")),
        )
        assert ran == []
        assert frames[-1].type == "FunctionCallCancelFrame"

    asyncio.run(run())
