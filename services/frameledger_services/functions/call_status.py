"""Reads the status of calls, and waits until a frame is folded. All waits of a process share one query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psycopg

from frameledger_services import logs, supervision
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.settings import Settings
from frameledger_services.store import call_snapshots, progress_channel
from frameledger_services.store.call_snapshots import CallSnapshot, FrameOfCall
from frameledger_services.store.connections import Connections, DatabaseError, connect
from frameledger_services.store.schema import SchemaError

NAME = "frameledger-functions"
FOLDED_SECONDS = 60.0
"""How long to wait for the projector to fold one of our frames."""

POLL_SECONDS = 0.25
"""The maximum delay caused by a lost notification."""

RECONNECT_SECONDS = 1.0

Condition = Callable[[CallSnapshot], bool]

_log = logs.get_logger("functions")


@dataclass(eq=False, slots=True)
class _Question:
    about: FrameOfCall
    condition: Condition
    answer: asyncio.Future[CallSnapshot]


class CallStatusReader:
    """Reads the status of calls and frames. `folding` answers only while `run` runs."""

    def __init__(self, settings: Settings, connections: Connections) -> None:
        self._settings = settings
        self._connections = connections
        self._questions: set[_Question] = set()
        self._wake = asyncio.Event()

    async def read(self, call: CallAttempt) -> CallSnapshot:
        """Returns the status of a call, with its in-progress frame. Raises `DatabaseError`."""
        return (await self.read_all([call]))[0]

    async def read_all(self, calls: Sequence[CallAttempt]) -> list[CallSnapshot]:
        """Returns the status of each of these calls, in order, with one query. Raises `DatabaseError`."""
        about = [FrameOfCall(call.context_id, call.in_progress_id, call.key) for call in calls]
        return await self._connections.read(call_snapshots.snapshots, about)

    @asynccontextmanager
    async def folding(
        self,
        context_id: str,
        frame_id: str,
        call: CallAttempt | None = None,
        condition: Condition | None = None,
    ) -> AsyncIterator[asyncio.Future[CallSnapshot]]:
        """Yields a future of the first status in which the frame is folded, or for which `condition` holds.

        Enter before the frame is published, so that its notification cannot arrive too early. Leaving cancels the
        future.
        """
        about = FrameOfCall(context_id, frame_id, None if call is None else call.key)
        question = _Question(about, condition or _is_folded, asyncio.get_running_loop().create_future())
        self._questions.add(question)
        try:
            yield question.answer
        finally:
            self._questions.discard(question)
            question.answer.cancel()

    async def run(self) -> None:
        """Answer until cancelled. Requests wait while the database is unavailable."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._answer())

    async def _answer(self) -> None:
        while True:
            self._wake.clear()
            questions = list(self._questions)
            if questions:
                try:
                    answers = await self._connections.read(
                        call_snapshots.snapshots, [question.about for question in questions]
                    )
                except DatabaseError as error:
                    _log.warning("call.status_unreadable", error=str(error), calls=len(questions))
                    answers = []
                    await asyncio.sleep(RECONNECT_SECONDS)
                for question, current in zip(questions, answers, strict=False):
                    if not question.answer.done() and question.condition(current):
                        question.answer.set_result(current)
                        self._questions.discard(question)
            await supervision.pause(self._wake, POLL_SECONDS)

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, SchemaError, OSError):
                async with await connect(self._settings, NAME, "frameledger_worker") as connection:
                    async for _ in progress_channel.notifications(connection):
                        self._wake.set()
            await asyncio.sleep(RECONNECT_SECONDS)


def _is_folded(current: CallSnapshot) -> bool:
    return current.folded
