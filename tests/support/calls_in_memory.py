"""A function call with its dependencies in memory, for orders of events that cannot be forced on servers."""

import asyncio
from contextlib import asynccontextmanager
from time import monotonic
from uuid import UUID

from tests.bounds import IN_PROCESS

from frameledger.context import LLMContext
from frameledger_services.functions import FunctionCallParams
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_lifecycle import CallLifecycle
from frameledger_services.functions.call_state import BackgroundTasks, CallDependencies
from frameledger_services.functions.execution import HandlerExecutor
from frameledger_services.functions.options import Options
from frameledger_services.functions.plan import CallPlan
from frameledger_services.store.call_snapshots import CallSnapshot

DISPATCH, FIRST_START, INTERRUPTION = UUID(int=1), UUID(int=2), UUID(int=3)


CALL = CallAttempt("scope", "c", 1, 0, "t", "f", {}, None, 1, "w", dispatched_by=DISPATCH)


class OneCall:
    """The status of one running call. The first status that is read is `age` seconds old."""

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
    """The status of a call without folded frames: it stays dispatched until it is settled."""

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
    """A publisher that keeps frames in a list, except those that the broker refuses."""

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


def dependencies(background, statuses, handlers=None, stop_secs=IN_PROCESS):
    """Returns the dependencies of calls besides their publisher, without hooks."""

    def params(call, plan, reporter):
        return FunctionCallParams("f", "t", {}, None, None, LLMContext, reporter, wait=reporter.wait)

    async def notify(*_): ...

    return CallDependencies(
        statuses=statuses,
        handlers=handlers or HandlerExecutor(),
        cancelled=NoHook(),
        background=background,
        stop_secs=stop_secs,
        notify=notify,
        params=params,
    )


async def run_call(
    function,
    options=None,
    *,
    statuses=None,
    handlers=None,
    is_async=True,
    meanwhile=None,
    leased=None,
    timeout_secs=10 * IN_PROCESS,
    stop_secs=IN_PROCESS,
    ending=None,
    call=CALL,
    **more,
):
    """Run a call to its end. Returns the frames that it published."""
    options, leased = options or Options(), leased or InMemory()
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        deps = dependencies(BackgroundTasks(tasks), statuses or OneCall(), handlers, stop_secs)
        plan = CallPlan(options, timeout_secs, function=function, is_async=is_async)
        lifecycle = CallLifecycle(call, plan, deps, leased, **more)
        if meanwhile is not None:
            meanwhile(lifecycle)
        how = await lifecycle.run()
        if ending is not None:
            ending.append(how)
    return leased.frames


def outcomes(frames):
    """Returns how each frame settles the call, or its type."""
    return [getattr(frame, "settled_as", None) or frame.type for frame in frames]
