"""Converts times and text of frames to values that columns of the database can store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_FIRST, _LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
"""Python can represent a time between these in every time zone; a session reads times in its own."""

_FIRST_MS, _LAST_MS = (int((one - _EPOCH) / timedelta(milliseconds=1)) for one in (_FIRST, _LAST))


@lru_cache(maxsize=1_024)
def at(timestamp_ms: int) -> datetime:
    """Returns a record's time, or the nearest one that the database can store. Cached: records that were sent together
    have the same time."""
    return _EPOCH + timedelta(milliseconds=min(max(timestamp_ms, _FIRST_MS), _LAST_MS))


def is_storable(time: datetime) -> bool:
    """Whether every session can read this time, in its own time zone."""
    return _FIRST <= time <= _LAST


def time_of(written: object) -> datetime | None:
    """Parse a time of a publisher. Returns None for text that is not a time, for a time without a UTC offset, and for
    one before `_FIRST` or after `_LAST`."""
    if not isinstance(written, str):
        return None
    try:
        parsed = datetime.fromisoformat(written)
        return parsed if parsed.tzinfo is not None and is_storable(parsed) else None
    except (ValueError, OverflowError):
        return None


def clean(text: str) -> str:
    """Returns the text without NUL, the one character of JSON that a `text` column refuses."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}") if "\x00" in text else text


def clean_or_none(text: str | None) -> str | None:
    """Returns the text without NUL, or None for None."""
    return None if text is None else clean(text)
