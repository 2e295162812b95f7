"""The response to an AG-UI client: heartbeats, and clients that disconnect."""

import asyncio
from typing import Any

import pytest

from frameledger_services.gateway.ag_ui import run_stream
from frameledger_services.gateway.ag_ui.following import EventBatch
from frameledger_services.gateway.ag_ui.run_stream import RunStream


class Run:
    """A run that tells what a test gives it."""

    def __init__(self):
        self.news: asyncio.Queue[str | None] = asyncio.Queue()
        self.is_over = self.is_closed = False

    def close(self):
        self.is_closed = True

    def stopping(self):
        return EventBatch(1, [{"type": "RUN_ERROR", "code": "draining"}])

    async def next(self, within):
        told = await self.news.get()
        self.is_over = told is None
        return [
            EventBatch(1, [{"type": "RUN_FINISHED"}] if told is None else [{"type": "CUSTOM", "name": told}])
        ]


class Client:
    """The other side of one answer."""

    def __init__(self, run):
        self.gone = asyncio.Event()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.left: list[bool] = []
        self.stream = RunStream(run, b"begin\n\n", self.left.append)

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if message["type"] == "http.response.body":
            await self.sent.put(message)

    async def __call__(self):
        await self.stream({"type": "http"}, self.receive, self.send)

    async def body(self):
        return (await self.sent.get())["body"]


def with_client(talk):
    async def main():
        run = Run()
        client = Client(run)
        answering = asyncio.create_task(client())
        assert await client.body() == b"begin\n\n"
        await talk(run, client)
        await answering
        assert run.is_closed
        return client

    return asyncio.run(main())


def test_a_run_is_told_to_its_end_and_nobody_has_left_it():
    async def talk(run, client):
        await run.news.put("one")
        assert await client.body() == b'id: 1\ndata: {"type":"CUSTOM","name":"one"}\n\n'
        await run.news.put(None)
        assert b"RUN_FINISHED" in await client.body()
        assert await client.sent.get() == {"type": "http.response.body", "body": b"", "more_body": False}

    assert with_client(talk).left == [False]


def test_a_client_that_leaves_has_left_a_run_that_goes_on():
    async def talk(run, client):
        client.gone.set()

    assert with_client(talk).left == [True]


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(run_stream, "HEARTBEAT_SECONDS", 0)


@pytest.mark.usefixtures("_impatient")
def test_a_client_hears_heartbeats_while_there_is_nothing_to_tell():
    async def talk(run, client):
        for _ in range(3):
            assert (await client.body()).startswith(b":")
        await run.news.put(None)
        while b"RUN_FINISHED" not in await client.body():
            pass

    assert with_client(talk).left == [False]


def test_a_run_that_the_gateway_lets_go_ends_with_an_error_and_nobody_has_left_it():
    async def talk(run, client):
        run.close()
        await run.news.put("last")
        assert b"last" in await client.body()
        assert b"RUN_ERROR" in await client.body()
        assert await client.sent.get() == {"type": "http.response.body", "body": b"", "more_body": False}

    assert with_client(talk).left == [False]
