"""A response of the gateway that is sent as bytes is the one that ASGI would have sent."""

import asyncio
from functools import partial

import pytest
import uvicorn
from tests.bounds import IN_PROCESS
from tests.support.turns import turns
from uvicorn.server import ServerState

from frameledger_services.gateway.live import complete_response
from frameledger_services.gateway.live.protocol import AbortableProtocol

HEADERS = [(b"etag", b'"7"'), (b"content-type", b"application/json"), (b"content-length", b"2")]
HEAD = b"".join(b"%b: %b\r\n" % one for one in HEADERS)


class Wire(asyncio.Transport):
    """What a client would receive."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.writes = []
        self.is_closed = False

    def write(self, data):
        self.writes.append(bytes(data))

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def abort(self):
        self.is_closed = True

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self): ...

    def resume_reading(self): ...


async def by_asgi(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})


async def as_bytes(scope, receive, send, *, sent):
    sent.append(complete_response.has_sent(scope, HEAD, b"{}"))
    if not sent[-1]:
        await by_asgi(scope, receive, send)


def request(path="/v1/contexts/a", *headers):
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def answered(app, *requests, prepare=None):
    """Returns the writes to a client that sends these requests at once, and whether its connection is closed."""

    async def main():
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=AbortableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            server_header=False,
        )
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"Mon, 23 Nov 2026 12:00:00 GMT")]
        connection, wire = AbortableProtocol(config=config, server_state=state, app_state={}), Wire()
        connection.connection_made(wire)
        connection.data_received(b"".join(requests))
        if prepare is not None:
            prepare(connection)
        async with asyncio.timeout(IN_PROCESS):
            while state.total_requests < len(requests) or connection.tasks:
                await turns()
        ours = wire.writes, wire.is_closed
        connection.connection_lost(None)
        return ours

    return asyncio.run(main())


@pytest.mark.parametrize("headers", [(), ("Connection: close",)], ids=["kept", "closed"])
def test_a_response_that_is_sent_as_bytes_is_that_of_asgi_in_one_write(headers):
    sent: list[bool] = []
    ours = answered(partial(as_bytes, sent=sent), request("/a", *headers))
    assert ours == answered(by_asgi, request("/a", *headers))
    assert len(ours[0]) == 1
    # Behind the last response of a connection, ASGI's says so and closes it.
    assert sent == [not headers]


def test_requests_that_come_at_once_are_answered_one_by_one():
    sent: list[bool] = []
    ours = answered(partial(as_bytes, sent=sent), request("/a"), request("/b"), request("/c"))
    assert ours == answered(by_asgi, request("/a"), request("/b"), request("/c"))
    assert sent == [True, True, True]


def test_a_client_that_is_slow_is_waited_for_by_asgi():
    sent: list[bool] = []

    def slow(connection):
        connection.pause_writing()
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, connection.resume_writing)

    ours = answered(partial(as_bytes, sent=sent), request("/a"), prepare=slow)
    assert ours == answered(by_asgi, request("/a"))
    assert sent == [False]


def test_another_server_gets_its_response_by_asgi():
    assert not complete_response.has_sent({"type": "http", "extensions": {}}, HEAD, b"{}")
    assert not complete_response.has_sent({"type": "http"}, HEAD, b"{}")
