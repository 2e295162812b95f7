"""Connections of the gateway whose other side is slow, unusual or hostile, without a gateway behind them."""

import asyncio
import gc
import logging
import socket
import struct
import weakref
from contextlib import asynccontextmanager

import pytest
from tests.bounds import IN_PROCESS, scaled
from tests.support.polling import look_again
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from frameledger_services.gateway.live import protocol
from frameledger_services.gateway.live.protocol import AbortableProtocol
from frameledger_services.gateway.service import _Server
from frameledger_services.settings import Settings

MORE_THAN_SOCKETS_HOLD = 32 << 20

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
"""What Java's client sends with its first request."""


def request(body=b"", more=b"", method=b"POST"):
    return b"%s /talk HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" % (method, more, len(body), body)


async def body_of(receive):
    body, message = b"", {"more_body": True}
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    return body


async def answer(send, body):
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope, receive, send):
    """Answers with the body, and the number of fields of the head."""
    body = await body_of(receive)
    await answer(send, b"%s (%d)" % (body, len(scope["headers"])))


async def until_gone(scope, receive, send):
    """Answers once its client is gone."""
    await body_of(receive)
    while (await receive())["type"] != "http.disconnect":
        pass
    await answer(send, b"gone")


class Transport:
    """A connection whose bytes stay here."""

    def __init__(self):
        self.written = b""
        self.is_closed = False
        self.is_reading = True
        self.is_ended = False

    def write(self, data):
        assert not self.is_closed
        assert not self.is_ended
        self.written += data

    def close(self):
        self.is_closed = True

    abort = close

    def write_eof(self):
        self.is_ended = True

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True

    def is_closing(self):
        return self.is_closed

    def get_write_buffer_size(self):
        return 0

    def get_extra_info(self, name):
        return None


def protocol_of(app, keep_alive=75):
    """To be called within an event loop."""
    config = _Server(Settings(), app).config
    config.timeout_keep_alive = keep_alive
    config.load()
    return AbortableProtocol(config=config, server_state=ServerState(), app_state={})


def connected(app, **more):
    transport, connection = Transport(), protocol_of(app, **more)
    connection.connection_made(transport)
    return transport, connection


@asynccontextmanager
async def client_of(app):
    """A client of a server of this app."""
    server = await asyncio.get_running_loop().create_server(lambda: protocol_of(app), "127.0.0.1", 0)
    async with asyncio.timeout(IN_PROCESS), server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


async def answered(transport, count):
    """Wait for so many answers, and return what they say."""
    async with asyncio.timeout(IN_PROCESS):
        while transport.written.count(b"HTTP/1.1 200") < count:
            await look_again()
    return [one.partition(b"\r\n\r\n")[2] for one in transport.written.split(b"HTTP/1.1 200 OK\r\n")[1:]]


@pytest.mark.regression("gateway 20")
@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_a_request_that_offers_another_protocol_keeps_its_body_and_its_connection(size):
    async def main():
        transport, connection = connected(echo)
        sent = request(b"one", OFFER) + request(b"two") + request(b"three", OFFER)
        for begin in range(0, len(sent), size):
            connection.data_received(sent[begin : begin + size])
        return await answered(transport, 3)

    # What offers the other protocol is not passed on, but the settings beside it are.
    assert asyncio.run(main()) == [b"one (4)", b"two (2)", b"three (4)"]


def test_nobody_is_connected_elsewhere():
    async def main():
        transport, connection = connected(echo)
        connection.data_received(b"CONNECT /talk HTTP/1.1\r\nHost: x\r\n\r\n")
        return transport

    transport = asyncio.run(main())
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert transport.is_closed


@pytest.mark.regression("gateway 21")
@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: ", b"GET / HTTP/1.1\r\n"])
def test_a_head_without_an_end_is_refused(begin):
    async def main():
        transport, connection = connected(echo)
        connection.data_received(request(b"one"))
        await answered(transport, 1)
        connection.data_received(begin)
        sent = 0
        while not transport.is_closed and sent < 2 * protocol.MAX_HEAD_BYTES:
            connection.data_received(b"x: y\r\n" * 100 if begin.endswith(b"\n") else b"x" * 600)
            sent += 600
        return transport, sent

    transport, sent = asyncio.run(main())
    assert b"HTTP/1.1 431 " in transport.written
    assert sent < protocol.MAX_HEAD_BYTES + 1_000


def test_a_long_body_is_no_long_head():
    body = b"x" * 3 * protocol.MAX_HEAD_BYTES

    async def main():
        transport, connection = connected(echo)
        for begin in range(0, len(sent := request(body)), 5_000):
            connection.data_received(sent[begin : begin + 5_000])
        return await answered(transport, 1)

    assert asyncio.run(main()) == [body + b" (2)"]


@pytest.mark.regression("gateway 34")
def test_a_body_is_not_counted_with_the_head_behind_it():
    body, more = b"x" * 2 * protocol.MAX_HEAD_BYTES, request(b"two")

    async def main():
        transport, connection = connected(echo)
        connection.data_received(request(body) + more[:20])
        connection.data_received(more[20:])
        return await answered(transport, 2)

    assert asyncio.run(main()) == [body + b" (2)", b"two (2)"]


@pytest.mark.regression("gateway 35")
def test_a_request_that_is_none_is_logged(caplog):
    async def main():
        transport, connection = connected(echo)
        connection.logger = logging.Logger("of this connection")
        connection.logger.addHandler(caplog.handler)
        connection.data_received(b"\x16\x03\x01 of TLS\r\n\r\n")
        return transport

    assert asyncio.run(main()).written.startswith(b"HTTP/1.1 400 ")
    assert "Invalid HTTP request received." in caplog.messages


@pytest.mark.regression("gateway 36")
def test_a_request_is_deleted_when_the_next_one_has_come():
    async def main():
        transport, connection = connected(echo)
        connection.data_received(request(b"one"))
        await answered(transport, 1)
        before = weakref.ref(connection.cycle)
        connection.data_received(request(b"two"))
        await answered(transport, 2)
        return before()

    gc.disable()
    try:
        assert asyncio.run(main()) is None
    finally:
        gc.enable()


@pytest.mark.regression("gateway 21")
def test_fields_behind_a_body_are_no_fields_of_its_head():
    head = b"POST /talk HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def main():
        transport, connection = connected(echo)
        connection.data_received(head + b"3\r\none\r\n0\r\nAuthorization: Bearer fl_x\r\nIf-Match: 5\r\n\r\n")
        return await answered(transport, 1)

    assert asyncio.run(main()) == [b"one (2)"]


@pytest.mark.regression("gateway 32")
def test_spaces_behind_the_value_of_a_field_are_no_part_of_it():
    async def last_value(scope, receive, send):
        await answer(send, scope["headers"][-1][1])

    async def main():
        transport, connection = connected(last_value)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\nLast-Event-ID:  2 \t \r\n\r\n")
        return await answered(transport, 1)

    assert asyncio.run(main()) == [b"2"]


@pytest.mark.regression("gateway 22")
@pytest.mark.parametrize("before", [b"", request(b"one")])
def test_a_head_that_comes_byte_by_byte_is_not_waited_for_longer_than_an_idle_connection(before):
    async def main():
        transport, connection = connected(echo, keep_alive=0)
        if before:
            connection.data_received(before)
            await answered(transport, 1)
        connection.data_received(b"GET / HTTP/1.1\r\n")
        async with asyncio.timeout(IN_PROCESS):
            while not transport.is_closed:
                connection.data_received(b"x: y\r\n")
                await look_again()

    asyncio.run(main())


def test_the_time_of_a_head_is_not_that_of_its_answer():
    async def main():
        _, connection = connected(until_gone, keep_alive=0)
        connection.data_received(request(b"one"))
        assert connection.timeout_keep_alive_task is None
        connection.connection_lost(None)

    asyncio.run(main())


@pytest.mark.regression("gateway 23")
def test_a_connection_whose_client_has_closed_its_side_is_open_until_all_is_answered():
    async def main():
        transport, connection = connected(echo)
        connection.data_received(request(b"one") + request(b"two"))
        assert connection.eof_received()
        found = await answered(transport, 2)
        assert transport.is_closed
        assert transport.written.count(b"connection: close") == 1
        return found

    assert asyncio.run(main()) == [b"one (2)", b"two (2)"]


def test_an_idle_connection_whose_client_has_closed_its_side_is_closed():
    async def main():
        transport, connection = connected(echo)
        assert not connection.eof_received()
        connection.data_received(request(b"one"))
        await answered(transport, 1)
        assert not connection.eof_received()

    asyncio.run(main())


def test_a_client_that_has_closed_its_side_is_answered():
    async def main():
        async with client_of(echo) as (reader, writer):
            writer.write(request(b"one") + request(b"two"))
            writer.write_eof()
            return await reader.read()

    received = asyncio.run(main())
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert b"one (2)" in received
    assert received.endswith(b"two (2)")


@pytest.mark.regression("gateway 96")
@pytest.mark.parametrize(
    ("version", "body"), [("1.0", b"onetwo"), ("1.1", b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")]
)
def test_an_answer_of_unknown_length_is_in_chunks_for_a_client_that_knows_them(version, body):
    async def stream(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def main():
        async with client_of(stream) as (reader, writer):
            head = f"GET /talk HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            return await reader.read()

    received, _, rest = asyncio.run(main()).partition(b"\r\n\r\n")
    assert rest == body
    assert (b"transfer-encoding" in received) == (version == "1.1")


def test_who_watches_a_client_that_has_closed_its_side_is_told_that_it_is_gone():
    async def main():
        async with client_of(until_gone) as (reader, writer):
            writer.write(request(b"one"))
            writer.write_eof()
            return await reader.read()

    assert asyncio.run(main()).endswith(b"gone")


@pytest.mark.regression("gateway 37")
@pytest.mark.parametrize("has_begun", [True, False])
def test_an_answer_without_an_end_to_a_client_that_has_closed_its_side_is_no_failure(caplog, has_begun):
    async def until_left(scope, receive, send):
        await body_of(receive)
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def main():
        transport, connection = connected(until_left)
        connection.logger = logging.Logger("of this connection")
        connection.logger.addHandler(caplog.handler)
        connection.data_received(request(b"one"))
        assert connection.eof_received()
        async with asyncio.timeout(IN_PROCESS):
            while not transport.is_closed:
                await look_again()
        return transport.written

    written = asyncio.run(main())
    assert not [one for one in caplog.records if one.name == "of this connection"]
    # Nor one with the piece of length 0 that ends an answer.
    assert written.count(b"HTTP/1.1 ") == has_begun
    assert not written.endswith(b"0\r\n\r\n")


@pytest.mark.regression("gateway 91")
@pytest.mark.parametrize("has_begun", [True, False])
def test_an_answer_that_is_given_up_is_no_failure(caplog, has_begun):
    async def give_up(scope, receive, send):
        await body_of(receive)
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"some", "more_body": True})
        assert protocol.abort(scope)

    async def main():
        transport, connection = connected(give_up)
        connection.logger = logging.Logger("of this connection")
        connection.logger.addHandler(caplog.handler)
        connection.data_received(request(b"one"))
        async with asyncio.timeout(IN_PROCESS):
            while connection.tasks or not transport.is_closed:
                await look_again()

    asyncio.run(main())
    assert not [one for one in caplog.records if one.name == "of this connection"]


async def refuse(scope, receive, send):
    """Answers before the body is there, and closes."""
    headers = [(b"content-length", b"2"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


@pytest.mark.regression("gateway 58")
def test_a_client_that_reads_no_answer_before_it_has_sent_all_reads_why_it_is_refused():
    async def main():
        async with client_of(refuse) as (reader, writer):
            writer.transport.set_write_buffer_limits(0)
            writer.write(request(b"x" * MORE_THAN_SOCKETS_HOLD))
            await writer.drain()
            return await reader.read()

    answered = asyncio.run(main())
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert answered.endswith(b"no")


@pytest.mark.parametrize("end", ["much", "late", "closed"])
def test_a_refused_body_is_passed_over_up_to_a_limit_and_for_a_time(monkeypatch, end):
    monkeypatch.setattr(protocol, "MAX_DISCARDED", 5_000)

    async def main():
        transport, connection = connected(refuse, keep_alive=0 if end == "late" else 75)
        connection.data_received(request(b"x" * 10_000)[:1_000])
        async with asyncio.timeout(IN_PROCESS):
            while not transport.is_ended:
                await look_again()
            if end == "closed":
                assert not connection.eof_received()
                return
            # Nothing of it is taken for another request.
            connection.data_received(request(b"two") * 10)
            while not transport.is_closed:
                if end == "much":
                    connection.data_received(b"x" * 1_000)
                await look_again()
        assert transport.written.count(b"HTTP/1.1 ") == 1

    asyncio.run(main())


def test_a_client_that_closes_its_side_within_a_request_is_not_answered():
    async def main():
        async with client_of(until_gone) as (reader, writer):
            writer.write(request(b"one")[:-1])
            writer.write_eof()
            return await reader.read()

    assert asyncio.run(main()) == b""


@pytest.mark.regression("gateway 24")
def test_a_request_before_others_is_told_that_its_client_is_gone():
    ended = []

    async def for_ever(scope, receive, send):
        gone = asyncio.create_task(until_gone(scope, receive, send_nothing))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await look_again()
        ended.append(scope["path"])

    async def send_nothing(message):
        pass

    async def main():
        async with client_of(for_ever) as (reader, writer):
            writer.write(request(b"one") + request(b"two"))
            await reader.readuntil(b"x")
            # Reset, for a server that waits with other requests does not look whether there are more.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            while not ended:
                await look_again()

    asyncio.run(main())
    assert ended == ["/talk"]


@pytest.mark.regression("gateway 51")
@pytest.mark.parametrize(
    "waiting",
    [b"GET /talk HTTP/1.1\r\n\r\n" * 20_000, request(b"x" * 3 * HIGH_WATER_LIMIT)],
    ids=["many", "large"],
)
def test_requests_that_wait_are_a_few_and_no_more_is_read(waiting):
    async def main():
        is_watched = asyncio.Event()

        async def watched(scope, receive, send):
            await body_of(receive)
            is_watched.set()
            # Whether its client is gone, for which is read what comes.
            await receive()

        transport, connection = connected(watched)
        connection.data_received(request(b"one") + waiting)
        await is_watched.wait()
        assert 0 < len(connection.pipeline) < protocol.MAX_WAITING + protocol.PIECE_BYTES // 20
        assert not transport.is_reading
        connection.connection_lost(None)

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"x" * 3_000])
def test_requests_that_are_sent_at_once_are_all_answered_in_their_order(body):
    bodies = [b"%d %s" % (number, body) for number in range(1_000)]

    async def main():
        async with client_of(echo) as (reader, writer):
            writer.write(b"".join(request(one) for one in bodies))
            writer.write_eof()
            return await reader.read()

    answers = asyncio.run(main()).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [one.partition(b"\r\n\r\n")[2] for one in answers] == [one + b" (2)" for one in bodies]


@pytest.mark.regression("gateway 48")
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_a_client_that_does_not_read_its_answer_is_cut_off(monkeypatch, count, more):
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", scaled(0.1))
    connections = []

    async def large(scope, receive, send):
        await body_of(receive)
        await answer(send, b"x" * MORE_THAN_SOCKETS_HOLD)

    def connect():
        connections.append(protocol_of(large))
        return connections[-1]

    async def main():
        server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
        async with asyncio.timeout(IN_PROCESS), server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(request(more=more) * count)
            while not connections or connections[0].cycle is None or connections[0].connections:
                await look_again()
            assert connections[0].transport.is_closing()
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("begin", ["pause_writing", "timeout_keep_alive_handler"])
@pytest.mark.parametrize("rate", [protocol.MIN_RATE + 1, protocol.MIN_RATE // 2])
def test_a_client_is_waited_for_while_it_reads_at_the_least_rate(begin, rate):
    class Loop:
        """Calls at once what is to be called later; meanwhile the client reads."""

        def call_later(self, seconds, function, *arguments):
            transport.unread = max(transport.unread - rate * seconds, 0)
            function(*arguments)

    class Unread(Transport):
        unread = 1_000_000
        is_aborted = False

        def get_write_buffer_size(self):
            return self.unread

        def abort(self):
            self.is_aborted = True

    async def main():
        connection = protocol_of(echo)
        connection.connection_made(transport)
        connection.timeout_keep_alive_task.cancel()
        connection.loop = Loop()
        getattr(connection, begin)()

    transport = Unread()
    asyncio.run(main())
    assert transport.is_aborted == (rate < protocol.MIN_RATE)
    assert (transport.unread == 0) == (rate > protocol.MIN_RATE)
