"""Names as people read them in a column: ids of runs and calls, types of frames, times."""

from __future__ import annotations

import re
from datetime import UTC, datetime

SHORT = 9
"""Characters of a short id at most."""

_UUID = re.compile("[0-9a-fA-F]{8}-")


def short_id(id_: str) -> str:
    """As the SQL function `short_id`: the first eight characters of a uuid, the last eight of another long id."""
    if len(id_) <= SHORT:
        return id_
    return id_[:8] if _UUID.match(id_) else f"…{id_[-8:]}"


def frame_type(type_: str) -> str:
    """The type of a frame without the word that all of them end with."""
    return type_.removesuffix("Frame")


def clock(time: datetime) -> str:
    """The time of day in UTC, to the millisecond."""
    return f"{time.astimezone(UTC):%H:%M:%S.%f}"[:-3]


def seconds(since: datetime | None, until: datetime | None) -> str:
    """The seconds between two times, to the tenth; nothing unless both are known."""
    return "" if since is None or until is None else f"{(until - since).total_seconds():.1f}"
