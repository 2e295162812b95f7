"""Calls of a model that somebody else runs: announced without a run id, and run here without a claim.

If the process dies, nobody takes them over: what had started, and what waited for its turn, is settled by the
timekeeper at its deadline.

One after another means one queue for each context, across batches, in the order in which they were announced here.
What is first in it counts as dispatched: its deadline is counted from then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

import structlog

from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame
from frameledger.ids import ContextId, Version
from frameledger_services import work
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.calling import Calling
from frameledger_services.functions.ledger import FOLDED_SECONDS, Standing
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.queueing import Queues
from frameledger_services.functions.surroundings import SessionHands, Surroundings
from frameledger_services.store.connections import DatabaseError

_log = structlog.get_logger("functions")


class OwnCalls:
    """Announces batches, and runs them."""

    def __init__(
        self, around: Surroundings, plan: Callable[[Call], Awaitable[Plan]], failpoint: Failpoint
    ) -> None:
        self._around = around
        self._plan = plan
        self._failpoint = failpoint
        self._queues = Queues()
        self._batches = 0
        self._going_on: set[Calling] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def drain(self, within: float, grace: float) -> None:
        """Wait for those that go on or wait for their turn, then tell them to stop, and wait as long as they may take
        for that. What gets its turn then is told at once."""
        for seconds in (within, grace):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            self._draining = True
            for calling in tuple(self._going_on):
                calling.tell("draining")

    async def run(
        self,
        session: work.Session,
        context_id: str,
        function_calls: Sequence[FunctionCallFromLLM],
        *,
        group_id: str | None,
        run_in_parallel: bool,
        group_parallel_tools: bool,
    ) -> None:
        """Returns when all have settled, or wait for a person. Raises TimeoutError if they are not folded in time."""
        announcement = FunctionCallsStartedFrame(
            id=str(uuid4()),
            function_calls=tuple(function_calls),
            group_id=group_id,
            run_in_parallel=run_in_parallel,
            group_parallel_tools=group_parallel_tools,
        )
        with self._batch():
            if run_in_parallel:
                await self._side_by_side(session, await self._announced(session, context_id, announcement))
                return
            async with self._queues.place(context_id) as place:
                async with place.entering:
                    calls = await self._announced(session, context_id, announcement)
                await place.first()
                await self._one_by_one(session, calls)

    async def _announced(
        self, session: work.Session, context_id: str, announcement: FunctionCallsStartedFrame
    ) -> list[Call]:
        ledger, frame_id = self._around.ledger, str(announcement.id)
        async with asyncio.timeout(FOLDED_SECONDS), ledger.folding(context_id, frame_id) as folded:
            await session.publisher.publish(context_id, announcement)
            version = (await folded).version
        return [
            Call(
                scope=f"{frame_id}:{ordinal}",
                context_id=ContextId(context_id),
                requested_version=Version(version or 0),
                ordinal=ordinal,
                tool_call_id=one.tool_call_id,
                function_name=one.function_name,
                arguments=one.arguments,
                group_id=announcement.group_id,
                attempt=None,
                worker_id=session.worker_id,
                builtin=one.builtin,
            )
            for ordinal, one in enumerate(announcement.function_calls)
        ]

    async def _side_by_side(self, session: work.Session, calls: Sequence[Call]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for call in calls:
                in_progress = asyncio.Event()
                task = tasks.create_task(self._one(session, call, in_progress.set))
                # Each starts once the one before has its place on the log.
                waiting = tasks.create_task(in_progress.wait())
                await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()

    async def _one_by_one(self, session: work.Session, calls: Sequence[Call]) -> None:
        for call in calls:
            if await self._may_start(call):
                await self._one(session, call)

    async def _may_start(self, call: Call) -> bool:
        """Whether it was not forgotten or cancelled while it waited for its turn. If that cannot be known, the log
        decides when it starts."""
        try:
            standing = await self._around.ledger.standing(call)
        except DatabaseError as error:
            _log.warning("cannot read how a call stands", **call.names(), error=str(error))
            return True
        return standing.status is None or standing.is_open

    async def _one(
        self, session: work.Session, call: Call, release_order: Callable[[], None] = lambda: None
    ) -> None:
        calling = Calling(
            call,
            await self._plan(call),
            self._around,
            SessionHands(session),
            release_order=release_order,
            failpoint=self._failpoint,
        )
        if self._draining:
            calling.tell("draining")
        watching = self._around.tails.start(self._watch(call, calling))
        self._going_on.add(calling)
        try:
            await calling.run()
        finally:
            watching.cancel()
            self._going_on.discard(calling)

    async def _watch(self, call: Call, calling: Calling) -> None:
        """Nobody is told to stop a call that nobody claimed, so it looks itself."""
        frame_id = call.frame_id("in progress")
        async with self._around.ledger.folding(call.context_id, frame_id, call, _is_over) as over:
            await over
            calling.tell("over")

    @contextmanager
    def _batch(self) -> Iterator[None]:
        self._batches += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._batches -= 1
            if not self._batches:
                self._idle.set()


def _is_over(standing: Standing) -> bool:
    return standing.status is not None and (not standing.is_open or standing.interrupted_version is not None)
