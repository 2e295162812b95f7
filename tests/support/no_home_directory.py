"""A user without a home directory: HOME is not set, and the system does not know the user id."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.processes import preload

from frameledger.errors import FrameledgerError
from frameledger_services import access, data_directory
from frameledger_services.embedded import java
from frameledger_services.settings import Settings

preload(__name__)

UNKNOWN = 2_000_000_011


def for_a_database(directory: Path, connection: Connection) -> None:
    _lose_home_directory()
    data_directory.remember(directory)
    data_directory.forget(directory)
    try:
        access.database_address(Settings())
    except FrameledgerError as error:
        connection.send(str(error))


def for_the_cache(connection: Connection) -> None:
    _lose_home_directory()
    try:
        java.default_cache()
    except FrameledgerError as error:
        connection.send(str(error))


def _lose_home_directory() -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    os.setuid(UNKNOWN)
