"""What a worker says of a call on the log, and the answers to the handler that said it first."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from frameledger.decode_error import DecodeError
from frameledger.frames import AnyFrame, FunctionCallResultProperties
from frameledger_services import transient
from frameledger_services.event_log.producer import RecordRefusedError, TooLargeError
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions import context_updated, words
from frameledger_services.functions.call_frames import Call, SettledAs
from frameledger_services.functions.params import ResultRefusedError
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.reporting import Message, Said, Waits
from frameledger_services.functions.surroundings import Hands, Surroundings

AGAIN_SECONDS = 0.5
"""Before a frame that the broker did not take is published again."""

REFUSALS = 3
"""So often a broker may refuse a result, of which somebody waits to hear, before it counts as not taken."""

UNFIT = (RecordRefusedError, ValueError, TypeError, RuntimeError, LookupError, AttributeError)
"""What is raised for words of a handler that cannot be published. They may be any objects, which raise what they like
when they are written down: a dictionary that another thread changes meanwhile is a RuntimeError."""

_log = structlog.get_logger("functions")


class Speaker:
    """Publishes the frames of one call, each after its in-progress frame. All raise `LeaseLostError`.

    A frame that the broker did not take is published again until it does, or the lease is over: also one that it
    refused, since rights come back, unless it is too large.
    """

    def __init__(
        self, call: Call, plan: Plan, around: Surroundings, hands: Hands, failpoint: Failpoint
    ) -> None:
        self.call = call
        self.waiting = False
        """Whether the call waits for a person by now."""

        self._plan = plan
        self._around = around
        self._hands = hands
        self._failpoint = failpoint
        self._name = call.function_name
        self._in_progress: asyncio.Task[None] | None = None
        self._between = 0

    def in_progress(self, publishing: asyncio.Task[None]) -> None:
        """The task that publishes the in-progress frame."""
        self._in_progress = publishing

    async def publish(self, *frames: AnyFrame, refusals: int | None = None) -> None:
        """Publish, now. Raises `TooLargeError` and ValueError for what is never taken, and `RecordRefusedError` once
        the broker has refused it `refusals` times; with None it is tried again all the same."""
        refused = 0
        while True:
            try:
                await self._hands.publish(self.call.context_id, *frames)
                return
            except TooLargeError:
                raise
            except RecordRefusedError as error:
                refused += 1
                _log.error("a frame is refused by the broker", **self.call.names(), error=str(error))
                if refused == refusals:
                    raise
            except transient.BROKER as error:
                _log.warning("a frame was not published yet", **self.call.names(), error=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def answer(
        self,
        result: Any,
        properties: FunctionCallResultProperties | None = None,
        *,
        run_llm: bool | None = None,
        said: Said | None = None,
    ) -> None:
        """Settle the call with a result, and tell who gave it.

        What is no JSON or too large settles it as failed, with words that say so. What the broker refuses for another
        reason settles it as ambiguous: the function did what it does, and nobody will read what.
        """
        await self._failpoint("answered")
        await self._after_start()
        try:
            frame = self.call.result(result, properties, run_llm)
            context_updated.watch(self._around, self.call, properties, frame)
            await self.publish(frame, refusals=REFUSALS)
        except UNFIT as error:
            why = await self._unfit(error)
            if said is not None:
                said.answer.set_exception(
                    ResultRefusedError(
                        f"The call of {self._name} ended without a result, since {why}: {error}"
                    )
                )
            return
        await self._failpoint("result")
        if said is not None:
            said.answer.set_result(None)

    async def between(self, said: Said) -> None:
        """A result in between. If it is not taken, its handler is told, and the call goes on."""
        if self._plan.options.cancel_on_interruption:
            said.answer.set_exception(
                ResultRefusedError(
                    f"{self._name} is synchronous, and only asynchronous calls have results in between. Register it "
                    "with cancel_on_interruption=False."
                )
            )
            return
        assert said.properties is not None
        self._between += 1
        await self._after_start()
        try:
            frame = self.call.intermediate(self._between, said.result, said.properties)
            context_updated.watch(self._around, self.call, said.properties, frame)
            await self._hands.publish(self.call.context_id, frame)
        except (transient.EventLogError, *UNFIT) as error:
            _not_taken(said, f"The result in between was not published: {error}", error)
        else:
            said.answer.set_result(None)
        await self._failpoint("said between")

    async def wait(self, waits: Waits) -> None:
        """The call waits for a person from now on. If that is not taken, its handler is told, and the call goes on."""
        await self._after_start()
        try:
            frame = self.call.in_progress(self._plan.options, self._plan.timeout_secs, waiting=waits.waiting)
            await self.publish(frame, refusals=REFUSALS)
        except UNFIT as error:
            _not_taken(waits, f"The call does not wait, since that was not published: {error}", error)
            return
        self.waiting = True
        waits.answer.set_result(None)
        await self._failpoint("waiting")

    async def failed(self, summary: str, details: str | None = None, message: str | None = None) -> None:
        """Settle the call as failed: the details are for people, the message is for the model."""
        _log.error("a function failed", **self.call.names(), error=summary, details=details)
        await self._after_start()
        settled = self.call.settled("failed", message or words.failed(self._name))
        await self.publish(self.call.error(details or summary), settled)

    async def raised_later(self, details: str) -> None:
        """The handler raised when its call had settled without that: the details are for people."""
        _log.error("a handler failed after its call", **self.call.names(), details=details)
        await self._after_start()
        await self.publish(self.call.error(details, later=True))

    async def settle(
        self, settled_as: SettledAs, message: str, *, run_llm: bool | None = None, own: bool = True
    ) -> None:
        """Settle the call without a result of its own. `own`: it counts only if the start that counts is ours."""
        _log.warning("a call is settled without a result", **self.call.names(), settled_as=settled_as)
        await self._after_start()
        await self.publish(self.call.settled(settled_as, message, run_llm=run_llm, own=own))

    async def ambiguous(self, *, run_llm: bool | None = None) -> None:
        """Settle the call as one of which nobody knows what it did, whoever started it."""
        await self.settle("ambiguous", words.ambiguous(self._name), run_llm=run_llm, own=False)

    async def cancel_late(self, *, own: bool = True) -> None:
        """Its time is over. `own` as in `settle`."""
        await self._after_start()
        await self.publish(self.call.cancel(run_llm=True, own=own))
        if not self.call.builtin:
            await self._around.notify("on_function_calls_cancelled", [self.call.from_llm])

    async def cancel_interrupted(self, version: int, *, own: bool = True) -> None:
        """The interruption at that version owes it a cancel. `own` as in `settle`."""
        await self._around.acts.joined(self.call, version)
        await self.publish(self.call.cancel(run_llm=False, own=own))
        self._around.acts.cancelled(self.call, version)

    def refusal(self) -> ResultRefusedError:
        """Why nothing that the handler says counts any more."""
        if self.waiting:
            return ResultRefusedError(
                f"The call {self.call.tool_call_id} waits for a person, and is answered from outside."
            )
        return ResultRefusedError(
            f"The call {self.call.tool_call_id} of {self._name} is settled, or no longer this worker's."
        )

    async def _after_start(self) -> None:
        if self._in_progress is not None:
            # Shielded: whoever gives up waiting must not keep the frame from the log.
            await asyncio.shield(self._in_progress)

    async def _unfit(self, error: Exception) -> str:
        """Settle the call whose result cannot be published; why it cannot, for the handler."""
        cause = error.__cause__
        if isinstance(error, TooLargeError) or (
            isinstance(cause, DecodeError) and cause.reason == "too_large"
        ):
            why, message = "its result is too large", words.too_large(self._name)
        elif isinstance(error, RecordRefusedError):
            why = "its result was not taken"
            await self.publish(self.call.error(f"{why}: {error}"))
            await self.ambiguous()
            return why
        else:
            why, message = "its result is no JSON", words.no_json(self._name)
        await self.failed(f"{why}: {error}", message=message)
        return why


def _not_taken(message: Message, why: str, error: Exception) -> None:
    """Tell the handler that what it said is not on the log, and that its call goes on."""
    refused = ResultRefusedError(why)
    refused.__cause__ = error
    message.answer.set_exception(refused)
