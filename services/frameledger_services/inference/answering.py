"""The life of one run: its context is read, the model is asked, and what it says goes to the log as it comes.

What happens if the process dies between any two steps of an attempt:

    claimed                   nothing is on the log; when the lease is over another worker takes the run, next attempt
    start published           the run's attempt has begun; the next attempt's start takes its place
    words published           the next attempt's start takes back all that this one said and thought
    announcement published    its calls are set aside and not dispatched; the next attempt's start forgets them
    end published             the run is closed and its calls are dispatched: this was the commit
    claim finished            nothing is left

If it dies after the end and before the claim is finished, whoever takes the run over finds it closed and does nothing.
The log decides between an end that was sent and not acknowledged and the start of a next attempt: the first of them
that is folded wins, and the other's frames are ignored. A worker that is frozen instead of dead has lost its lease
when it wakes, and publishes nothing; what it had given to the broker before is of an older attempt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    Usage,
)
from frameledger_services import logs, transient
from frameledger_services.claims import ClaimedRun
from frameledger_services.event_log.producer import TooLargeError
from frameledger_services.inference.attempt import Attempt
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies, RunOutcome
from frameledger_services.inference.merging import Merging
from frameledger_services.providers.errors import ConnectionLostError, ProviderError, ProviderUnavailableError
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService

MOST_ATTEMPTS = 3
"""Of a run; then a fatal error closes it (R4.4)."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
"""Seconds between two tries; each about twice as long as the one before."""

LONGEST_RETRY_AFTER = 30.0
"""Seconds that a provider may ask us to wait. Longer than that is no answer any more, and somebody waits for it."""

LONGEST_SILENCE = 1800.0
"""Seconds for which a run shows that it lives though its model says nothing. Then the timekeeper ends it."""

CLOSING_SECONDS = 5.0
"""How long a provider may take to close its stream."""

_log = logs.get_logger("inference")


async def answer(run: ClaimedRun, model: LLMService[Any], world: RunDependencies) -> RunOutcome:
    """Answer a run, to its terminal frame. To cancel this closes the provider's stream; nothing more is published.

    What fails at the provider is said on the log, and returns. Raises what `world` raises.
    """
    number: int | None = run.attempt
    while number is not None:
        attempt = _Attempt(run, number, model, world)
        if number > MOST_ATTEMPTS:
            # The third worker in a row died of it, or with it.
            return await attempt.give_up(f"{MOST_ATTEMPTS} attempts were begun, and none came to its end.")
        lost = await attempt.answered()
        if lost is None:
            return "done"
        if number == MOST_ATTEMPTS:
            return await attempt.give_up(
                f"The answer broke off in each of {MOST_ATTEMPTS} attempts. {lost.message}"
            )
        reason = world.shown(lost.message)
        _log.warning(
            "run.answer_broke_off",
            context_id=run.context_id,
            run_id=run.run_id,
            attempt=number,
            reason=reason,
        )
        if not isinstance(lost, ConnectionLostError):
            # The provider is there and said that it is in trouble: it gets the time that it asks for.
            await asyncio.sleep(_pause(number - 1, lost.retry_after))
        number = await world.next_attempt(number)
    return "release"


class _Attempt:
    """One attempt of a run."""

    def __init__(self, run: ClaimedRun, number: int, model: LLMService[Any], world: RunDependencies) -> None:
        self._run = run
        self._model = model
        self._world = world
        self._attempt = Attempt(run.run_id, number, run.claim)
        self._merging = Merging(self._publish, merge_secs=world.merge_secs)
        self._added = 0
        self._spoke = False
        """Whether anything came of the request that is being answered."""
        self._used: Usage | None = None
        """What the attempt is known to have used so far."""
        self._told_used = False

    async def answered(self) -> ProviderUnavailableError | None:
        """Answer; why the answer broke off in the middle, if another attempt is to follow."""
        composed = await self._world.compose()
        self._attempt.skip_tts = composed.skip_tts
        lost: ProviderUnavailableError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._merging.run())
                living = tasks.create_task(self._live())
                lost = await self._said(composed)
                living.cancel()
                self._merging.end()
        except BaseExceptionGroup as errors:
            error = transient.first(errors)
            if not isinstance(error, TooLargeError | ValueError):
                raise error from None
            # What came after that frame is not on the log, the end least of all.
            await self._publish(self._failure("frame_refused", _why_refused(error)))
        return lost

    async def give_up(self, message: str) -> RunOutcome:
        message = self._world.shown(message)
        _log.warning("run.given_up", context_id=self._run.context_id, run_id=self._run.run_id, reason=message)
        await self._publish([ErrorFrame(code="attempts_exhausted", message=message, fatal=True)])
        return "given_up"

    async def _said(self, composed: PreparedRequest) -> ProviderUnavailableError | None:
        request = composed.request
        if isinstance(request, ProviderError):
            self._add(self._start(self._model.provider), *self._failure(request.code, request.message))
            return None
        self._add(self._start(request.provider, request, composed.metadata))
        token = self._model.pushing_to(partial(self._push, request))
        try:
            return await self._streamed(request)
        except ProviderError as error:
            self._add(*self._failure(error.code, error.message))
        except Exception:
            # A provider is a plug-in: what it does wrong costs its run, and not the others of this process.
            _log.exception(
                "run.provider_failed",
                context_id=self._run.context_id,
                run_id=self._run.run_id,
                provider=request.provider,
            )
            self._add(*self._failure("provider_error", "The provider's code failed; our log says how."))
        finally:
            self._model.stop_pushing(token)
        return None

    async def _streamed(self, request: Request) -> ProviderUnavailableError | None:
        """Take in the whole answer; the error, if it broke off in the middle and may be said anew (RA5.attempts).
        Raises other errors."""
        for tried in count():
            self._spoke = False
            try:
                async with _closing(self._model.answer(request)) as frames:
                    async for frame in frames:
                        await self._take(frame, request)
                        if isinstance(frame, LLMFullResponseEndFrame):
                            return None
                raise ProviderError(f"{request.provider} ended its answer without an end frame.")
            except ProviderUnavailableError as error:
                if (error.retry_after or 0.0) > LONGEST_RETRY_AFTER:
                    raise
                if self._spoke:
                    return error
                if tried == self._world.retries:
                    raise
                wait = _pause(tried, error.retry_after)
                reason = self._world.shown(error.message)
                _log.info(
                    "run.retried",
                    context_id=self._run.context_id,
                    run_id=self._run.run_id,
                    in_secs=round(wait, 2),
                    reason=reason,
                )
                await asyncio.sleep(wait)
        raise AssertionError("it is tried until it returns or raises")

    async def _take(self, frame: AnyFrame, request: Request) -> None:
        if isinstance(frame, LLMTextFrame) and frame.usage is not None and not frame.text:
            # `push_usage`. It goes out with what comes next: nobody waits for it, and the first words shall not.
            self._used = frame.usage
            return
        self._spoke = True
        if isinstance(frame, FunctionCallsStartedFrame):
            if not frame.function_calls:
                return
            frame = self._attempt.announcement(
                frame,
                builtin=request.builtin_tools,
                run_in_parallel=self._model.run_in_parallel,
                group_parallel_tools=self._model.group_parallel_tools,
            )
            if calls := [call for call in frame.function_calls if not call.builtin]:
                await self._model.notify("on_function_calls_started", calls)
        if isinstance(frame, LLMFullResponseEndFrame):
            self._add(frame)
        else:
            self._add(*self._used_so_far(), frame)
        if self._merging.is_urgent:
            # It is sent before the provider's client goes on to what else it was given.
            await asyncio.sleep(0)

    async def _push(self, request: Request, frame: AnyFrame) -> None:
        """What a provider says by itself, with `push_frame` or `run_function_calls`."""
        await self._take(frame, request)

    async def _live(self) -> None:
        """Show that the run lives while its model says nothing: an empty piece of text changes nothing. Not for ever:
        a provider that keeps its stream open and says nothing would hold the context."""
        every, silent = self._world.life_every_secs, 0.0
        while every is not None and silent < LONGEST_SILENCE:
            before = self._added
            await asyncio.sleep(every)
            if self._added == before:
                self._add(*(self._used_so_far() or [LLMTextFrame(text="")]))
                silent += every
            else:
                silent = 0.0

    def _used_so_far(self) -> Sequence[AnyFrame]:
        """A frame that says what was used, once: the run may end in a way that leaves no other."""
        if self._used is None or self._told_used:
            return ()
        self._told_used = True
        return [LLMTextFrame(text="", usage=self._used)]

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
            worker=self._world.worker,
            request_sha256=None if request is None else request.sha256,
            metadata=dict(metadata or {}),
        )

    def _failure(self, code: str, message: str) -> Sequence[AnyFrame]:
        """How an attempt fails: the run is over, what was said stays, and nothing is called (R4.4)."""
        message = self._world.shown(message)
        _log.warning(
            "run.failed", context_id=self._run.context_id, run_id=self._run.run_id, code=code, reason=message
        )
        end = LLMFullResponseEndFrame(finish_reason="error", usage=self._used)
        return ErrorFrame(code=code, message=message), end

    async def _publish(self, frames: Sequence[AnyFrame]) -> None:
        stamped = [self._attempt.stamped(frame) for frame in frames]
        try:
            await self._world.publish(self._run.context_id, stamped)
        except ValueError:
            # One of them has no form on the log, so none was sent; those before it shall be.
            for frame in stamped:
                await self._world.publish(self._run.context_id, [frame])


@asynccontextmanager
async def _closing(frames: AsyncGenerator[AnyFrame, None]) -> AsyncIterator[AsyncIterator[AnyFrame]]:
    """The answer; its connection is closed when the block is left, for whatever reason, and soon."""
    try:
        yield frames
    finally:
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await frames.aclose()
        except (TimeoutError, ProviderError) as error:
            _log.warning("run.stream_not_closed", reason=str(error))


def _pause(before: int, asked: float | None) -> float:
    """Seconds to wait after so many pauses before; never less than the provider asks for."""
    return max(asked or 0.0, min(FIRST_PAUSE * 2.0**before, LONGEST_PAUSE) * random.uniform(0.75, 1.25))


def _why_refused(error: BaseException) -> str:
    if isinstance(error, TooLargeError):
        return "The model said more in one piece than the log takes in one frame."
    return f"The model said what no frame can carry: {error}"
