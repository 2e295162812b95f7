"""All frames of a conversation as NDJSON, through a real server on a socket: complete or visibly broken off."""

import asyncio
import contextlib
import socket
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from tests.bounds import IN_PROCESS, scaled

from frameledger_services.client.errors import GatewayUnavailableError
from frameledger_services.client.http import client as http_client
from frameledger_services.client.http.client import HttpClient
from frameledger_services.gateway import frames, line_stream, problems
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.caller import LOOPBACK, set_caller
from frameledger_services.gateway.access.guard import Guard
from frameledger_services.gateway.access.live_tokens import LiveTokens
from frameledger_services.gateway.access.sessions import Sessions
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live import protocol, timed_send
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.raw_paths import RawPaths
from frameledger_services.gateway.service import _Server
from frameledger_services.settings import Settings
from frameledger_services.store import wanted_frames
from frameledger_services.store.wanted_frames import FramePage, PagedFrame

FRAMES = 2_000
NDJSON = {"Accept": "application/x-ndjson"}
WORDS = b'{"type":"TextFrame","text":"%s"}'


class Database:
    """Has a conversation of so many frames. `at_page` is called with the number of each page that is read."""

    def __init__(self, text=b"x", at_page=lambda number: None):
        self.text = text
        self.at_page = at_page
        self.pages = 0

    async def read(self, function, context_id, wanted, limit, most_bytes, *, newest=False):
        assert function is wanted_frames.page
        self.pages += 1
        self.at_page(self.pages)
        value = WORDS % self.text
        limit = min(limit, -(-most_bytes // len(value)))
        last = min(FRAMES, wanted.after + limit)
        found = [self._frame(version, value) for version in range(wanted.after + 1, last + 1)]
        return FramePage(found, last == FRAMES)

    def _frame(self, version, value):
        now = datetime.now(UTC)
        about = {"frame_id": UUID(int=version), "type": "TextFrame", "outcome": "applied", "reason": None}
        unknown = ("produced_at", "source", "run_id", "tool_call_id", "causation_id", "trace_id")
        place = {"partition": 0, "generation": 1, "offset": version}
        also = about | dict.fromkeys(unknown) | place
        return PagedFrame(version=version, logged_at=now, payload=value, **also)


class Heads:
    async def read(self, moment):
        return SimpleNamespace(exists=True, newest=FRAMES, version=FRAMES)


async def _problem(request, error):
    return problems.answer(request, error)


@contextlib.asynccontextmanager
async def serving(database, stopping, guarded=None):
    """Yields the address of a server of these frames, which stops once `stopping` is set."""
    dependencies = Dependencies(Settings(), None, database, None, stopping)
    object.__setattr__(dependencies, "heads", Heads())
    app = Starlette(middleware=[Middleware(RawPaths)], exception_handlers={ProblemError: _problem})
    app.router.routes.extend(frames.routes(dependencies))

    async def open_to_all(scope, receive, send):
        set_caller(scope, LOOPBACK)
        await app(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    server = _Server(Settings(), open_to_all if guarded is None else guarded(app))
    working = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(IN_PROCESS):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await working


def test_a_gateway_that_stops_never_shortens_a_conversation_without_an_error(monkeypatch):
    monkeypatch.setattr(http_client, "READ_SECONDS", scaled(0.3))

    async def run():
        stopping = asyncio.Event()
        database = Database(at_page=lambda number: stopping.set() if number == 2 else None)
        async with serving(database, stopping) as url, HttpClient(url, token="") as client:
            return [frame.version async for frame in client.frames("a")]

    with pytest.raises(GatewayUnavailableError):
        asyncio.run(run())


def test_an_answer_that_a_stopping_gateway_breaks_off_is_an_error_for_every_client():
    async def run():
        stopping = asyncio.Event()
        database = Database(at_page=lambda number: stopping.set() if number == 2 else None)
        async with (
            serving(database, stopping) as url,
            httpx.AsyncClient(base_url=url, timeout=IN_PROCESS) as http,
        ):
            with pytest.raises(httpx.TransportError):
                await http.get("/v1/contexts/a/frames?format=ndjson")
            before = database.pages
            late = await http.get("/v1/contexts/a/frames", headers=NDJSON)
            assert (late.status_code, database.pages) == (503, before)

    asyncio.run(run())


def test_all_frames_of_a_gateway_that_goes_on_are_read():
    async def run():
        async with serving(Database(), asyncio.Event()) as url, HttpClient(url, token="") as client:
            return [frame.version async for frame in client.frames("a")]

    assert asyncio.run(run()) == list(range(1, FRAMES + 1))


def test_a_token_that_is_revoked_breaks_the_answer_off(tmp_path):
    file = tmp_path / "tokens.json"
    now = datetime.now(UTC)
    token = tokens.create(file, "ci", ("read",), now=now)[1]
    tokens.create(file, "other", ("read",), now=now)

    def guarded(app):
        settings = Settings(gateway_tokens_file=file, data_dir=tmp_path)
        return Guard(app, Sessions(settings, LiveTokens(file, required=True)))

    async def run():
        database = Database(at_page=lambda number: tokens.revoke(file, "ci") if number == 2 else None)
        async with (
            serving(database, asyncio.Event(), guarded) as url,
            httpx.AsyncClient(base_url=url, timeout=IN_PROCESS) as http,
        ):
            with pytest.raises(httpx.TransportError):
                await http.get(
                    "/v1/contexts/a/frames", headers={**NDJSON, "Authorization": f"Bearer {token}"}
                )

    asyncio.run(run())


def test_frames_of_a_megabyte_are_read_one_by_one():
    async def run():
        database = Database(b"x" * frames.PIECE_BYTES)
        async with (
            serving(database, asyncio.Event()) as url,
            httpx.AsyncClient(base_url=url, timeout=IN_PROCESS) as http,
            http.stream("GET", "/v1/contexts/a/frames", headers=NDJSON) as answer,
        ):
            size = 0
            async for piece in answer.aiter_bytes():
                size += len(piece)
                if size > 3 * frames.PIECE_BYTES:
                    break
            # What the sockets and the server's buffer hold, and no more.
            assert database.pages < 30

    asyncio.run(run())


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(timed_send, "SEND_SECONDS", scaled(0.1))
    was_cut_off = asyncio.Event()

    def abort(scope):
        was_cut_off.set()
        return protocol.abort(scope)

    monkeypatch.setattr(line_stream, "protocol", SimpleNamespace(abort=abort))

    async def run():
        database = Database(b"x" * frames.PIECE_BYTES)
        async with serving(database, asyncio.Event()) as url:
            host, port = url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1)
            writer.write(b"GET /v1/contexts/a/frames?format=ndjson HTTP/1.1\r\nHost: x\r\n\r\n")
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()
            await was_cut_off.wait()
            transport.resume_reading()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(FRAMES * frames.PIECE_BYTES)
            writer.close()

    asyncio.run(run())
