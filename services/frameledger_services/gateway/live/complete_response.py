"""Sends a complete response in one write.

uvicorn checks and joins each header of each response. Reads of contexts always send the same headers, so they are
passed as bytes, which saves 6 of the 36 us of a read (measured in one process, without sockets).
"""

from __future__ import annotations

import weakref
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

COMPLETE = "frameledger.complete"


def extension(cycle: RequestResponseCycle) -> dict[object, object]:
    """Returns the extension `COMPLETE` of a request's scope."""
    # A weak reference, since the cycle refers to the scope: only the garbage collector would delete both.
    return {"cycle": weakref.ref(cycle)}


def has_sent(scope: Any, head: bytes, body: bytes) -> bool:
    """Send a response with the status 200. `head` has its header lines, each with its line ending, and includes
    `content-length`. The server adds its own headers.

    Returns False, and has sent nothing, if the response has to be sent by ASGI: with another server, on a connection
    that closes after the response, and to a client that is slow or gone.
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
