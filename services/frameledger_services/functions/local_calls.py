"""Calls that an application announces itself and runs in this process without a claim: `run_function_calls`.

Their model is not run by an inference service. If the process dies, or its worker loses its lease, which stops the
handlers, no other worker takes the calls over. Soon after, the timekeeper settles those that had started and those that
waited after them in their batch; calls of a batch in which none had started are settled at their deadlines.

A program that is cancelled while it waits for its calls does not leave them to their deadlines: the batch runs in a
task of the service, which then stops the handlers and settles the calls, as at the end of the process.

With `run_in_parallel=False` each context has one queue across batches, in the order of their announcement here. The
deadline of a call counts from when it is first in the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame
from frameledger_services import logs, supervision, work
from frameledger_services.exception_groups import sole
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.announcing import (
    OPEN_ALREADY,
    Announced,
    CallsRefusedError,
    announce,
    read_while_leased,
)
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_lifecycle import CallLifecycle
from frameledger_services.functions.call_state import CallDependencies, JobPublisher
from frameledger_services.functions.plan import CallPlan
from frameledger_services.functions.queues import Queues
from frameledger_services.store.call_snapshots import CallSnapshot
from frameledger_services.store.connections import DatabaseError

_log = logs.get_logger("functions")


@dataclass(eq=False, slots=True)
class _Batch:
    """The calls of one announcement, while they run or wait for their turn."""

    session: work.Session
    context_id: str
    announcement: FunctionCallsStartedFrame
    causation_id: UUID | str | None
    running: set[CallLifecycle] = field(default_factory=set)
    stopping: bool = False
    """Whether the process ends, or the caller no longer waits for the calls."""

    error: Exception | None = None
    """What ended it before its calls, if anything did."""

    def stop(self) -> None:
        """Ask its calls to stop, including those whose turn comes later. May be called again."""
        self.stopping = True
        for lifecycle in tuple(self.running):
            lifecycle.request_stop("draining")


class LocalCalls:
    """Announces batches of calls, and runs them."""

    def __init__(
        self,
        deps: CallDependencies,
        plan: Callable[[CallAttempt], Awaitable[CallPlan]],
        failpoint: Failpoint,
    ) -> None:
        self._deps = deps
        self._plan = plan
        self._failpoint = failpoint
        self._queues = Queues()
        self._batches: set[_Batch] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def drain(self, within: float, grace: float) -> None:
        """Wait `within` seconds for the calls that run or wait for their turn, ask the rest to stop, and wait `grace`
        seconds for them. Calls whose turn comes after that are asked to stop at once."""
        for seconds in (within, grace):
            await supervision.pause(self._idle, seconds)
            self._draining = True
            for batch in tuple(self._batches):
                batch.stop()

    async def run(
        self,
        session: work.Session,
        context_id: str,
        function_calls: Sequence[FunctionCallFromLLM],
        *,
        group_id: str | None,
        run_in_parallel: bool,
        group_parallel_tools: bool,
        causation_id: UUID | str | None,
    ) -> None:
        """Returns when all have settled, or wait for a person. Raises TimeoutError if they are not folded in time, and
        `CallsRefusedError`, after the others have run, for calls that the conversation did not accept. If it is
        cancelled, the calls are asked to stop and are settled afterwards. `causation_id` is the cause of their
        announcement, which is the cause of their starts.
        """
        announcement = FunctionCallsStartedFrame(
            id=str(uuid4()),
            function_calls=tuple(function_calls),
            group_id=group_id,
            run_in_parallel=run_in_parallel,
            group_parallel_tools=group_parallel_tools,
        )
        batch = _Batch(session, context_id, announcement, causation_id)
        task = self._deps.background.start(self._note_end(batch))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            batch.stop()
            raise
        if task.cancelled() or task.exception() is not None:
            # The service ended before the calls did, or before the task had its first step.
            raise work.LeaseLostError
        if batch.error is not None:
            raise batch.error

    async def _note_end(self, batch: _Batch) -> None:
        """Run a batch, in a task of the service: an error is raised to the caller that waits, and does not end the
        service."""
        try:
            await self._run_batch(batch)
        except Exception as error:
            batch.error = error

    async def _run_batch(self, batch: _Batch) -> None:
        with self._registered(batch):
            if batch.announcement.run_in_parallel:
                announced = await self._announce(batch)
                await self._run_parallel(batch, announced.calls)
            else:
                async with self._queues.entry(batch.context_id) as entry:
                    async with entry.enter_lock:
                        announced = await self._announce(batch)
                    await entry.until_first()
                    await self._run_in_order(batch, announced.calls)
            if announced.refused:
                raise CallsRefusedError(batch.context_id, OPEN_ALREADY, announced.refused)

    async def _announce(self, batch: _Batch) -> Announced:
        if self._draining or batch.stopping:
            # The worker may leave before the calls are settled, and nothing else settles them before their deadlines.
            raise work.LeaseLostError
        return await announce(
            self._deps.statuses, batch.session, batch.context_id, batch.announcement, batch.causation_id
        )

    async def _run_parallel(self, batch: _Batch, calls: Sequence[CallAttempt]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for call in calls:
                    in_progress = asyncio.Event()
                    task = tasks.create_task(self._run_call(batch, call, in_progress.set))
                    # In-progress frames are published in the order of the calls.
                    waiting = tasks.create_task(in_progress.wait())
                    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
        except BaseExceptionGroup as errors:
            if errors.split(work.LeaseLostError)[1] is None:
                raise work.LeaseLostError from None
            raise sole(errors) from None

    async def _run_in_order(self, batch: _Batch, calls: Sequence[CallAttempt]) -> None:
        for call in calls:
            if await self._may_start(call):
                await self._run_call(batch, call)

    async def _may_start(self, call: CallAttempt) -> bool:
        """Returns whether the call was neither erased nor cancelled while it waited for its turn. If the database does
        not answer, the fold of its start decides."""
        try:
            current = await self._deps.statuses.read(call)
        except DatabaseError as error:
            _log.warning("call.status_unreadable", **call.names(), error=str(error))
            return True
        return not current.erased and (current.status is None or current.is_open)

    async def _run_call(
        self,
        batch: _Batch,
        call: CallAttempt,
        start_next: Callable[[], None] = lambda: None,
    ) -> None:
        session = batch.session
        lifecycle = CallLifecycle(
            call,
            await read_while_leased(session, lambda: self._plan(call), **call.names()),
            self._deps,
            JobPublisher(session),
            start_next=start_next,
            failpoint=self._failpoint,
        )
        if self._draining or batch.stopping:
            lifecycle.request_stop("draining")
        background = self._deps.background
        watching = background.start(self._watch(call, lifecycle))
        leased = background.start(_stop_with_lease(session, lifecycle))
        batch.running.add(lifecycle)
        try:
            ending = await lifecycle.run()
        finally:
            watching.cancel()
            leased.cancel()
            batch.running.discard(lifecycle)
        if ending == "release" and not session.lease.valid():
            raise work.LeaseLostError

    async def _watch(self, call: CallAttempt, lifecycle: CallLifecycle) -> None:
        """Watch the call's status, because no cancellation is sent for a call without a claim."""
        async with self._deps.statuses.folding(call.context_id, call.in_progress_id, call, _is_over) as over:
            await over
            lifecycle.request_stop("obsolete")

    @contextmanager
    def _registered(self, batch: _Batch) -> Iterator[None]:
        self._batches.add(batch)
        self._idle.clear()
        try:
            yield
        finally:
            self._batches.discard(batch)
            if not self._batches:
                self._idle.set()


async def _stop_with_lease(session: work.Session, lifecycle: CallLifecycle) -> None:
    """Stop the call when the lease ends. A worker stops only calls that it claimed; the timekeeper soon settles those
    without a claim, and the model may make them again, so their handlers must not run any more."""
    await session.lease.until_ended()
    lifecycle.request_stop("claim_lost")


def _is_over(current: CallSnapshot) -> bool:
    return current.is_over
