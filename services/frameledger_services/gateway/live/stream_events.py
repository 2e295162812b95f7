"""The events of a stream as bytes of `text/event-stream`: frame, head, reset and end.

The `id` of an event is the version up to which a client has everything, so a browser resumes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from frameledger_services.gateway import frame_json
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.store.following import StreamHead
from frameledger_services.store.wanted_frames import PagedFrame

RETRY = b"retry: 2000\n"
"""The time in milliseconds after which a disconnected client reconnects."""

HEARTBEAT = b": heartbeat\n\n"
"""A comment, which clients ignore. It keeps intermediaries from closing the connection as idle."""


def begin(first: Chunk | None) -> bytes:
    """Returns the beginning of a stream with this first chunk. If the chunk has no event, an `id` is sent by itself: a
    client that asked for frames from now on would otherwise begin at a later "now" after a reconnect."""
    if first is None or first.data:
        return RETRY + b"\n" + (b"" if first is None else first.data)
    return RETRY + b"id: %d\n\n" % first.version


def frame(stored: PagedFrame) -> bytes:
    """Returns the event of a frame whose payload was read."""
    return _event("frame", stored.version, frame_json.written(stored))


def head(now: StreamHead) -> bytes:
    """Returns the event that says that a client has all frames."""
    about = {"version": now.version, "status": now.status, "open_run_id": now.open_run_id}
    return _event("head", now.version, orjson.dumps(about))


def reset(newest: int) -> bytes:
    """Returns the event for a client that has more frames than exist, as after a database was restored: it discards
    what it has and receives everything from version 1."""
    return _event("reset", 0, _json({"newest": newest}))


def gone(version: int) -> bytes:
    """Returns the event for a client whose conversation was erased up to a version: it discards what it has."""
    return _event("gone", version, _json({"version": version}))


def _event(name: str, version: int, data: bytes) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), version, data)


def _json(about: Mapping[str, Any]) -> bytes:
    return orjson.dumps(about)
