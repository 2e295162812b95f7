"""One call, from its claim until it is settled, waits for a person, or is no longer ours.

It is taken (`taken`); its start is published, folded and read (`starting`); its handler begins and is heard
(`call_handler`), or is told to stop (`stopping`); what it says goes to the log (`speaking`), a result last.

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

from frameledger_services import failpoints
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions import starting, words
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.call_handler import CallHandler
from frameledger_services.functions.handling import NotBegun
from frameledger_services.functions.inbox import Inbox
from frameledger_services.functions.ledger import Standing
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.speaking import Speaker
from frameledger_services.functions.stopping import Stopping
from frameledger_services.functions.surroundings import Hands, Surroundings
from frameledger_services.functions.taken import Taken
from frameledger_services.work import Ending, StopReason


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
        release_order: Callable[[], None] = lambda: None,
        failpoint: Failpoint = failpoints.none,
    ) -> None:
        """`age_secs`: since it was dispatched. `started_before`: how it stands, if an earlier attempt had started it.
        `release_order`: its in-progress frame has its place, so the next call of the context may follow."""
        deadline = asyncio.get_running_loop().time() + plan.timeout_secs - age_secs
        speaker = Speaker(call, plan, around, hands, failpoint)
        taken = Taken(call, plan, around, hands, speaker, Inbox(speaker.refusal), deadline, failpoint)
        self._taken = taken
        self._started_before = started_before
        self._release_order = release_order
        self._handler = CallHandler(taken)
        self._stopping = Stopping(taken, self._handler)

    def tell(self, why: StopReason) -> None:
        """It is to stop."""
        self._taken.inbox.tell(why)

    async def run(self) -> Ending:
        """Returns what becomes of the claim. The handler may go on after that: nothing that it says counts then.

        Raises `LeaseLostError`.
        """
        taken, call, around = self._taken, self._taken.call, self._taken.around
        around.acts.entered(call)
        publishing: asyncio.Task[None] | None = None
        try:
            before = self._started_before
            if before is not None and await starting.settled_as_taken_over(taken, before):
                return "done"
            async with around.ledger.folding(call.context_id, call.frame_id("in progress"), call) as folded:
                await taken.failpoint("claimed")
                publishing = around.tails.start(starting.publish(taken, self._release_order))
                taken.speaker.in_progress(publishing)
                return await self._started(folded)
        except BaseException:
            # The lease is over, or the process ends: what the handler would do now is not wanted any more.
            self._handler.stop()
            raise
        finally:
            around.acts.left(call)
            taken.inbox.close()
            if publishing is not None:
                publishing.cancel()
            if self._handler.has_more_to_say:
                around.tails.start(self._stopping.see_off())

    async def _started(self, folded: asyncio.Future[Standing]) -> Ending:
        taken = self._taken
        refusal = taken.plan.refusal
        if refusal is None and taken.is_late:
            refusal = words.late(taken.call.function_name)
        if refusal is not None:
            await taken.speaker.settle("failed", refusal)
            return "done"
        standing: Standing | None = None
        if not taken.plan.options.safe_to_retry or taken.call.attempt is None:
            ending = await starting.until_it_may_run(taken, folded)
            if ending is not None:
                return ending
            standing = folded.result()
        while True:
            await taken.failpoint("before the handler")
            self._handler.begin(standing)
            ending = await self._attend()
            if ending is not None:
                return ending
            # It was too late to begin: what was read is old, or it is to stop.
            told = taken.inbox.take_told()
            if told == "lost" or not taken.hands.may_publish():
                return "release"
            if standing is None:
                ending = None if told is None else await self._stopping.told(told)
            else:
                standing = await taken.read_again()
                may_run = standing is not None and standing.may_run(taken.call) and told != "draining"
                ending = None if may_run else await starting.not_run(taken, standing)
            if ending is not None:
                return ending

    async def _attend(self) -> Ending | None:
        """Do what the handler and the world say until the call is not ours any more; null if it did not begin."""
        taken, inbox = self._taken, self._taken.inbox
        while True:
            # One that did not begin is not stopped: whoever begins it again hears why it should not.
            did_not_begin = isinstance(inbox.ended, NotBegun)
            if not did_not_begin and (told := inbox.take_told()) is not None:
                ending = await self._stopping.told(told)
                if ending is not None:
                    return ending
            elif (event := inbox.take()) is not None:
                if isinstance(event, NotBegun):
                    return None
                if await self._handler.heard(event):
                    return "done"
            elif taken.is_late:
                return await self._stopping.late()
            else:
                await inbox.wait(taken.deadline)
