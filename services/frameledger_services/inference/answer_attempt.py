"""One attempt at the answer of a run: the model is called, and its output is published as it arrives.

`answering` describes what happens if the process dies between two steps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    Frame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    Usage,
)
from frameledger_services import exception_groups, logs
from frameledger_services.claims import ClaimedRun, rules
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.inference.attempt_stamp import AttemptStamp
from frameledger_services.inference.chat_span import ChatSpan
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies, RunOutcome
from frameledger_services.inference.limits import Limit
from frameledger_services.inference.merging import Merging
from frameledger_services.inference.stream_closing import closing_in_time
from frameledger_services.providers.errors import ProviderError, ProviderUnavailableError
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.providers.silence import LONGEST_SILENCE

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
"""Seconds between two requests; each pause is about twice as long as the previous one."""

LONGEST_RETRY_AFTER = 30.0
"""The longest wait in seconds that a provider may request. A longer one fails the run, because a person is waiting for
it."""

_log = logs.get_logger("inference")


class AnswerAttempt:
    """One attempt of a run. `run` is called once."""

    def __init__(self, run: ClaimedRun, number: int, model: LLMService[Any], deps: RunDependencies) -> None:
        self._run = run
        self._model = model
        self._deps = deps
        self._stamp = AttemptStamp(run.run_id, number, run.claim)
        self._merging = Merging(self._publish, merge_secs=deps.merge_secs)
        self._added = 0
        self._calls = 0
        self._spoke = False
        """Whether the current request has produced any output."""
        self._usage: Usage | None = None
        """The attempt's usage as far as it is known."""
        self._published_usage: Usage | None = None

    async def run(self) -> ProviderUnavailableError | None:
        """Answer. Returns the error if the answer broke off and another attempt follows; otherwise None."""
        prepared = await self._deps.prepare()
        self._stamp.skip_tts = prepared.skip_tts
        with ChatSpan(self._run, self._model, prepared.request) as self._span:
            lost = await self._run_with(prepared)
            if lost is not None:
                self._span.record_failure(lost.code)
        return lost

    async def _run_with(self, prepared: PreparedRequest) -> ProviderUnavailableError | None:
        lost: ProviderUnavailableError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._merging.run())
                keepalive = tasks.create_task(self._keep_alive())
                lost = await self._request(prepared)
                keepalive.cancel()
                self._merging.end()
        except BaseExceptionGroup as errors:
            error = exception_groups.first(errors)
            if not isinstance(error, TooLargeError | ValueError):
                raise error from None
            # Nothing after that frame is on the log, not even the end. So the error below ends the answer, even if it
            # had broken off.
            lost = None
            await self._publish(self._failure("frame_refused", _refusal_reason(error)))
        return lost

    async def give_up(self, message: str) -> RunOutcome:
        """Close the run with a fatal error, without calling the model."""
        message = self._deps.redacted(message)
        _log.warning("run.given_up", context_id=self._run.context_id, run_id=self._run.run_id, reason=message)
        error = self._stamp.stamped(ErrorFrame(code="attempts_exhausted", message=message, fatal=True))
        if self._stamp.number == rules.HIGHEST_ATTEMPT:
            # A client's start may have this number, and no higher one is assigned: no start of ours can supersede it,
            # but an error that names no attempt closes the run (R4.4). No worker answers under this number.
            error = error.model_copy(update={"attempt": None, "claim": None})
        await self._deps.publish(self._run.context_id, [error])
        return "given_up"

    async def _request(self, prepared: PreparedRequest) -> ProviderUnavailableError | None:
        request = prepared.request
        if isinstance(request, ProviderError):
            self._add(self._start(self._model.provider), *self._failure(request.code, request.message))
            return None
        self._add(self._start(request.provider, request, prepared.metadata))
        token = self._model.pushing_to(partial(self._push, request))
        task = asyncio.current_task()
        assert task is not None, "an await is in a task"
        cancelled_before = task.cancelling()
        try:
            return await self._stream(request)
        except ProviderError as error:
            self._add(*self._failure(error.code, error.message))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task.cancelling() > cancelled_before:
                raise
            # A provider is a plug-in: its bug fails this run and no other of this process. This includes SystemExit,
            # GeneratorExit and groups of them, and a cancellation that it raised itself, such as from a task that it
            # awaited.
            _log.exception(
                "run.provider_failed",
                context_id=self._run.context_id,
                run_id=self._run.run_id,
                provider=request.provider,
            )
            self._add(
                *self._failure(
                    "provider_error", "The provider's code failed; the log of the worker has the error."
                )
            )
        finally:
            self._model.stop_pushing(token)
        return None

    async def _stream(self, request: Request) -> ProviderUnavailableError | None:
        """Read the whole answer. Returns the error if it broke off and may be attempted again (RA5.attempts). Raises
        other errors."""
        for tried in count():
            self._spoke = False
            self._span.record_request()
            try:
                answered = self._deps.metrics.measured(
                    request, self._model.answer(request), lambda: self._usage
                )
                async with closing_in_time(answered) as frames:
                    async for frame in frames:
                        await self._take(frame, request)
                        if isinstance(frame, LLMFullResponseEndFrame):
                            return None
                raise ProviderError(f"{request.provider} ended its answer without an end frame.")
            except ProviderUnavailableError as error:
                if (error.retry_after or 0.0) > LONGEST_RETRY_AFTER:
                    raise
                if self._spoke:
                    # No other frame of this attempt has the usage, and there may be no further attempt.
                    self._add(*self._latest_usage())
                    return error
                if tried == self._deps.retries:
                    raise
                wait = pause(tried, error.retry_after)
                reason = self._deps.redacted(error.message)
                _log.info(
                    "run.retried",
                    context_id=self._run.context_id,
                    run_id=self._run.run_id,
                    in_secs=round(wait, 2),
                    reason=reason,
                )
                await asyncio.sleep(wait)
        raise AssertionError("the loop ends by a return or an error")

    async def _take(self, frame: AnyFrame, request: Request) -> None:
        if not isinstance(frame, Frame):
            raise TypeError(f"{request.provider} answered with {type(frame).__name__}, which is not a frame")
        self._span.record_frame(frame)
        if isinstance(frame, LLMTextFrame) and frame.usage is not None and not frame.text:
            # `push_usage`. It is published with the next frame, so that it does not delay the first text.
            self._usage = frame.usage
            return
        self._spoke = True
        if isinstance(frame, FunctionCallsStartedFrame):
            if not frame.function_calls:
                return
            self._count_calls(len(frame.function_calls))
            frame = self._stamp.announcement(
                frame,
                builtin=request.builtin_tools,
                run_in_parallel=self._model.run_in_parallel,
                group_parallel_tools=self._model.group_parallel_tools,
                accepted_id=self._model.get_llm_adapter().call_id,
            )
            if calls := [call for call in frame.function_calls if not call.builtin]:
                await self._model.notify("on_function_calls_started", calls)
        if isinstance(frame, FunctionCallsStartedFrame | LLMFullResponseEndFrame):
            self._add(frame)  # the end frame has the usage
        else:
            self._add(*self._first_usage(), frame)
        if self._merging.is_urgent:
            # Sent before the provider's client continues with the rest of its input.
            await asyncio.sleep(0)

    def _count_calls(self, more: int) -> None:
        """Raise `LimitReachedError` if the attempt makes more calls than a run may."""
        self._calls += more
        most = self._deps.calls_per_run
        if most is not None and self._calls > most:
            limit = Limit(most, "FRAMELEDGER_LIMIT_CALLS_PER_RUN")
            raise limit.error("too_many_calls", f"The model makes {self._calls} calls in one answer.")

    async def _push(self, request: Request, frame: AnyFrame) -> None:
        """Receives a frame from the provider's `push_frame` or `run_function_calls`."""
        await self._take(frame, request)

    async def _keep_alive(self) -> None:
        """Publish empty text, which changes nothing, while the model is silent. Only for `LONGEST_SILENCE`: a provider
        that keeps its stream open without output must not block the context, and the timekeeper fails the run."""
        every, silent = self._deps.keepalive_secs, 0.0
        while every is not None and silent < LONGEST_SILENCE:
            before = self._added
            await asyncio.sleep(every)
            if self._added == before:
                self._add(*(self._first_usage() or [LLMTextFrame(text="")]))
                silent += every
            else:
                silent = 0.0

    def _first_usage(self) -> Sequence[AnyFrame]:
        """Returns a frame with the usage, once, because the run may end without another frame that contains it."""
        return self._latest_usage() if self._published_usage is None else ()

    def _latest_usage(self) -> Sequence[AnyFrame]:
        """Returns a frame with the usage, if it differs from the published one."""
        if self._usage == self._published_usage:
            return ()
        self._published_usage = self._usage
        return [LLMTextFrame(text="", usage=self._usage)]

    def _add(self, *frames: AnyFrame) -> None:
        self._added += len(frames)
        for frame in frames:
            self._merging.add(frame)

    def _start(
        self, provider: str, request: Request | None = None, metadata: Mapping[str, Any] | None = None
    ) -> AnyFrame:
        return LLMFullResponseStartFrame(
            provider=provider,
            model=None if request is None else request.model,
            context_version=self._run.version,
            worker=self._deps.worker,
            request_sha256=None if request is None else request.sha256,
            metadata=dict(metadata or {}),
        )

    def _failure(self, code: str, message: str) -> Sequence[AnyFrame]:
        """Returns the frames of a failed attempt: the run is closed, its text stays, and nothing is called (R4.4)."""
        message = self._deps.redacted(message)
        self._span.record_failure(code)
        _log.warning(
            "run.failed", context_id=self._run.context_id, run_id=self._run.run_id, code=code, reason=message
        )
        end = LLMFullResponseEndFrame(finish_reason="error", usage=self._usage)
        return ErrorFrame(code=code, message=message), end

    async def _publish(self, frames: Sequence[AnyFrame]) -> None:
        stamped = [self._stamp.stamped(frame) for frame in frames]
        try:
            await self._deps.publish(self._run.context_id, stamped)
        except ValueError:
            # One of them cannot be encoded, so none was sent; those before it can be.
            for frame in stamped:
                await self._deps.publish(self._run.context_id, [frame])


def pause(before: int, retry_after: float | None) -> float:
    """Returns the seconds to wait after `before` earlier pauses, at least the time that the provider requests."""
    return max(retry_after or 0.0, min(FIRST_PAUSE * 2.0**before, LONGEST_PAUSE) * random.uniform(0.75, 1.25))


def _refusal_reason(error: BaseException) -> str:
    if isinstance(error, TooLargeError):
        return "One piece of the model's output is larger than the maximum size of a frame."
    return f"The model's output cannot be encoded as a frame: {error}"
