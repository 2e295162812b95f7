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
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.identity import TopicChangedError
from frameledger_services.projector.partitions import LogChangedError
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
    SchemaError,
    SettingsError,
    TopicChangedError,
)


@contextmanager
def said() -> Iterator[None]:
    """End the command with exit code 1 for a failure that is no bug, with its words on standard error."""
    try:
        yield
    except EXPECTED as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def settings() -> Settings:
    """The settings in force. Inside of `said`."""
    return load(os.environ).settings
