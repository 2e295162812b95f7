"""The handler of one call: begun if it may, and heard. What it says, and how it ends, goes to the log."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from frameledger.frames import FunctionCallResultFrame
from frameledger_services.functions.handling import Execution, Raised, Returned
from frameledger_services.functions.inbox import Event, Unreachable
from frameledger_services.functions.ledger import Standing
from frameledger_services.functions.reporting import Reporter, Said, Waits
from frameledger_services.functions.taken import Taken

FRESH_SECONDS = 0.5
"""How old a read may be whose word an unsafe handler begins on. An event loop that was blocked reads again."""


class CallHandler:
    """Its events come to the inbox of the call; who takes one from there has it `heard`."""

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self._execution: Execution | None = None
        self._begun = 0
        self._returned_silently = False
        self._failed = False
        """It raised, and that settled its call."""

    @property
    def has_more_to_say(self) -> bool:
        """Whether it was begun and goes on, or raised without being heard."""
        ended = self._taken.inbox.ended
        return self._execution is not None and (
            ended is None or (isinstance(ended, Raised) and not self._failed)
        )

    def begin(self, standing: Standing | None) -> None:
        """Have it run. It begins only if the lease holds, and what was read is fresh, at that very moment."""
        call, plan, around, inbox = self._taken.call, self._taken.plan, self._taken.around, self._taken.inbox
        lease_holds = self._taken.hands.may_publish

        def may_begin() -> bool:
            if inbox.told is not None or not lease_holds():
                return False
            return standing is None or monotonic() - standing.asked_at < FRESH_SECONDS

        self._begun = begun = self._begun + 1

        def gone() -> None:
            # Not of one that was too late to begin, whose reporter may go after this one was begun.
            if begun == self._begun:
                inbox.put(Unreachable())

        # Nothing here keeps the reporter: that it is gone is how it is known that nothing can report.
        reporter = Reporter(asyncio.get_running_loop(), inbox.put, gone)
        by_place, by_name = plan.called_with(around.params(call, plan, reporter))
        inbox.begin()
        self._execution = around.handlers.start(
            plan.function,
            by_place,
            by_name,
            is_async=plan.is_async,
            name=f"{call.function_name} {call.tool_call_id}",
            may_begin=may_begin,
            ended=inbox.put,
        )

    def stop(self) -> None:
        """Ask it to stop, if it was begun. May be called again."""
        if self._execution is not None:
            self._execution.stop()

    async def heard(self, event: Event) -> bool:
        """Whether the call is settled, or waits for a person, after this."""
        speaker = self._taken.speaker
        match event:
            case Said() | Waits():
                try:
                    return await self._said(event)
                finally:
                    # The lease is over, or the process ends: a plain function must not wait for that word any longer.
                    if not event.answer.done():
                        event.answer.set_exception(speaker.refusal())
            case Raised():
                self._failed = True
                await speaker.failed(event.summary, event.details)
            case Returned(value):
                return await self._returned(value)
            case Unreachable() if self._returned_silently:
                await speaker.answer(None)
            case _:
                # It let go of its callback and goes on: it may still return a value, or raise.
                return False
        return True

    async def _said(self, message: Said | Waits) -> bool:
        speaker = self._taken.speaker
        if isinstance(message, Waits):
            await speaker.wait(message)
            return speaker.waiting
        if message.is_final:
            await speaker.answer(message.result, message.properties, said=message)
        else:
            await speaker.between(message)
        return message.is_final

    async def _returned(self, value: Any) -> bool:
        speaker = self._taken.speaker
        if isinstance(value, FunctionCallResultFrame):
            # What a handler returns is its last word, whatever the frame's properties say.
            properties = value.properties and value.properties.model_copy(update={"is_final": True})
            await speaker.answer(value.result, properties, run_llm=value.run_llm)
        elif value is not None or self._taken.plan.answers_by_returning or self._taken.inbox.unreachable:
            await speaker.answer(value)
        else:
            # A task of the handler may report later. If nothing can, `Unreachable` will say so.
            self._returned_silently = True
            return False
        return True
