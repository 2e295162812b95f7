"""What a command that speaks to the servers says when the world says no: one place for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from frameledger_services.client import (
    DatabaseError,
    NoSuchContextError,
    NoSuchVersionError,
    NotPublishedError,
    NotVisibleError,
)
from frameledger_services.database import PoolerError
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.identity import TopicChangedError
from frameledger_services.projector.changed_log import LogChangedError
from frameledger_services.settings import Settings, SettingsError, load
from frameledger_services.store.schema import SchemaError

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
def said(*more: type[Exception]) -> Iterator[None]:
    """End the command with exit code 1 for a failure that is no bug, with its words on standard error. Of a group
    of them it is the first one.

    `more` are failures that only this command knows.
    """
    expected: tuple[type[Exception], ...] = (*EXPECTED, *more)
    caught: tuple[type[Exception], ...] = (*expected, ExceptionGroup)
    try:
        yield
    except caught as error:
        typer.echo(str(first(error, expected)), err=True)
        raise typer.Exit(1) from error


def first(error: Exception, expected: tuple[type[Exception], ...]) -> Exception:
    """The failure in a group of failures that are no bugs; raises the group if there is one among them."""
    if not isinstance(error, ExceptionGroup):
        return error
    _, bugs = error.split(expected)
    if bugs is not None:
        raise error
    found: Exception = error
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


def settings() -> Settings:
    """The settings in force. Inside of `said`."""
    return load(os.environ).settings
