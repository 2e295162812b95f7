"""Helpers for commands that use the servers: queries, changes, and exit code 1 for expected errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Concatenate, ParamSpec, TypeVar

import psycopg
import typer
from psycopg import errors

from frameledger.errors import FrameledgerError
from frameledger_services.cli.terminal import output
from frameledger_services.database_types import Connection
from frameledger_services.exception_groups import first
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, connect, failure, has_no_answer

_P = ParamSpec("_P")
_T = TypeVar("_T")


@contextmanager
def exit_on_error(*more: type[Exception]) -> Iterator[None]:
    """Print the message of an expected error to standard error, and end the command with exit code 1. Of an exception
    group, the first error is printed.

    Every `FrameledgerError` is expected, and `more`.
    """
    expected: tuple[type[Exception], ...] = (FrameledgerError, *more)
    caught: tuple[type[Exception], ...] = (*expected, ExceptionGroup)
    try:
        yield
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended: Typer ends the command without a message.
        raise
    except caught as error:
        typer.echo(str(expected_error(error, expected)), err=True)
        raise typer.Exit(1) from error


def expected_error(error: Exception, expected: tuple[type[Exception], ...]) -> BaseException:
    """Returns the first error of a group of expected errors. Raises the group if any other error is in it."""
    if isinstance(error, ExceptionGroup) and error.split(expected)[1] is not None:
        raise error
    return first(error)


async def query(
    settings: Settings,
    function: Callable[Concatenate[Connection, _P], Awaitable[_T]],
    *arguments: _P.args,
    **options: _P.kwargs,
) -> _T:
    """Returns the result of `function` on a read-only connection, which is closed afterwards.

    Raises `DatabaseError` and `SchemaError`, which `exit_on_error` expects.
    """
    connections = Connections(settings)
    try:
        return await connections.read(function, *arguments, **options)
    finally:
        await connections.close()


@asynccontextmanager
async def connection(settings: Settings) -> AsyncIterator[Connection]:
    """Yields a read-only connection for a long read. Raises what `query` raises."""
    try:
        async with await connect(settings) as connected:
            yield connected
    except psycopg.Error as error:
        raise failure("The database did not answer", error) from error


@contextmanager
def change(*, lock_timeout: str = "") -> Iterator[None]:
    """Convert errors of a database change to `DatabaseError`. Use it inside `exit_on_error`. A lock that is not
    acquired within `lock_timeout` ends the command."""
    try:
        yield
    except psycopg.Error as error:
        if lock_timeout and isinstance(error, errors.LockNotAvailable):
            output.fail(
                f"A projector held the conversation's partition for more than {lock_timeout}.",
                "Try again. `frameledger doctor` shows whether the projectors advance.",
            )
        if isinstance(error, errors.IdleInTransactionSessionTimeout):
            output.fail(
                "The database rolled a transaction back and ended the session, because this process, or a file that it "
                "reads, had stalled for too long.",
                "Run the command again: it continues with what is missing.",
            )
        what = "The database did not answer" if has_no_answer(error) else "The database rejected the change"
        raise failure(what, error) from error
