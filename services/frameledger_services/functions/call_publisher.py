"""Publishes the frames of one call, and replies to the handler whose report they contain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

from frameledger.decode_error import DecodeError
from frameledger.decoding import decode
from frameledger.frames import (
    AnyFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    encode_frame,
)
from frameledger_services import call_words, logs, transient, work
from frameledger_services.event_log.publish_errors import RecordRefusedError, TooLargeError
from frameledger_services.functions import results
from frameledger_services.functions.call_frames import SettledAs
from frameledger_services.functions.call_state import CallState
from frameledger_services.functions.execution import text_of
from frameledger_services.functions.notifications import context_updated
from frameledger_services.functions.params import ResultRefusedError
from frameledger_services.functions.reports import HandlerReport, ResultReport, WaitReport
from frameledger_services.store.call_snapshots import Interruption
from frameledger_services.telemetry import names

REFUSALS = 3
"""Number of refusals by the broker after which a handler that waits for its reply gets an error."""

UNFIT = (RecordRefusedError, ValueError)
"""Raised for a frame that cannot be published."""

F = TypeVar("F", FunctionCallResultFrame, FunctionCallInProgressFrame)

_log = logs.get_logger("functions")


class CallPublisher:
    """Publishes the frames of one call, each after its in-progress frame. All methods raise `LeaseLostError`.

    A frame that the broker did not accept is published again until it does, or until the lease ends. This includes a
    frame that it refused, because a permission may be restored, unless it is too large.
    """

    def __init__(self, state: CallState) -> None:
        self._state = state
        self._name = state.call.function_name
        self._intermediate = 0
        self.start: asyncio.Task[None] | None = None
        """Publishes the in-progress frame. None for a call that an earlier attempt had started."""

        self.answers: UUID | str = state.call.in_progress_id
        """The start of the call that its further frames answer, as their cause."""

    async def publish(self, *frames: AnyFrame, refusals: int | None = None) -> None:
        """Same as `publish_by`, with the start as the cause."""
        await self.publish_by(self.answers, *frames, refusals=refusals)

    async def publish_by(
        self, causation_id: UUID | str | None, *frames: AnyFrame, refusals: int | None = None
    ) -> None:
        """Same as `work.publish_until_accepted`, without waiting for the start."""
        await work.publish_until_accepted(
            partial(
                self._state.leased.publish, self._state.call.context_id, *frames, causation_id=causation_id
            ),
            on_refused=self._frame_refused,
            on_outage=self._frame_not_published,
            refusals=refusals,
        )

    async def answer(
        self,
        result: Any,
        properties: FunctionCallResultProperties | None = None,
        *,
        run_llm: bool | None = None,
        report: ResultReport | None = None,
    ) -> None:
        """Settle the call with a result, and reply to the handler that reported it.

        A result that is not JSON or too large settles the call as failed, with a message that says so. A result that
        the broker refuses for another reason settles it as ambiguous: the function had its effect, and its result is
        lost.
        """
        state = self._state
        await state.failpoint("answered")
        await self._after_start()
        try:
            frame = _plain(lambda: state.call.result(result, properties, run_llm))
            with self._hook_when_folded(frame, properties):
                await self.publish(frame, refusals=REFUSALS)
        except UNFIT as error:
            why = await self._settle_unpublishable(error)
            if report is not None:
                report.reply.set_exception(
                    ResultRefusedError(
                        f"The call of {self._name} ended without a result because {why}: {error}"
                    )
                )
            return
        await state.failpoint("result")
        if report is not None:
            report.reply.set_result(None)

    async def intermediate(self, report: ResultReport) -> None:
        """Publish an intermediate result. If it cannot be published, its handler gets an error, and the call
        continues."""
        state = self._state
        if state.plan.options.cancel_on_interruption:
            report.reply.set_exception(
                ResultRefusedError(
                    f"{self._name} is synchronous, and only asynchronous functions may report intermediate results. "
                    "Register it with cancel_on_interruption=False."
                )
            )
            return
        assert report.properties is not None
        self._intermediate += 1
        number, properties = self._intermediate, report.properties
        await self._after_start()
        try:
            frame = _plain(lambda: state.call.intermediate(number, report.result, properties))
            with self._hook_when_folded(frame, properties):
                await state.leased.publish(state.call.context_id, frame, causation_id=self.answers)
        except (transient.EventLogError, *UNFIT) as error:
            _refuse(report, f"The intermediate result was not published: {error}", error)
        else:
            report.reply.set_result(None)
        await state.failpoint("said between")

    async def wait(self, report: WaitReport) -> None:
        """Publish that the call waits for a person. If it cannot be published, its handler gets an error, and the call
        continues."""
        state = self._state
        await self._after_start()
        try:
            frame = _plain(
                lambda: state.call.in_progress(
                    state.plan.options, state.plan.timeout_secs, waiting=report.waiting
                )
            )
            await self.publish(frame, refusals=REFUSALS)
        except UNFIT as error:
            _refuse(
                report,
                f"The call does not wait for a person, because its frame was not published: {error}",
                error,
            )
            return
        state.waiting = True
        report.reply.set_result(None)
        await state.failpoint("waiting")

    async def failed(self, summary: str, details: str | None = None, message: str | None = None) -> None:
        """Settle the call as failed: the details are for people, the message is for the model."""
        call = self._state.call
        self._state.note_error("failed")
        _log.error("call.failed", **call.names(), error=summary, details=details)
        await self._after_start()
        settled = call.settled("failed", message or call_words.failed(self._name))
        await self.publish(call.error(details or summary), settled)

    async def raised_later(self, details: str) -> None:
        """Publish what the handler raised after its call was settled by something else. The details are for people."""
        call = self._state.call
        _log.error("call.handler_failed_late", **call.names(), details=details)
        await self._after_start()
        await self.publish(call.error(details, later=True))

    async def settle(
        self, settled_as: SettledAs, message: str, *, run_llm: bool | None = None, own: bool = True
    ) -> None:
        """Settle the call without a result of its function. With `own` it counts only if this claim's start does."""
        call = self._state.call
        self._state.note_error(settled_as)
        _log.warning("call.settled_without_result", **call.names(), settled_as=settled_as)
        await self._after_start()
        await self.publish(call.settled(settled_as, message, run_llm=run_llm, own=own))

    async def ambiguous(self, *, run_llm: bool | None = None) -> None:
        """Settle the call as ambiguous, whichever worker started it: the effect of its function is unknown."""
        await self.settle("ambiguous", call_words.ambiguous(self._name), run_llm=run_llm, own=False)

    async def cancel_late(self, *, own: bool = True) -> None:
        """Cancel the call, whose deadline has passed. `own` as in `settle`."""
        call = self._state.call
        self._state.note_error("timeout")
        await self._after_start()
        await self.publish(call.cancel(run_llm=True, own=own))
        if not call.builtin:
            await self._state.deps.notify("on_function_calls_cancelled", [call.from_llm])

    async def cancel_interrupted(self, interruption: Interruption, *, own: bool = True) -> None:
        """Cancel the call, which that frame interrupted. `own` as in `settle`."""
        call, hook = self._state.call, self._state.deps.cancelled
        self._state.note_error("cancelled")
        self._state.span.set(names.INTERRUPTED, True)
        await hook.interrupted(call, interruption.version)
        await self.publish_by(interruption.frame_id, call.cancel(run_llm=False, own=own))
        hook.cancelled(call, interruption.version)

    def _frame_refused(self, error: Exception) -> None:
        _log.error("call.frame_refused", **self._state.call.names(), error=transient.reason(error))

    def _frame_not_published(self, error: Exception) -> None:
        _log.warning("call.frame_not_published", **self._state.call.names(), error=transient.reason(error))

    async def _after_start(self) -> None:
        if self.start is not None:
            # Shielded: cancelling this wait must not keep the in-progress frame from the log.
            await asyncio.shield(self.start)

    @contextmanager
    def _hook_when_folded(
        self, frame: FunctionCallResultFrame, properties: FunctionCallResultProperties | None
    ) -> Iterator[None]:
        """Context manager around publishing a result: its `on_context_updated` is called once it is folded. The time
        limit for folding counts from the end of the block."""
        hook = None if properties is None else properties.on_context_updated
        if hook is None or frame.id is None:
            yield
            return
        deps, published = self._state.deps, asyncio.Event()
        waiting = deps.background.start(
            context_updated(deps.statuses, self._state.call, hook, frame.id, published)
        )
        try:
            yield
        except UNFIT:
            waiting.cancel()
            raise
        finally:
            published.set()

    async def _settle_unpublishable(self, error: Exception) -> str:
        """Settle the call whose result cannot be published. Returns the reason, for the handler."""
        cause = error.__cause__
        if isinstance(error, TooLargeError) or (
            isinstance(cause, DecodeError) and cause.reason == "too_large"
        ):
            why, message = "its result is too large", call_words.too_large(self._name)
        elif isinstance(error, RecordRefusedError):
            why = "the broker rejected its result"
            await self.publish(self._state.call.error(f"{why}: {error}"))
            await self.ambiguous()
            return why
        else:
            why, message = "its result is not JSON", call_words.no_json(self._name)
        await self.failed(f"{why}: {error}", message=message)
        return why


def _plain(build: Callable[[], F]) -> F:
    """Returns a frame as a reader of the log will have it, without objects of the handler. Raises ValueError.

    What a handler reports may be any object, which may raise any error when it is encoded: a mapping that reads a
    closed session, or a dictionary that another thread changes meanwhile. This includes SystemExit and CancelledError:
    nothing is awaited here, so the object raises them, and they must end neither the service nor the job.
    """
    try:
        frame = build()
        value = _encoded(frame)
    except BaseException as error:
        raise ValueError(f"{type(error).__name__}: {text_of(error)}") from error
    try:
        return cast("F", decode(value))
    except DecodeError as error:
        raise ValueError(f"{frame.type}: {error}") from error


def _encoded(frame: F) -> bytes:
    """Returns the frame as JSON. A result that is not JSON itself is written by `results`."""
    try:
        return encode_frame(frame)
    except ValueError:
        if not isinstance(frame, FunctionCallResultFrame):
            raise
    return encode_frame(frame.model_copy(update={"result": results.as_json(frame.result)}))


def _refuse(report: HandlerReport, why: str, error: Exception) -> None:
    """Tell the handler that its report is not on the log. The call continues."""
    refused = ResultRefusedError(why)
    refused.__cause__ = error
    report.reply.set_exception(refused)
