"""Short forms for columns of a table: ids of runs and calls, types of frames, times."""

from __future__ import annotations

import re
from datetime import UTC, datetime

SHORT = 9
"""Maximum length of a short id in characters."""

_UUID = re.compile("[0-9a-fA-F]{8}-")


def short_id(id_: str) -> str:
    """Returns the first eight characters of a UUID, and the last eight of any other long id, like the SQL function
    `short_id`."""
    if len(id_) <= SHORT:
        return id_
    return id_[:8] if _UUID.match(id_) else f"…{id_[-8:]}"


def frame_type(type_: str) -> str:
    """Returns the type of a frame without its suffix `Frame`."""
    return type_.removesuffix("Frame")


def clock(time: datetime) -> str:
    """Returns the time of day in UTC, in milliseconds."""
    return f"{time.astimezone(UTC):%H:%M:%S.%f}"[:-3]


def seconds(since: datetime | None, until: datetime | None) -> str:
    """Returns the seconds between two times, in tenths; an empty string if one of them is unknown."""
    return "" if since is None or until is None else f"{(until - since).total_seconds():.1f}"
