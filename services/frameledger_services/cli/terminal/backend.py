"""What commands share that speak to the servers: settings, one query, and exit code 1 for an error that is expected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import typer
from psycopg import AsyncConnection

from frameledger_services.client import (
    DatabaseError,
    NoSuchContextError,
    NoSuchVersionError,
    NotPublishedError,
    NotVisibleError,
)
from frameledger_services.database import PoolerError
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.projector.log_check import LogChangedError
from frameledger_services.projector.topic_identity import TopicChangedError
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store.connections import Connections
from frameledger_services.store.schema import SchemaError

_P = ParamSpec("_P")
_T = TypeVar("_T")

EXPECTED = (
    BrokerError,
    DatabaseError,
    LogChangedError,
    NoSuchContextError,
    NoSuchVersionError,
    NotPublishedError,
    NotVisibleError,
    PoolerError,
    SchemaError,
    SettingsError,
    TopicChangedError,
)


@contextmanager
def exit_on_error(*more: type[Exception]) -> Iterator[None]:
    """End the command with exit code 1, and the error's message on standard error, for an error that is no bug. Of an
    exception group of them it is the first one.

    `more` are errors that only this command expects.
    """
    expected: tuple[type[Exception], ...] = (*EXPECTED, *more)
    caught: tuple[type[Exception], ...] = (*expected, ExceptionGroup)
    try:
        yield
    except caught as error:
        typer.echo(str(first(error, expected)), err=True)
        raise typer.Exit(1) from error


def first(error: Exception, expected: tuple[type[Exception], ...]) -> Exception:
    """Returns the first error of a group of expected ones; raises the group if a bug is among them."""
    if not isinstance(error, ExceptionGroup):
        return error
    _, bugs = error.split(expected)
    if bugs is not None:
        raise error
    found: Exception = error
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


async def query(
    settings: Settings,
    function: Callable[Concatenate[AsyncConnection[Any], _P], Awaitable[_T]],
    *arguments: _P.args,
    **options: _P.kwargs,
) -> _T:
    """Returns what `function` reads, over a read-only connection that is closed afterwards.

    Raises `DatabaseError` and `SchemaError`, which `exit_on_error` expects.
    """
    connections = Connections(settings)
    try:
        return await connections.read(function, *arguments, **options)
    finally:
        await connections.close()
