"""The events of a stream, as bytes: what `text/event-stream` calls a frame, a head, a reset and an end.

The `id` of an event is the version up to which a client has everything, so a browser resumes by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from frameledger_services.store.following import StreamFrame, StreamHead

BEGIN = b"retry: 2000\n\n"
"""Who was cut off comes back after so many milliseconds."""

HEARTBEAT = b": heartbeat\n\n"
"""A comment, which clients ignore, so that nothing between us and them takes the connection for dead."""

_LINE_ENDS = re.compile(rb"\r\n|\r|\n")


def frame(stored: StreamFrame) -> bytes:
    """Returns the event of a frame whose payload was read. Its `frame` is the record's value, byte for byte but for
    ends of lines, which events cannot have."""
    about = orjson.dumps(
        {
            "version": stored.version,
            "id": stored.frame_id,
            "type": stored.type,
            "outcome": stored.outcome,
            "reason": stored.reason,
            "logged_at": stored.logged_at,
            "run_id": stored.run_id,
        },
        option=orjson.OPT_UTC_Z,
    )
    return _event("frame", stored.version, about[:-1] + b',"frame":' + (stored.payload or b"null") + b"}")


def head(now: StreamHead) -> bytes:
    """Returns the event that says that a client has everything that there is."""
    about = {"version": now.version, "status": now.status, "open_run_id": now.open_run_id}
    return _event("head", now.version, orjson.dumps(about))


def reset(newest: int) -> bytes:
    """Returns the event for a client that has more than there is, as after a database was restored: it forgets what it
    has, and gets everything from version 1."""
    return _event("reset", 0, _json({"newest": newest}))


def gone(version: int) -> bytes:
    """Returns the event for a client whose conversation was erased up to a version: it forgets what it has."""
    return _event("gone", version, _json({"version": version}))


def _event(name: str, version: int, data: bytes) -> bytes:
    if b"\n" in data or b"\r" in data:
        data = _LINE_ENDS.sub(b"\ndata: ", data)
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), version, data)


def _json(about: Mapping[str, Any]) -> bytes:
    return orjson.dumps(about)
