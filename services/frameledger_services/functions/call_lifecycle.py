"""The lifecycle of one call, from its claim until it is settled, waits for a person, or is no longer this worker's.

1. The in-progress frame is published, and folded as applied, so the log decides which worker runs the call.
2. The handler runs (`handler`). Its reports arrive in the call's inbox (`reports`).
3. Its reports are published (`call_publisher`), the final result last; or the handler is stopped by its deadline, an
   interruption, or the end of the process or of the lease, and the call is settled accordingly.

If the process dies between two steps (an *unsafe* function is one that is not registered as safe to retry):

| when it died | unsafe | safe to retry |
|---|---|---|
| claimed, in-progress frame not on the log | the next attempt starts it | the same |
| in-progress frame on the log, handler not begun | ambiguous: the next worker cannot know | the next attempt runs it |
| while the handler ran | ambiguous | the next attempt runs it again, with the same idempotency key |
| an intermediate result on the log | ambiguous; that result stays | run again; that result stays |
| final result known, not on the log | ambiguous | run again |
| final result on the log, claim not finished | settled; the claim is found to be over | the same |
| interrupted, cancel not on the log | ambiguous, without requesting a run | cancelled by the worker that takes over |
| waiting, and that is on the log | no worker is needed until it is answered; a new claim leaves it alone | the same |
| final result on the log, `on_context_updated` not called | the hook is lost | the same |

A frame that is published twice, because its acknowledgement was lost, has one id and counts once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frameledger_services import call_words, failpoints, logs
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_publisher import CallPublisher
from frameledger_services.functions.call_state import CallDependencies, CallState, LeasedPublisher
from frameledger_services.functions.execution import NotBegun
from frameledger_services.functions.handler import CallHandler
from frameledger_services.functions.plan import CallPlan
from frameledger_services.functions.reports import ResultReport
from frameledger_services.store.call_snapshots import CallSnapshot
from frameledger_services.telemetry.tracing import NO_SPAN, Span
from frameledger_services.work import Ending, LeaseLostError, StopReason

MAX_DEATHS = 10
"""Maximum number of attempts whose worker died, for a call that is safe to retry; then it fails. Otherwise a call that
kills its workers would kill one after the other until its deadline, and with them the calls of other conversations."""

_log = logs.get_logger("functions")


class CallLifecycle:
    """One call that this worker has claimed. `run` is called once."""

    def __init__(
        self,
        call: CallAttempt,
        plan: CallPlan,
        deps: CallDependencies,
        leased: LeasedPublisher,
        *,
        age_secs: float = 0.0,
        started_before: CallSnapshot | None = None,
        start_next: Callable[[], None] = lambda: None,
        failpoint: Failpoint = failpoints.none,
        span: Span = NO_SPAN,
    ) -> None:
        """`age_secs` is the time since it was dispatched. `started_before` is its status if an earlier attempt had
        started it. `start_next` is called when the in-progress frame is published: the next call of the context may
        start. `span` is that of the job."""
        deadline = asyncio.get_running_loop().time() + plan.timeout_secs - age_secs
        self._state = CallState(call, plan, deps, leased, deadline, failpoint, span=span)
        self._publisher = CallPublisher(self._state)
        self._handler = CallHandler(self._state, self._publisher)
        self._started_before = started_before
        self._start_next = start_next

    @property
    def ended_as(self) -> str | None:
        """How it ended: empty if its function had a result; None while it waits for a person."""
        return None if self._state.waiting else self._state.error_type

    def request_stop(self, why: StopReason) -> None:
        """Ask the call to stop. Returns at once; `run` does what the reason requires."""
        self._state.inbox.request_stop(why)

    async def run(self) -> Ending:
        """Returns what happens to the claim. The handler may continue after that, and its reports are then refused.

        Raises `LeaseLostError`.
        """
        state, call, deps = self._state, self._state.call, self._state.deps
        deps.cancelled.call_begins(call)
        publishing: asyncio.Task[None] | None = None
        try:
            if (before := self._started_before) is not None:
                if before.is_left_alone:
                    # It was folded since the claim, while this worker waited for an earlier call.
                    state.waiting = before.status == "waiting"
                    return "over"
                if await self._settled_as_taken_over(before):
                    return "done"
            async with deps.statuses.folding(call.context_id, call.in_progress_id, call) as folded:
                await state.failpoint("claimed")
                publishing = deps.background.start(self._publish_start())
                self._publisher.start = publishing
                return await self._until_settled(folded)
        except BaseException:
            # The lease has ended, or the process ends: the handler must not begin any more.
            self._handler.stop()
            raise
        finally:
            deps.cancelled.call_ended(call)
            state.inbox.close()
            if publishing is not None:
                publishing.cancel()
            if self._handler.outlives_call:
                deps.background.start_unless_ended(self._handler.reap())

    async def _settled_as_taken_over(self, before: CallSnapshot) -> bool:
        """Settle a call that an earlier attempt had started, unless it is to be run again. Returns whether it did.

        An unsafe handler never begins if the tables show the call as started, whichever worker started it.
        """
        state, publisher = self._state, self._publisher
        publisher.answers = state.call.started_by or publisher.answers
        if before.interruption is not None:
            if before.safe_to_retry or before.by_timekeeper:
                await publisher.cancel_interrupted(before.interruption, own=False)
            else:
                await publisher.ambiguous(run_llm=False)
        elif before.safe_to_retry and state.plan.options.safe_to_retry:
            if not state.is_late:
                publisher.answers = state.call.in_progress_id
                return False
            await publisher.cancel_late(own=False)
        elif before.by_timekeeper:
            await publisher.settle("failed", call_words.late(state.call.function_name), own=False)
        else:
            await publisher.ambiguous()
        return True

    async def _publish_start(self) -> None:
        """Publish that the call is in progress. Then the next call of the context may start, even if that failed.

        Raises nothing, since it runs in a task of its own. If the call cannot be started, its inbox gets a stop
        request.
        """
        try:
            await self._start()
        except LeaseLostError:
            self.request_stop("claim_lost")
        finally:
            self._start_next()

    async def _start(self) -> None:
        state, call, publisher = self._state, self._state.call, self._publisher
        try:
            start = call.in_progress(state.plan.options, state.plan.timeout_secs)
            await publisher.publish_by(call.dispatched_by, start)
            await state.failpoint("in progress")
        except (TooLargeError, ValueError) as error:
            # Without a start there is nothing that a result could belong to. The announcement was just small enough for
            # the log, and the in-progress frame is a few bytes larger.
            _log.error("call.not_startable", **call.names(), error=str(error))
            await publisher.publish_by(call.dispatched_by, call.error(str(error)), call.cancel(run_llm=True))
            self.request_stop("obsolete")

    async def _until_settled(self, folded: asyncio.Future[CallSnapshot]) -> Ending:
        state = self._state
        refusal = state.plan.refusal
        if refusal is None and state.is_late:
            refusal = call_words.late(state.call.function_name)
        if refusal is None and state.plan.options.safe_to_retry and state.call.deaths >= MAX_DEATHS:
            refusal = call_words.given_up(state.call.function_name)
        if refusal is not None:
            # Published under the claim: it counts only if the start that names the claim does.
            await self._publisher.settle("failed", refusal)
            return "done"
        current: CallSnapshot | None = None
        if not state.plan.options.safe_to_retry or state.call.attempt is None:
            # An unsafe handler begins only when the log allows it. For one that is safe to retry, the claim is enough.
            ending = await self._until_it_may_run(folded)
            if ending is not None:
                return ending
            current = folded.result()
        while True:
            await state.failpoint("before the handler")
            self._handler.begin(current)
            ending = await self._handle_events()
            if ending is not None:
                return ending
            # The handler did not begin: the status was read too long ago, or the call has to stop.
            why = state.inbox.take_stop_request()
            if why == "claim_lost" or not state.leased.may_publish():
                return "release"
            if current is None:
                ending = None if why is None else await self._handler.stop_for(why)
            else:
                current = await state.read_again()
                may_run = current is not None and state.call.may_run(current) and why != "draining"
                ending = None if may_run else await self._not_run(current)
            if ending is not None:
                return ending

    async def _until_it_may_run(self, folded: asyncio.Future[CallSnapshot]) -> Ending | None:
        """Wait until the start is folded. Returns None if the log has decided that this worker runs the call."""
        state, inbox = self._state, self._state.inbox
        folded.add_done_callback(lambda _: inbox.wake())
        give_up_at, draining = state.deadline, False
        while not folded.done() and state.now() < give_up_at:
            why = inbox.take_stop_request()
            if why == "claim_lost":
                return "release"
            if why == "draining":
                draining = True
                give_up_at = min(give_up_at, state.stops_by())
            if why == "obsolete":
                current = await state.read_again()
                if current is None:
                    return "release"
                if not current.is_open:
                    return "over"
                if current.interruption is not None and state.call.is_started_in(current):
                    # The answer that `folded` waits for may have been read before the interruption was folded.
                    return await self._not_run(current)
            # It may have been folded while the status was read, and the inbox keeps no call to wake.
            if not folded.done():
                await inbox.wait(give_up_at)
        if not folded.done():
            if state.is_late:
                # If the start that is folded first is another worker's, this counts for nothing.
                await self._publisher.cancel_late()
            elif state.call.attempt is not None:
                return "release"
            else:
                # Nobody takes over a call without a claim.
                await self._publisher.settle("failed", call_words.not_run(state.call.function_name))
            return "done"
        if draining or not state.call.may_run(folded.result()):
            return await self._not_run(folded.result())
        await state.failpoint("folded")
        return None

    async def _not_run(self, current: CallSnapshot | None) -> Ending:
        """Settle a call whose handler did not begin and will not. None: its status could not be read."""
        call, publisher = self._state.call, self._publisher
        if current is None:
            return "release"
        if not current.is_open:
            return "over"
        if (current.attempt or 0) > (call.attempt or 0):
            # Another worker has it. If that claim was lost, the call is claimed again with a higher attempt.
            return "release"
        if not call.is_started_in(current):
            # Another worker had started it, and its effect is unknown.
            await publisher.ambiguous(run_llm=None if current.interrupted_version is None else False)
        elif current.interruption is not None:
            await publisher.cancel_interrupted(current.interruption)
        elif self._state.is_late:
            await publisher.cancel_late()
        else:
            await publisher.settle("failed", call_words.not_run(call.function_name))
        return "done"

    async def _handle_events(self) -> Ending | None:
        """Handle the events in the inbox until the call is settled or released. Returns None if the handler did not
        begin."""
        state, inbox = self._state, self._state.inbox
        while True:
            # A handler that did not begin is not stopped: the reason stays for the next check of the inbox.
            did_not_begin = isinstance(inbox.ended, NotBegun)
            if not did_not_begin and (why := inbox.take_stop_request()) is not None:
                ending = await self._handler.stop_for(why)
                if ending is not None:
                    return ending
            elif (event := inbox.take()) is not None:
                if isinstance(event, NotBegun):
                    return None
                if state.is_late and isinstance(event, ResultReport) and not event.is_final:
                    # These may arrive faster than they are published. The end of the handler may be after them.
                    event.reply.set_exception(state.refusal())
                    return await self._handler.stop_late()
                if await self._handler.handle(event):
                    return "done"
            elif state.is_late:
                return await self._handler.stop_late()
            else:
                await inbox.wait(state.deadline)
