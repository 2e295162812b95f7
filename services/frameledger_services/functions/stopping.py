"""Stopping a handler: by its deadline, an interruption, the end of the process or of the lease; and what that means
for its call.

A handler may not stop at all, or finish before it does: a call is told as cancelled only if neither can be the case.
"""

from __future__ import annotations

from typing import TypeGuard

import structlog

from frameledger_services.functions.call_handler import CallHandler
from frameledger_services.functions.handling import Raised, Returned
from frameledger_services.functions.inbox import Event
from frameledger_services.functions.reporting import Said
from frameledger_services.functions.taken import Taken
from frameledger_services.work import Ending, LeaseLostError, StopReason

_log = structlog.get_logger("functions")


class Stopping:
    """Stops the handler of one call, and settles the call by what the handler makes of it."""

    def __init__(self, taken: Taken, handler: CallHandler) -> None:
        self._taken = taken
        self._handler = handler
        self._ran_to_its_end = False
        """It had ended when it was told to stop, or cannot be stopped."""

    async def told(self, why: StopReason) -> Ending | None:
        """The call is to stop. Null if there was no reason to."""
        taken = self._taken
        match why:
            case "lost":
                self._handler.stop()
                return "release"
            case "over":
                standing = await taken.read_again()
                if standing is None:
                    # Not known to be over: whoever takes it next finds out.
                    self._handler.stop()
                    return "release"
                if not standing.is_open:
                    self._handler.stop()
                    return "over"
                version = standing.interrupted_version
                if version is None:
                    # It was meant for an earlier call of this id.
                    return None
                await taken.around.acts.joined(taken.call, version)
                until = max(taken.deadline, taken.stops_by())
                return await self._conclude(await self._stopped(until), interrupted=version)
            case "draining":
                outcome = await self._stopped(taken.stops_by())
                if self._is_answer(outcome):
                    await self._handler.heard(outcome)
                elif taken.plan.options.safe_to_retry:
                    return "release"
                else:
                    # Broken off in the middle: what it did is not known.
                    await taken.speaker.ambiguous()
        return "done"

    async def late(self) -> Ending:
        """The deadline has passed."""
        return await self._conclude(await self._stopped(self._taken.stops_by()), interrupted=None)

    async def see_off(self) -> None:
        """A handler that goes on after its call may do so until the deadline. Then it is told to stop. If it raises,
        or had raised unheard, the details go to the log."""
        taken, inbox = self._taken, self._taken.inbox
        for until in (taken.deadline, taken.deadline + taken.around.stop_secs):
            while inbox.ended is None and taken.now() < until:
                await inbox.wait(until, heed=False)
            if inbox.ended is None:
                self._handler.stop()
        ended, names = inbox.ended, taken.call.names()
        if ended is None:
            _log.warning("a handler goes on after its call", **names)
        elif isinstance(ended, Raised):
            try:
                if taken.speaker.waiting:
                    # The person may never have been asked.
                    await taken.speaker.failed(ended.summary, ended.details)
                else:
                    await taken.speaker.raised_later(ended.details)
            except LeaseLostError:
                _log.error(
                    "a handler failed when its worker had lost its lease", **names, details=ended.details
                )

    async def _stopped(self, until: float) -> Event | None:
        """Stop the handler, and wait for it. What it said last, or how it ended; null if it goes on then, or when
        there is a stronger reason to stop."""
        taken, inbox = self._taken, self._taken.inbox
        self._ran_to_its_end = not taken.plan.is_async or inbox.ended is not None
        self._handler.stop()
        while (event := inbox.take_last_word()) is None and taken.now() < until:
            told = inbox.take_told()
            if told == "lost":
                inbox.told = told
                break
            if told == "draining":
                until = min(until, taken.stops_by())
            await inbox.wait(until)
        return event

    def _is_answer(self, outcome: Event | None) -> TypeGuard[Said | Returned | Raised]:
        """Whether the handler finished, so that its call must not be told as cancelled.

        A plain function cannot be stopped: whatever ended it, it ended by itself. An async one that ends after it was
        told to stop, and says nothing, was stopped.
        """
        match outcome:
            case Said():
                return True
            case Returned(value):
                is_silent = value is None and not self._taken.plan.answers_by_returning
                return not is_silent or (self._ran_to_its_end and self._taken.inbox.unreachable)
            case Raised():
                return self._ran_to_its_end
            case _:
                return False

    async def _conclude(self, outcome: Event | None, *, interrupted: int | None) -> Ending:
        """Settle a call whose handler was told to stop, by the interruption at that version or by its deadline."""
        speaker = self._taken.speaker
        if outcome is None and self._taken.inbox.told == "lost":
            return "release"
        if self._is_answer(outcome):
            await self._handler.heard(outcome)
        elif outcome is None and not self._taken.plan.options.safe_to_retry:
            # It goes on, and what it does will have been done: to say that it was cancelled would invite another one.
            _log.warning("a handler does not stop", **self._taken.call.names())
            await speaker.ambiguous(run_llm=None if interrupted is None else False)
        elif interrupted is not None:
            await speaker.cancel_interrupted(interrupted)
        else:
            await speaker.cancel_late()
        return "done"
