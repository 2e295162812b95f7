"""What a worker says of a call on the log, and the answers to the handler that said it first."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from frameledger.decode_error import DecodeError
from frameledger.frames import AnyFrame, FunctionCallResultProperties
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.consumer import KafkaError
from frameledger_services.event_log.producer import PublishError, RefusedError, TooLargeError
from frameledger_services.functions import context_updated, words
from frameledger_services.functions.call_frames import Call, SettledAs
from frameledger_services.functions.params import ResultRefusedError
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.reporting import Message, Said, Waits
from frameledger_services.functions.surroundings import Hands, Surroundings
from frameledger_services.work import Passing

AGAIN_SECONDS = 0.5
"""Before a frame that the broker did not take is published again."""

UNFIT = (RefusedError, ValueError, TypeError, RuntimeError, LookupError, AttributeError)
"""What is raised for words of a handler that cannot be published. They may be any objects, which raise what they like
when they are written down: a dictionary that another thread changes meanwhile is a RuntimeError."""

_log = structlog.get_logger("functions")


class Speaker:
    """Publishes the frames of one call, each after its in-progress frame. All raise `LeaseLostError`.

    A frame that the broker did not take is published again until it does, or the lease is over.
    """

    def __init__(self, call: Call, plan: Plan, around: Surroundings, hands: Hands, passing: Passing) -> None:
        self.call = call
        self.waiting = False
        """Whether the call waits for a person by now."""

        self._plan = plan
        self._around = around
        self._hands = hands
        self._passing = passing
        self._name = call.function_name
        self._in_progress: asyncio.Task[None] | None = None
        self._between = 0

    def in_progress(self, publishing: asyncio.Task[None]) -> None:
        """The task that publishes the in-progress frame."""
        self._in_progress = publishing

    async def publish(self, *frames: AnyFrame) -> None:
        """Publish, now. Raises `RefusedError` and ValueError for what is never taken."""
        while True:
            try:
                await self._hands.publish(self.call.context_id, *frames)
                return
            except RefusedError:
                raise
            except (PublishError, BrokerError, KafkaError) as error:
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
        """Settle the call with a result, and tell who gave it. What cannot be published settles it as failed."""
        await self._passing("answered")
        await self._after_start()
        try:
            frame = self.call.result(result, properties, run_llm)
            context_updated.watch(self._around, self.call, properties, frame)
            await self.publish(frame)
        except UNFIT as error:
            message, why = self._unfit(error)
            await self.failed(f"{why}: {error}", message=message)
            if said is not None:
                said.answer.set_exception(
                    ResultRefusedError(f"The call of {self._name} has failed, since {why}: {error}")
                )
            return
        await self._passing("result")
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
        except (PublishError, BrokerError, *UNFIT) as error:
            _not_taken(said, f"The result in between was not published: {error}", error)
        else:
            said.answer.set_result(None)
        await self._passing("said between")

    async def wait(self, waits: Waits) -> None:
        """The call waits for a person from now on. If that is not taken, its handler is told, and the call goes on."""
        await self._after_start()
        try:
            frame = self.call.in_progress(self._plan.options, self._plan.timeout_secs, waiting=waits.waiting)
            await self.publish(frame)
        except UNFIT as error:
            _not_taken(waits, f"The call does not wait, since that was not published: {error}", error)
            return
        self.waiting = True
        waits.answer.set_result(None)
        await self._passing("waiting")

    async def failed(self, summary: str, details: str | None = None, message: str | None = None) -> None:
        """Settle the call as failed: the details are for people, the message is for the model."""
        _log.error("a function failed", **self.call.names(), error=summary, details=details)
        await self._after_start()
        settled = self.call.settled("failed", message or words.failed(self._name))
        await self.publish(self.call.error(details or summary), settled)

    async def settle(self, settled_as: SettledAs, message: str, *, run_llm: bool | None = None) -> None:
        """Settle the call without a result of its own."""
        _log.warning("a call is settled without a result", **self.call.names(), settled_as=settled_as)
        await self._after_start()
        await self.publish(self.call.settled(settled_as, message, run_llm=run_llm))

    async def ambiguous(self, *, run_llm: bool | None = None) -> None:
        """Settle the call as one of which nobody knows what it did."""
        await self.settle("ambiguous", words.ambiguous(self._name), run_llm=run_llm)

    async def cancel_late(self) -> None:
        """Its time is over."""
        await self._after_start()
        await self.publish(self.call.cancel(run_llm=True))
        await self._around.notify("on_function_calls_cancelled", [self.call.from_llm])

    async def cancel_interrupted(self, version: int) -> None:
        """The interruption at that version owes it a cancel."""
        await self._around.acts.joined(self.call, version)
        await self.publish(self.call.cancel(run_llm=False))
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

    def _unfit(self, error: Exception) -> tuple[str, str]:
        """What the model and the handler are told of a result that cannot be published."""
        cause = error.__cause__
        if isinstance(error, TooLargeError) or (
            isinstance(cause, DecodeError) and cause.reason == "too_large"
        ):
            return words.too_large(self._name), "its result is too large"
        if isinstance(error, RefusedError):
            return words.failed(self._name), "its result was not taken"
        return words.no_json(self._name), "its result is no JSON"


def _not_taken(message: Message, why: str, error: Exception) -> None:
    """Tell the handler that what it said is not on the log, and that its call goes on."""
    refused = ResultRefusedError(why)
    refused.__cause__ = error
    message.answer.set_exception(refused)
