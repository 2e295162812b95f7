"""Rebuilds of one conversation or of many, in this process or in one that kills itself at a statement."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, IsolationLevel
from tests.support.batches import TOPIC
from tests.support.processes import Process, preload
from tests.support.unparking import Sent

from frameledger_services import failpoints
from frameledger_services.audit.rebuild import Pair, RebuildOptions, rebuild_many, rebuild_some
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.rebuild_fold import STAGED_ABOVE

preload(__name__)

NAMES = TopicNames(TOPIC.removesuffix("frames"))


@asynccontextmanager
async def pairs_of(address, jobs=2, connection_class=AsyncConnection):
    """Yields the connections for this many jobs."""
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(jobs):
            reader = await stack.enter_async_context(await connection_class.connect(address, autocommit=True))
            await reader.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            writer = await stack.enter_async_context(await connection_class.connect(address, autocommit=True))
            pairs.append(Pair(reader, writer))
        yield pairs


class Done:
    """What a rebuild reported and published, and its totals."""

    def __init__(self, sent=None):
        self.outcomes = {}
        self.sent = sent or Sent()
        self.began_behind = None
        self.left = None
        self.progress = None

    @property
    def differing(self):
        """Returns the conversations that differed, each with the first different version."""
        return {
            name: one.differences.first.version
            for name, one in self.outcomes.items()
            if one.differences.count
        }

    def report(self, outcome):
        self.outcomes[outcome.context_id] = outcome

    def begun(self, progress, left):
        self.began_behind, self.left = progress.reached, left


def rebuild_in(
    address,
    *context_ids,
    names=NAMES,
    apply=True,
    selection="all",
    failpoint=failpoints.none,
    sent=None,
    **options,
):
    """Rebuild these conversations, or all that a selection matches."""
    done = Done(sent)
    chosen = RebuildOptions(names, apply=apply, why="a test", failpoint=failpoint, **options)

    async def run():
        async with pairs_of(address) as pairs:
            if context_ids:
                done.progress = await rebuild_some(pairs, chosen, context_ids, done.sent, done.report)
            else:
                done.progress = await rebuild_many(
                    pairs, chosen, selection, done.sent, done.report, done.begun
                )

    asyncio.run(run())
    return done


def killed_at(
    address: str, statement: int, names: TopicNames = NAMES, staged_above: int = STAGED_ABOVE
) -> bool:
    """Rebuild everything, one conversation at a time, in a process that kills itself before the statement with this
    number. Returns whether it reached that statement."""
    with Process(_rebuild_and_die, address, statement, names, staged_above) as process:
        code = process.ended()
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def _rebuild_and_die(address: str, statement: int, names: TopicNames, staged_above: int, _: Any) -> None:
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1
        if counted == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    class Cursor(AsyncCursor[Any]):
        async def execute(self, *args: Any, **kwargs: Any) -> Any:
            count()
            return await super().execute(*args, **kwargs)

    class Connection(AsyncConnection[Any]):
        @classmethod
        async def connect(cls, *args: Any, **kwargs: Any) -> Any:
            return await super().connect(*args, cursor_factory=Cursor, **kwargs)

    async def die(point: str) -> None:
        count()

    async def send(rows: Any) -> Any:
        count()
        return []

    async def run() -> None:
        async with pairs_of(address, 1, Connection) as pairs:
            chosen = RebuildOptions(names, apply=True, why="a test", staged_above=staged_above, failpoint=die)
            await rebuild_many(pairs, chosen, "all", send, lambda _: None, lambda *_: None)

    asyncio.run(run())
