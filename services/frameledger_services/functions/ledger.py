"""What the ledger says of a call, in one read; and waiting until a frame of ours is folded.

All calls of a process wait together: one question to the database asks for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg
import structlog

from frameledger_services import database
from frameledger_services.functions.call_frames import Call
from frameledger_services.settings import Settings
from frameledger_services.store import connections
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.projections import CHANNEL
from frameledger_services.store.schema import SchemaError

NAME = "frameledger-functions"
FOLDED_SECONDS = 60.0
"""How long the projector may take to fold a frame of ours, before whoever waits for that gives up."""

LOOK_AGAIN_SECONDS = 0.25
"""What a lost notification costs."""

CONNECT_AGAIN_SECONDS = 1.0

OPEN = frozenset({"announced", "dispatched", "running", "waiting"})

_log = structlog.get_logger("functions")


@dataclass(frozen=True, slots=True)
class Standing:
    """What one read says: of a frame, whether it was folded, and of its call, how it stands."""

    asked_at: float
    """When the read was sent, by `monotonic`: nothing it says is older."""

    version: int | None = None
    """Of the frame; null if it is not stored yet."""

    outcome: str | None = None
    status: str | None = None
    """Of the call; null if the ledger does not have it."""

    worker: str | None = None
    attempt: int | None = None
    safe_to_retry: bool | None = None
    interrupted_version: int | None = None
    claim: str | None = None
    """That its latest start names."""

    by_timekeeper: bool = False
    """Whether the timekeeper started it, to settle it: nothing ran."""

    @property
    def folded(self) -> bool:
        """Whether the frame's outcome is known. One that is parked is folded when somebody mends its conversation."""
        return self.outcome is not None and self.outcome != "parked"

    @property
    def is_open(self) -> bool:
        """Whether the call may still be settled."""
        return self.status in OPEN

    def may_run(self, call: Call) -> bool:
        """Whether the log has decided that this worker runs the call: its start was applied, and the call is open, not
        interrupted, and in progress by this worker, this attempt and this claim.

        The id of that start follows from the claim, so it is no other start that is read, whatever the database had
        given out before it lost its latest commits; and the first start on the log is the one that is applied, so of
        two claims of one attempt one may run."""
        return (
            self.outcome == "applied"
            and self.status == "running"
            and self.interrupted_version is None
            and self.is_started_by(call)
        )

    def is_started_by(self, call: Call) -> bool:
        """Whether the latest start of the call is this worker's, under this claim."""
        return (self.worker, self.attempt, self.claim) == (call.worker_id, call.attempt or 0, call.claim)


Enough = Callable[[Standing], bool]


@dataclass(frozen=True, slots=True)
class _Subject:
    """A frame, and the call beside which it is looked at, if any."""

    context_id: str
    frame_id: str
    call: Call | None


@dataclass(eq=False, slots=True)
class _Question:
    about: _Subject
    enough: Enough
    answer: asyncio.Future[Standing]


class Ledger:
    """Answers questions about calls and frames. `run` has to run meanwhile."""

    def __init__(self, settings: Settings, reading: Connections) -> None:
        self._settings = settings
        self._reading = reading
        self._questions: set[_Question] = set()
        self._wake = asyncio.Event()

    async def standing(self, call: Call) -> Standing:
        """How a call stands now. Raises `DatabaseError`."""
        about = _Subject(call.context_id, call.frame_id("in progress"), call)
        return (await self._reading.read(_ask, [about]))[0]

    @asynccontextmanager
    async def folding(
        self, context_id: str, frame_id: str, call: Call | None = None, enough: Enough | None = None
    ) -> AsyncIterator[asyncio.Future[Standing]]:
        """A future that has the standing once the frame is folded, or once `enough` says so. Enter before publishing
        the frame, so that its notification cannot come too early. Leaving gives the question up."""
        about = _Subject(context_id, frame_id, call)
        asked = _Question(about, enough or _folded, asyncio.get_running_loop().create_future())
        self._questions.add(asked)
        try:
            yield asked.answer
        finally:
            self._questions.discard(asked)
            asked.answer.cancel()

    async def run(self) -> None:
        """Answer until cancelled. A database that is away is waited for."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._answer())

    async def _answer(self) -> None:
        while True:
            self._wake.clear()
            asked = list(self._questions)
            if asked:
                try:
                    answers = await self._reading.read(_ask, [question.about for question in asked])
                except DatabaseError as error:
                    _log.warning("cannot ask how calls stand", error=str(error), calls=len(asked))
                    answers = []
                    await asyncio.sleep(CONNECT_AGAIN_SECONDS)
                for question, standing in zip(asked, answers, strict=False):
                    if not question.answer.done() and question.enough(standing):
                        question.answer.set_result(standing)
                        self._questions.discard(question)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await self._wake.wait()

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, SchemaError, OSError):
                async with await connections.connect(self._settings, NAME) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    while True:
                        async for _ in connection.notifies(timeout=database.LISTENERS_ASK_SECONDS):
                            self._wake.set()
                        await database.ping(connection)
            await asyncio.sleep(CONNECT_AGAIN_SECONDS)


async def _ask(connection: psycopg.AsyncConnection[Any], asked: Sequence[_Subject]) -> list[Standing]:
    asked_at = monotonic()
    cursor = await connection.execute(
        _STANDINGS,
        (
            [one.context_id for one in asked],
            [one.frame_id for one in asked],
            [one.call and one.call.requested_version for one in asked],
            [one.call and one.call.ordinal for one in asked],
        ),
    )
    return [Standing(asked_at, *row) for row in await cursor.fetchall()]


def _folded(standing: Standing) -> bool:
    return standing.folded


_STANDINGS = """
    SELECT
        stored.version, stored.outcome,
        call.status, call.worker, call.attempt, call.safe_to_retry, call.interrupted_version,
        call.claim, EXISTS (SELECT FROM workers WHERE workers.worker_id = call.worker AND workers.kind = 'timekeeper')
    FROM unnest(%s::text[], %s::uuid[], %s::bigint[], %s::integer[])
        WITH ORDINALITY AS asked (context_id, frame_id, requested_version, ordinal, place)
    LEFT JOIN frames AS stored
        ON stored.context_id = asked.context_id AND stored.frame_id = asked.frame_id
    LEFT JOIN tool_calls AS call
        ON call.context_id = asked.context_id AND call.requested_version = asked.requested_version
        AND call.ordinal = asked.ordinal
    ORDER BY asked.place
"""
"""One statement, so of one moment: a frame's outcome and what it did to its call were written in one transaction."""
