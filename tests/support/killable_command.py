"""A `frameledger` command in a process that kills or freezes itself at a chosen point.

A point is each statement, before it is sent and once it is sent, also those that begin and end a transaction, and each
request to publish, before it and after it. The code under test knows nothing of this: the connection and the producer
are wrapped here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import AsyncCursor
from tests.bounds import scaled
from tests.support.forked_command import become
from tests.support.processes import Process, preload

from frameledger_services import database
from frameledger_services.audit.rebuild import RebuildOptions
from frameledger_services.cli.audit import rebuild
from frameledger_services.event_log.producer import Producer
from frameledger_services.store import schema
from frameledger_services.transfer import importing

for module in (
    __name__,
    "frameledger_services.cli.repair.parked",
    "frameledger_services.cli.repair.recover",
    "frameledger_services.cli.transfer.import_files",
):
    preload(module)

IDLE_IN_TRANSACTION = "idle_in_transaction_session_timeout"


@dataclass(frozen=True, slots=True)
class Moment:
    """The point at which a command sends itself a signal, once: the one with this number, from 1."""

    number: int
    after: str | None = None
    """Points are counted from the first statement that contains this text, or from the check of the schema."""

    signal: signal.Signals = signal.SIGKILL
    idle_ms: int | None = None
    """The timeout of an idle transaction, in sessions that limit it."""

    staged_above: int | None = None
    """A rebuild folds, and an import stages, a conversation with more frames before it locks it."""


class KillableCommand(Process):
    """`frameledger` with these arguments, in this environment, which ends at this moment at the latest. Its output is
    discarded."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], moment: Moment) -> None:
        super().__init__(_run, tuple(words), dict(environment), moment)


def killed_at(words: Sequence[str], environment: Mapping[str, str], moment: Moment) -> bool:
    """Run a command until it kills itself, or ends successfully. Returns whether it killed itself."""
    with KillableCommand(words, environment, moment) as process:
        code = process.ended(*words, moment)
    assert code in (0, -signal.SIGKILL), (code, words, moment)
    return code != 0


def _run(words: Sequence[str], environment: Mapping[str, str], moment: Moment, _: Any) -> None:
    points = _Points(moment)
    _wrap_connection(points, moment)
    _wrap_producer(points)
    if moment.staged_above is not None:
        _stage_above(moment.staged_above)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    become(words, environment)


class _Points:
    """Counts the points, and sends the signal at one of them."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._left = moment.number
        self._counts = False

    def begin(self, statement: str | None = None) -> None:
        """The schema was checked, or this statement is next."""
        if statement is None:
            self._counts |= self._moment.after is None
        elif self._moment.after is not None:
            self._counts |= self._moment.after in statement

    def reach(self) -> None:
        if not self._counts:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), self._moment.signal)


def _wrap_connection(points: _Points, moment: Moment) -> None:
    check = schema.check

    async def checked(*arguments: Any) -> Any:
        revision = await check(*arguments)
        points.begin()
        return revision

    class Cursor(AsyncCursor[Any]):
        async def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            points.begin(_text(query, self.connection))
            return await super().execute(query, *arguments, **options)

        def copy(self, statement: Any, *arguments: Any, **options: Any) -> Any:
            points.begin(_text(statement, self.connection))
            return super().copy(statement, *arguments, **options)

    class Connection(database.GuardedConnection):
        async def begin(self, where: str, session: Mapping[str, str], *arguments: Any) -> None:
            if moment.idle_ms is not None and IDLE_IN_TRANSACTION in session:
                session = {**session, IDLE_IN_TRANSACTION: str(int(scaled(moment.idle_ms)))}
            await super().begin(where, session, *arguments)
            self.cursor_factory = Cursor

        async def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            points.reach()
            return await super().wait(_told_when_sent(gen, points.reach), *arguments, **options)

    vars(schema)["check"] = checked
    vars(database)["GuardedConnection"] = Connection


def _text(query: Any, connection: Any) -> str:
    return query if isinstance(query, str) else query.as_string(connection)


def _told_when_sent(waiting: Any, tell: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Passes on what psycopg's generator waits for and what it gets. Calls `tell` when it waits for the first time:
    the statement is sent by then."""
    try:
        awaited = next(waiting)
        tell()
        while True:
            try:
                came = yield awaited
            except BaseException as error:
                awaited = waiting.throw(error)
            else:
                awaited = waiting.send(came)
    except StopIteration as end:
        return end.value


def _wrap_producer(points: _Points) -> None:
    publish = Producer.publish

    async def published(self: Any, *arguments: Any, **options: Any) -> Any:
        points.reach()
        places = await publish(self, *arguments, **options)
        points.reach()
        return places

    Producer.publish = published  # type: ignore[method-assign]


def _stage_above(frames: int) -> None:
    vars(rebuild)["RebuildOptions"] = partial(RebuildOptions, staged_above=frames)
    vars(importing)["STAGED_ABOVE"] = frames
