"""The state of one call that its steps share, and what all calls of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from frameledger.frames import AnyFrame
from frameledger_services import logs
from frameledger_services.claims import ClaimedCall
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_status import CallStatusReader
from frameledger_services.functions.execution import HandlerExecutor
from frameledger_services.functions.notifications import CancelledHook
from frameledger_services.functions.params import FunctionCallParams, ResultRefusedError
from frameledger_services.functions.plan import CallPlan
from frameledger_services.functions.reports import Inbox, Reporter
from frameledger_services.store.call_snapshots import CallSnapshot
from frameledger_services.store.connections import DatabaseError
from frameledger_services.telemetry import names
from frameledger_services.telemetry.tracing import NO_SPAN, Span
from frameledger_services.work import Job, LeaseLostError, Session

RETRY_SECONDS = 0.5
"""Seconds after which a failed read is repeated."""

_log = logs.get_logger("functions")


class LeasedPublisher(Protocol):
    """Publishes within the lease of the worker that runs the call."""

    async def publish(self, context_id: str, *frames: AnyFrame, causation_id: UUID | str | None) -> object:
        """Same as `work.WorkerPublisher.publish`."""
        ...

    def may_publish(self) -> bool:
        """Returns whether the lease is valid. From any thread."""
        ...


class JobPublisher:
    """Publishes within the lease of one worker session, and only while the job still belongs to this worker."""

    def __init__(self, session: Session, job: Job[ClaimedCall] | None = None) -> None:
        self._session = session
        self._job = job

    async def publish(self, context_id: str, *frames: AnyFrame, causation_id: UUID | str | None) -> object:
        if not self.may_publish():
            raise LeaseLostError
        return await self._session.publisher.publish(context_id, *frames, causation_id=causation_id)

    def may_publish(self) -> bool:
        return self._session.lease.valid() and (self._job is None or self._job.stop_reason != "claim_lost")


class BackgroundTasks:
    """Tasks of one task group, which can be ended before the group. One that raises an error ends the group: it is a
    bug."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._has_ended = False

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task. Raises `LeaseLostError` if the tasks are being ended: the service ends, and nothing more
        begins."""
        try:
            # After the end nothing would cancel it, and the group would wait for it.
            task = None if self._has_ended else self._tasks.create_task(coroutine)
        except RuntimeError:
            # The group was cancelled, or ends by an error.
            task = None
        if task is None:
            coroutine.close()
            raise LeaseLostError
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def start_unless_ended(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start what is left to do when a task ends. If the tasks are being ended, it is not started."""
        with suppress(LeaseLostError):
            self.start(coroutine)

    async def end(self, within: float) -> None:
        """Wait for the tasks that still run, for `within` seconds, then cancel the rest."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=within)
        self._has_ended = True
        for task in tuple(self._running):
            task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDependencies:
    """What all calls of a process share."""

    statuses: CallStatusReader
    handlers: HandlerExecutor
    cancelled: CancelledHook
    background: BackgroundTasks
    stop_secs: float
    """How long a handler has to stop after it was asked to."""

    notify: Callable[[str, Any], Awaitable[None]]
    """Calls the hooks of an event."""

    params: Callable[[CallAttempt, CallPlan, Reporter], FunctionCallParams]


@dataclass(slots=True)
class CallState:
    """One call while this worker runs it."""

    call: CallAttempt
    plan: CallPlan
    deps: CallDependencies
    leased: LeasedPublisher
    deadline: float
    """A time of the event loop, like all times here."""

    failpoint: Failpoint
    waiting: bool = False
    """Whether the call currently waits for a person."""

    error_type: str = ""
    """How it ended without a result of its function, for the metrics; otherwise empty."""
    span: Span = NO_SPAN
    """The span of the job, on which the outcome of the call is noted; `NO_SPAN` for a call without a claim."""

    inbox: Inbox = field(init=False)

    def __post_init__(self) -> None:
        self.inbox = Inbox(self.refusal)

    def note_error(self, error_type: str) -> None:
        """Record how it ends without a result. The first record is the cause of the others, and stays."""
        self.error_type = self.error_type or error_type
        self.span.set(names.CALL_SETTLED_AS, self.error_type)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.now() >= self.deadline

    def stops_by(self) -> float:
        """Returns the time by which a handler that is asked to stop now has to have stopped."""
        return self.now() + self.deps.stop_secs

    def refusal(self) -> ResultRefusedError:
        """Returns why reports of the handler no longer count."""
        if self.waiting:
            return ResultRefusedError(
                f"The call {self.call.tool_call_id} waits for a person, so its handler cannot answer it any more."
            )
        return ResultRefusedError(
            f"The call {self.call.tool_call_id} of {self.call.function_name} has settled or belongs to another worker."
        )

    async def read_again(self) -> CallSnapshot | None:
        """Returns the stored status of the call; None if the database did not answer before the deadline, or before the
        lease was lost."""
        while True:
            try:
                return await self.deps.statuses.read(self.call)
            except DatabaseError as error:
                _log.warning("call.status_unreadable", **self.call.names(), error=str(error))
            if not self.leased.may_publish() or self.is_late:
                return None
            await asyncio.sleep(RETRY_SECONDS)
