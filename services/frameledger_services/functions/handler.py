"""The handler of one call: it begins if it may, its reports are published, and it is stopped when it has to be.

It is stopped by its deadline, an interruption, or the end of the process or of the lease. It may not stop at all, or
finish before it does: a call is settled as cancelled only if neither can be the case.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, TypeGuard

from frameledger.frames import FunctionCallResultFrame
from frameledger_services import call_words, logs
from frameledger_services.functions.call_publisher import CallPublisher
from frameledger_services.functions.call_state import CallState
from frameledger_services.functions.execute_tool import end_of, execute_tool
from frameledger_services.functions.execution import Execution, HandlerEnd, NotBegun, Raised, Returned
from frameledger_services.functions.reports import (
    HandlerEvent,
    Reporter,
    ReporterGone,
    ResultReport,
    WaitReport,
)
from frameledger_services.store.call_snapshots import CallSnapshot, Interruption
from frameledger_services.work import Ending, LeaseLostError, StopReason

FRESH_SECONDS = 0.5
"""Maximum age of the status with which an unsafe handler begins. After a blocked event loop it is read again."""

_log = logs.get_logger("functions")


class CallHandler:
    """The handler, whose events arrive in the inbox of the call. `CallLifecycle` passes them to `handle`."""

    def __init__(self, state: CallState, publisher: CallPublisher) -> None:
        self._state = state
        self._publisher = publisher
        self._execution: Execution | None = None
        self._begin_count = 0
        self._returned_silently = False
        self._failed = False
        """Whether it raised, and that settled its call."""

        self._ran_to_its_end = False
        """Whether it had ended when it was asked to stop, or cannot be stopped."""

    @property
    def outlives_call(self) -> bool:
        """Whether it still runs, or raised and that is not on the log yet."""
        ended = self._state.inbox.ended
        return self._execution is not None and (
            ended is None or (isinstance(ended, Raised) and not self._failed)
        )

    def begin(self, current: CallSnapshot | None) -> None:
        """Start it. At its first instruction the lease has to be valid, no stop may be requested, and `current`, if
        given, has to be fresh; otherwise it does not begin, and reports that (`NotBegun`)."""
        call, plan, deps, inbox = self._state.call, self._state.plan, self._state.deps, self._state.inbox
        lease_holds = self._state.leased.may_publish

        def may_begin() -> bool:
            if not inbox.may_begin or not lease_holds():
                return False
            return current is None or monotonic() - current.asked_at < FRESH_SECONDS

        self._begin_count = number = self._begin_count + 1

        def reporter_gone() -> None:
            # A handler that was too late to begin may release its reporter after the next one has begun.
            if number == self._begin_count:
                inbox.put(ReporterGone())

        # Nothing here may keep a reference to the reporter: when the last one is gone, nothing can report any more.
        reporter = Reporter(asyncio.get_running_loop(), inbox.put, reporter_gone)
        by_place, by_name = plan.called_with(deps.params(call, plan, reporter))
        inbox.begin()
        span = execute_tool(call)

        def ended(how: HandlerEnd) -> None:
            end_of(span, how)
            inbox.put(how)

        # Current for what is started here: spans of the handler are below it.
        with span.current():
            self._execution = deps.handlers.start(
                plan.function,
                by_place,
                by_name,
                is_async=plan.is_async,
                name=f"{call.function_name} {call.tool_call_id}",
                may_begin=may_begin,
                ended=ended,
            )

    def stop(self) -> None:
        """Ask it to stop, if it has begun. May be called again."""
        if self._execution is not None:
            self._execution.stop()

    async def handle(self, event: HandlerEvent) -> bool:
        """Publish the content of an event. Returns whether the call is settled, or waits for a person, after this."""
        publisher = self._publisher
        match event:
            case ResultReport() | WaitReport():
                try:
                    return await self._reported(event)
                finally:
                    # The lease has ended, or the process ends: a plain function must not block on the reply any longer.
                    if not event.reply.done():
                        event.reply.set_exception(self._state.refusal())
            case Raised():
                self._failed = True
                await publisher.failed(event.summary, event.details)
            case Returned(value):
                return await self._returned(value)
            case ReporterGone() if self._returned_silently:
                await publisher.answer(None)
            case _:
                # It has released its callback and still runs: it may still return a value, or raise.
                return False
        return True

    async def stop_for(self, why: StopReason) -> Ending | None:
        """Stop it, and settle or release the call. Returns None if there was no reason to stop."""
        state = self._state
        match why:
            case "claim_lost":
                self.stop()
                return "release"
            case "obsolete":
                current = await state.read_again()
                if current is None:
                    # Not known to have ended: the next worker to claim it finds out.
                    self.stop()
                    return "release"
                if not current.is_open:
                    self.stop()
                    return "over"
                interruption = current.interruption
                if interruption is None:
                    # It was meant for an earlier call with this id.
                    return None
                await state.deps.cancelled.interrupted(state.call, interruption.version)
                deadline = max(state.deadline, state.stops_by())
                return await self._conclude(await self._stopped(deadline), interruption)
            case "draining":
                event = await self._stopped(state.stops_by())
                if self._is_answer(event):
                    await self.handle(event)
                elif state.plan.options.safe_to_retry and state.call.attempt is not None:
                    return "release"
                else:
                    await self._not_finished(event)
        return "done"

    async def stop_late(self) -> Ending:
        """Stop it, and settle the call: the deadline has passed."""
        self._state.note_error("timeout")
        return await self._conclude(await self._stopped(self._state.stops_by()), None)

    async def reap(self) -> None:
        """Let a handler that outlives its call run until the deadline, then stop it. An error that it raised goes to
        the log."""
        state, inbox = self._state, self._state.inbox
        for deadline in (state.deadline, state.deadline + state.deps.stop_secs):
            while inbox.ended is None and state.now() < deadline:
                await inbox.wait(deadline, until_stop=False)
            if inbox.ended is None:
                self.stop()
        ended, names = inbox.ended, state.call.names()
        if ended is None:
            _log.warning("call.handler_goes_on", **names)
        elif isinstance(ended, Raised):
            try:
                if state.waiting:
                    # The person may never have been asked.
                    await self._publisher.failed(ended.summary, ended.details)
                else:
                    await self._publisher.raised_later(ended.details)
            except LeaseLostError:
                _log.error("call.failed_without_lease", **names, details=ended.details)

    async def _reported(self, report: ResultReport | WaitReport) -> bool:
        publisher = self._publisher
        if isinstance(report, WaitReport):
            await publisher.wait(report)
            return self._state.waiting
        if report.is_final:
            await publisher.answer(report.result, report.properties, report=report)
        else:
            await publisher.intermediate(report)
        return report.is_final

    async def _returned(self, value: Any) -> bool:
        publisher = self._publisher
        if isinstance(value, FunctionCallResultFrame):
            # What a handler returns is final, whatever the frame's properties say.
            properties = value.properties and value.properties.model_copy(update={"is_final": True})
            await publisher.answer(value.result, properties, run_llm=value.run_llm)
        elif value is not None or self._state.plan.answers_by_returning or self._state.inbox.reporter_gone:
            await publisher.answer(value)
        else:
            # A task of the handler may report later. If nothing can, `ReporterGone` arrives.
            self._returned_silently = True
            return False
        return True

    async def _stopped(self, deadline: float) -> HandlerEvent | None:
        """Stop it and wait. Returns its final result, or how it ended; None if it still runs at `deadline`, or when the
        lease was lost meanwhile."""
        state, inbox = self._state, self._state.inbox
        can_be_stopped = self._execution is not None and self._execution.task is not None
        self._ran_to_its_end = not can_be_stopped or inbox.ended is not None
        self.stop()
        while (event := inbox.take_last()) is None and state.now() < deadline:
            why = inbox.take_stop_request()
            if why == "claim_lost":
                inbox.stop_requested = why
                break
            if why == "draining":
                deadline = min(deadline, state.stops_by())
            await inbox.wait(deadline)
        return event

    async def _not_finished(self, event: HandlerEvent | None) -> None:
        """Settle a call that no other worker takes over, and whose handler was stopped because the process ends."""
        publisher, name = self._publisher, self._state.call.function_name
        if isinstance(event, NotBegun):
            await publisher.settle("failed", call_words.not_run(name))
        elif self._state.plan.options.safe_to_retry:
            await publisher.settle("failed", call_words.stopped(name))
        else:
            # Stopped in the middle, so its effect is unknown.
            await publisher.ambiguous()

    def _is_answer(self, event: HandlerEvent | None) -> TypeGuard[ResultReport | Returned | Raised]:
        """Returns whether the handler finished, so that its call must not be settled as cancelled.

        A plain function cannot be stopped: if it ended, it ended by itself. An async one that ends without a result
        after it was asked to stop was stopped.
        """
        match event:
            case ResultReport():
                return True
            case Returned(value):
                is_silent = value is None and not self._state.plan.answers_by_returning
                return not is_silent or (self._ran_to_its_end and self._state.inbox.reporter_gone)
            case Raised():
                return self._ran_to_its_end
            case _:
                return False

    async def _conclude(self, event: HandlerEvent | None, interruption: Interruption | None) -> Ending:
        """Settle a call whose handler was asked to stop, by an interruption or by its deadline."""
        publisher = self._publisher
        if event is None and self._state.inbox.stop_requested == "claim_lost":
            return "release"
        if self._is_answer(event):
            await self.handle(event)
        elif event is None and not self._state.plan.options.safe_to_retry:
            # It still runs, and will have its effect: a model that reads "cancelled" would call the function again.
            _log.warning("call.handler_does_not_stop", **self._state.call.names())
            await publisher.ambiguous(run_llm=None if interruption is None else False)
        elif interruption is not None:
            await publisher.cancel_interrupted(interruption)
        else:
            await publisher.cancel_late()
        return "done"
