"""A response whose bytes are there, written at once.

uvicorn checks and joins each header of each response. A read of a context sends the same ones each time, so they are
handed over as bytes, which saves 6 of its 36 us (measured in one process, without sockets).
"""

from __future__ import annotations

import weakref
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

COMPLETE = "frameledger.complete"


def extension(cycle: RequestResponseCycle) -> dict[object, object]:
    """Returns the extension `COMPLETE` of a request's scope."""
    # A weak reference, since the cycle has the scope: only the garbage collector would delete both.
    return {"cycle": weakref.ref(cycle)}


def has_sent(scope: Any, head: bytes, body: bytes) -> bool:
    """Send the response 200 of a request: `head` is its header lines, each with its end, `content-length` among them.
    The server adds its own.

    Returns False, and has sent nothing, if the response has to be sent by ASGI: to another server, on a connection that
    closes after it, and to a client that is slow or gone.
    """
    offered = scope.get("extensions", {}).get(COMPLETE)
    cycle: RequestResponseCycle | None = None if offered is None else offered["cycle"]()
    if cycle is None or cycle.response_started or cycle.disconnected:
        return False
    if cycle.flow.write_paused or not cycle.keep_alive:
        return False
    transport: Any = cycle.transport
    own = b"".join([b"%b: %b\r\n" % one for one in cycle.default_headers])
    transport.write_complete(b"".join((b"HTTP/1.1 200 OK\r\n", own, head, b"\r\n", body)))
    # What uvicorn's `send` does at the end of a body.
    cycle.response_started = cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True
