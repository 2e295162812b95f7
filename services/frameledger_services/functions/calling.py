"""One call, from its claim until it is settled, waits for a person, or is no longer ours.

What happens if the process dies between any two lines. Unsafe means that the handler may be run once only.

| it died | unsafe | safe to retry |
|---|---|---|
| claimed, before in progress is on the log | the next attempt starts it | the same |
| in progress on the log, the handler not begun | ambiguous: who takes over cannot know | the next attempt runs it |
| the handler runs | ambiguous | the next attempt runs it again, with the same idempotency key |
| a result in between is on the log | ambiguous; what was said stays | run again; what was said stays |
| the result known, not on the log | ambiguous | run again |
| the result on the log, the claim not finished | nothing: the claim is found to be over | the same |
| owed a cancel, which is not on the log | ambiguous, and asks for no run | cancelled by who takes over |
| waiting on the log | nothing: it is nobody's until it is answered | the same |
| the result on the log, `on_context_updated` not called | that is lost | the same |

A frame that is published twice (its acknowledgement was lost, and it was sent again) has one id, and counts once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeGuard

import structlog

from frameledger.frames import AnyFrame, FunctionCallResultFrame
from frameledger_services.event_log.producer import RefusedError
from frameledger_services.functions import words
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.handling import Execution, NotBegun, Raised, Returned
from frameledger_services.functions.inbox import Event, Inbox, Unreachable
from frameledger_services.functions.ledger import Standing
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.reporting import Reporter, Said, Waits
from frameledger_services.functions.speaking import AGAIN_SECONDS, Speaker
from frameledger_services.functions.surroundings import Hands, Surroundings
from frameledger_services.store.connections import DatabaseError
from frameledger_services.work import Ending, LeaseLostError, Passing, Why
from frameledger_services.work.worker import nobody_listens

FRESH_SECONDS = 0.5
"""How old a read may be whose word an unsafe handler begins on. An event loop that was blocked reads again."""

_log = structlog.get_logger("functions")


class Calling:
    """One call in the hands of this worker. `run` is called once."""

    def __init__(
        self,
        call: Call,
        plan: Plan,
        around: Surroundings,
        hands: Hands,
        *,
        age_secs: float = 0.0,
        started_before: Standing | None = None,
        pass_on: Callable[[], None] = lambda: None,
        passing: Passing = nobody_listens,
    ) -> None:
        """`age_secs`: since it was announced. `started_before`: how it stands, if an earlier attempt had started it.
        `pass_on`: its in-progress frame has its place, so the next call of the context may follow. `passing` is told of
        each point that is passed; tests end the process there."""
        self.call = call
        self.plan = plan
        self._around = around
        self._hands = hands
        self._started_before = started_before
        self._pass_on = pass_on
        self._passing = passing
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + plan.timeout_secs - age_secs
        self._speaker = Speaker(call, plan, around, hands, passing)
        self._inbox = Inbox(self._speaker.refusal)
        self._execution: Execution | None = None
        self._returned_silently = False
        self._ran_to_its_end = False
        """It had ended when it was told to stop, or cannot be stopped."""

    def tell(self, why: Why) -> None:
        """It is to stop."""
        self._inbox.tell(why)

    async def run(self) -> Ending:
        """Returns what becomes of the claim. The handler may go on after that: nothing that it says counts then.

        Raises `LeaseLostError`.
        """
        self._around.acts.entered(self.call)
        publishing: asyncio.Task[None] | None = None
        try:
            if self._started_before is not None and await self._settled_as_taken_over(self._started_before):
                return "done"
            async with self._around.ledger.folding(
                self.call.context_id, self.call.frame_id("in progress"), self.call
            ) as folded:
                await self._passing("claimed")
                publishing = self._around.tails.start(self._publish_in_progress())
                self._speaker.in_progress(publishing)
                return await self._started(folded)
        except BaseException:
            # The lease is over, or the process ends: what the handler would do now is not wanted any more.
            self._stop_handler()
            raise
        finally:
            self._around.acts.left(self.call)
            self._inbox.close()
            if publishing is not None:
                publishing.cancel()
            if self._execution is not None and self._inbox.ended is None:
                self._around.tails.start(self._see_off(self._execution))

    # Started by somebody else before.

    async def _settled_as_taken_over(self, before: Standing) -> bool:
        """Settle a call that an earlier attempt had started, unless it is to be run again.

        An unsafe handler never begins where the ledger shows the call as started, by whomever, on whatever terms.
        """
        if before.interrupted_version is not None:
            if before.safe_to_retry or before.by_timekeeper:
                await self._speaker.cancel_interrupted(before.interrupted_version)
            else:
                await self._ambiguous(run_llm=False)
        elif before.safe_to_retry and self.plan.options.safe_to_retry:
            if self._loop.time() < self._deadline:
                return False
            await self._speaker.cancel_late()
        elif before.by_timekeeper:
            await self._speaker.settle("failed", words.late(self.call.function_name))
        else:
            await self._ambiguous()
        return True

    # Starting.

    async def _publish_in_progress(self) -> None:
        frame: AnyFrame = self.call.in_progress(self.plan.options, self.plan.timeout_secs)
        try:
            await self._speaker.publish(frame)
            await self._passing("in progress")
        except (RefusedError, ValueError) as error:
            # It cannot be started, and so has no place for a result: it was announced with just as many bytes as the
            # log takes, and its start has some more.
            _log.error("a call cannot be started", **self._speaker.names(), error=str(error))
            await self._speaker.publish(self.call.error(str(error)), self.call.cancel(run_llm=True))
            self.tell("over")
        except LeaseLostError:
            self.tell("lost")
        finally:
            self._pass_on()

    async def _started(self, folded: asyncio.Future[Standing]) -> Ending:
        refusal = self.plan.refusal
        if refusal is None and self._loop.time() >= self._deadline:
            refusal = words.late(self.call.function_name)
        if refusal is not None:
            await self._speaker.settle("failed", refusal)
            return "done"
        standing: Standing | None = None
        if not self.plan.options.safe_to_retry:
            folded.add_done_callback(lambda _: self._inbox.wake())
            ending = await self._until_it_may_run(folded)
            if ending is not None:
                return ending
            standing = folded.result()
        while True:
            await self._passing("before the handler")
            self._begin(standing)
            ending = await self._attend()
            if ending is not None:
                return ending
            # It was too late to begin: what was read is old, or it is to stop.
            told, self._inbox.told = self._inbox.told, None
            if told == "lost" or not self._hands.may_publish():
                return "release"
            if standing is None:
                ending = None if told is None else await self._stop(told)
            else:
                standing = await self._read_again()
                may_run = standing is not None and standing.may_run(self.call) and told != "draining"
                ending = None if may_run else await self._not_run(standing)
            if ending is not None:
                return ending

    async def _until_it_may_run(self, folded: asyncio.Future[Standing]) -> Ending | None:
        """Wait for the log's word; null if it is that this worker runs the call."""
        give_up_at, draining = self._deadline, False
        while not folded.done() and self._loop.time() < give_up_at:
            told, self._inbox.told = self._inbox.told, None
            if told == "lost":
                return "release"
            if told == "draining":
                draining = True
                give_up_at = min(give_up_at, self._loop.time() + self._around.stop_secs)
            if told == "over":
                now = await self._read_again()
                if now is None:
                    return "release"
                if not now.is_open:
                    return "over"
            await self._inbox.wait(give_up_at)
        if not folded.done():
            if self._loop.time() < self._deadline:
                return "release"
            await self._speaker.cancel_late()
            return "done"
        standing = folded.result()
        if draining or not standing.may_run(self.call):
            return await self._not_run(standing)
        await self._passing("folded")
        return None

    async def _not_run(self, standing: Standing | None) -> Ending:
        """The handler did not begin, and will not: say what that means for the call."""
        if standing is None:
            return "release"
        if not standing.is_open or (standing.attempt or 0) > (self.call.attempt or 0):
            return "over"
        if standing.worker != self.call.worker_id or standing.attempt != (self.call.attempt or 0):
            # An earlier attempt had started, and what it did is not known.
            await self._ambiguous(run_llm=None if standing.interrupted_version is None else False)
        elif standing.interrupted_version is not None:
            await self._speaker.cancel_interrupted(standing.interrupted_version)
        elif self._loop.time() >= self._deadline:
            await self._speaker.cancel_late()
        else:
            await self._speaker.settle("failed", words.not_run(self.call.function_name))
        return "done"

    def _begin(self, standing: Standing | None) -> None:
        """Have the handler run. It begins only if the lease holds, and what was read is fresh, at that very moment."""
        inbox, lease_holds = self._inbox, self._hands.may_publish

        def may_begin() -> bool:
            if inbox.told is not None or not lease_holds():
                return False
            return standing is None or monotonic() - standing.asked_at < FRESH_SECONDS

        # Nothing here keeps the reporter: that it is gone is how it is known that nothing can report.
        reporter = Reporter(self._loop, inbox.put, lambda: inbox.put(Unreachable()))
        by_place, by_name = self.plan.called_with(self._around.params(self.call, self.plan, reporter))
        inbox.ended = None
        self._execution = self._around.handlers.start(
            self.plan.function,
            by_place,
            by_name,
            is_async=self.plan.is_async,
            name=f"{self.call.function_name} {self.call.tool_call_id}",
            may_begin=may_begin,
            ended=inbox.put,
        )

    # While the handler runs.

    async def _attend(self) -> Ending | None:
        """Do what the handler and the world say until the call is not ours any more; null if it did not begin."""
        while True:
            told, self._inbox.told = self._inbox.told, None
            if told is not None and not isinstance(self._inbox.ended, NotBegun):
                ending = await self._stop(told)
                if ending is not None:
                    return ending
            elif (event := self._inbox.take()) is not None:
                if isinstance(event, NotBegun):
                    self._inbox.told = told
                    return None
                if await self._happened(event):
                    return "done"
            elif self._loop.time() >= self._deadline:
                until = self._loop.time() + self._around.stop_secs
                return await self._conclude(await self._stopped(until), interrupted=None)
            else:
                await self._inbox.wait(self._deadline)

    async def _happened(self, event: Event) -> bool:
        """Whether the call is settled, or waits for a person, after this."""
        match event:
            case Said() | Waits():
                try:
                    return await self._said(event)
                finally:
                    # The lease is over, or the process ends: a plain function must not wait for that word any longer.
                    if not event.answer.done():
                        event.answer.set_exception(self._speaker.refusal())
            case Raised():
                await self._speaker.failed(event.summary, event.details)
            case Returned(value):
                return await self._returned(value)
            case Unreachable() if self._returned_silently:
                await self._speaker.answer(None)
            case _:
                # It let go of its callback and goes on: it may still return a value, or raise.
                return False
        return True

    async def _said(self, message: Said | Waits) -> bool:
        if isinstance(message, Waits):
            await self._speaker.wait(message)
            return self._speaker.waiting
        if message.is_final:
            await self._speaker.answer(message.result, message.properties, said=message)
        else:
            await self._speaker.between(message)
        return message.is_final

    async def _returned(self, value: Any) -> bool:
        if isinstance(value, FunctionCallResultFrame):
            await self._speaker.answer(value.result, value.properties, run_llm=value.run_llm)
        elif value is not None or self.plan.answers_by_returning or self._inbox.unreachable:
            await self._speaker.answer(value)
        else:
            # A task of the handler may report later. If nothing can, `Unreachable` will say so.
            self._returned_silently = True
            return False
        return True

    # Stopping the handler.

    async def _stop(self, why: Why) -> Ending | None:
        """Null if there was no reason to stop."""
        match why:
            case "lost":
                self._stop_handler()
                return "release"
            case "over":
                standing = await self._read_again()
                if standing is None:
                    # Not known to be over: whoever takes it next finds out.
                    self._stop_handler()
                    return "release"
                if not standing.is_open:
                    self._stop_handler()
                    return "over"
                version = standing.interrupted_version
                if version is None:
                    # It was meant for an earlier call of this id.
                    return None
                await self._around.acts.joined(self.call, version)
                until = max(self._deadline, self._loop.time() + self._around.stop_secs)
                return await self._conclude(await self._stopped(until), interrupted=version)
            case "draining":
                outcome = await self._stopped(self._loop.time() + self._around.stop_secs)
                if self._is_answer(outcome):
                    await self._happened(outcome)
                elif self.plan.options.safe_to_retry:
                    return "release"
                else:
                    # Broken off in the middle: what it did is not known.
                    await self._ambiguous()
        return "done"

    async def _stopped(self, until: float) -> Event | None:
        """Stop the handler, and wait for it. What it said last, or how it ended; null if it goes on then, or when
        there is a stronger reason to stop."""
        self._ran_to_its_end = not self.plan.is_async or self._inbox.ended is not None
        self._stop_handler()
        while (event := self._inbox.take_last_word()) is None and self._loop.time() < until:
            told, self._inbox.told = self._inbox.told, None
            if told == "lost":
                self._inbox.told = told
                break
            if told == "draining":
                until = min(until, self._loop.time() + self._around.stop_secs)
            await self._inbox.wait(until)
        return event

    def _stop_handler(self) -> None:
        if self._execution is not None:
            self._execution.stop()

    def _is_answer(self, outcome: Event | None) -> TypeGuard[Said | Returned | Raised]:
        """Whether the handler finished, so that its call must not be told as cancelled.

        A plain function cannot be stopped: whatever ended it, it ended by itself. An async one that ends after it was
        told to stop, and says nothing, was stopped.
        """
        match outcome:
            case Said():
                return True
            case Returned(value):
                is_silent = value is None and not self.plan.answers_by_returning
                return not is_silent or (self._ran_to_its_end and self._inbox.unreachable)
            case Raised():
                return self._ran_to_its_end
            case _:
                return False

    async def _conclude(self, outcome: Event | None, *, interrupted: int | None) -> Ending:
        """Settle a call whose handler was told to stop, by the interruption at that version or by its deadline."""
        if outcome is None and self._inbox.told == "lost":
            return "release"
        if isinstance(outcome, Raised) and not self._ran_to_its_end:
            _log.error(
                "a handler failed when it was stopped", **self._speaker.names(), details=outcome.details
            )
        if self._is_answer(outcome):
            await self._happened(outcome)
        elif outcome is None and not self.plan.options.safe_to_retry:
            # It goes on, and what it does will have been done: to say that it was cancelled would invite another one.
            _log.warning("a handler does not stop", **self._speaker.names())
            await self._ambiguous(run_llm=None if interrupted is None else False)
        elif interrupted is not None:
            await self._speaker.cancel_interrupted(interrupted)
        else:
            await self._speaker.cancel_late()
        return "done"

    async def _ambiguous(self, run_llm: bool | None = None) -> None:
        await self._speaker.settle("ambiguous", words.ambiguous(self.call.function_name), run_llm=run_llm)

    async def _read_again(self) -> Standing | None:
        """How the call stands; null if it cannot be known before its deadline, or within the lease."""
        while True:
            try:
                return await self._around.ledger.standing(self.call)
            except DatabaseError as error:
                _log.warning("cannot read how a call stands", **self._speaker.names(), error=str(error))
            if not self._hands.may_publish() or self._loop.time() >= self._deadline:
                return None
            await asyncio.sleep(AGAIN_SECONDS)

    # After the call.

    async def _see_off(self, execution: Execution) -> None:
        """A handler that goes on after its call may do so until the deadline. Then it is told to stop."""
        for until in (self._deadline, self._deadline + self._around.stop_secs):
            while self._inbox.ended is None and self._loop.time() < until:
                await self._inbox.wait(until, heed=False)
            if self._inbox.ended is None:
                execution.stop()
        ended, names = self._inbox.ended, self._speaker.names()
        if ended is None:
            _log.warning("a handler goes on after its call", **names)
        elif isinstance(ended, Raised) and self._speaker.waiting:
            # The person may never have been asked.
            try:
                await self._speaker.failed(ended.summary, ended.details)
            except (LeaseLostError, RefusedError) as error:
                _log.error("a call that failed waits on", **names, error=str(error))
        elif isinstance(ended, Raised):
            _log.error("a handler failed after its call", **names, details=ended.details)
