"""How many requests and streams a token has at once, and how long."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from tests.support.guarded_gateway import (
    BUGS,
    Gateway,
    guarded_gateway,  # noqa: F401  # a fixture
    said,
)
from tests.support.polling import look_again

from frameledger_services.gateway.access import rate_limit, tokens
from frameledger_services.gateway.access.rate_limit import Buckets


def test_a_bucket_gives_its_burst_and_then_its_rate():
    now = [100.0]
    buckets = Buckets(50, 200, now=lambda: now[0])
    assert [buckets.take("a") for _ in range(200)] == [0.0] * 200
    assert buckets.take("a") == pytest.approx(0.02)
    assert buckets.take("b") == 0.0
    now[0] += 0.02
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0
    now[0] += 1
    assert [buckets.take("a") > 0 for _ in range(51)] == [False] * 50 + [True]
    now[0] += 3_600
    assert [buckets.take("a") > 0 for _ in range(201)] == [False] * 200 + [True]


def test_a_token_beyond_its_rate_is_told_when_to_come_again(tmp_path):
    gateway = Gateway(tmp_path, gateway_requests_per_sec=0.000_01, gateway_burst=2)
    answers = gateway.ask_all([("/v1/contexts", "GET", gateway.admin, {})] * 3)
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert said(answers[-1]) == (429, "too-many")
    assert 99_000 < int(answers[-1].headers["retry-after"]) <= 100_000
    assert gateway.ask("/v1/contexts", token=gateway.token("other")).status_code == 200
    assert gateway.ask("/livez").status_code == 200


def test_without_tokens_there_is_no_limit(tmp_path):
    gateway = Gateway(tmp_path, open_to_all=True, gateway_requests_per_sec=0.001, gateway_burst=1)
    answers = gateway.ask_all([("/v1/contexts", "GET", None, {})] * 3)
    assert [answer.status_code for answer in answers] == [200] * 3


# Streams: an ASGI call each, since httpx takes an answer only when it is whole.


class Stream:
    """A request for a stream that goes on in a task."""

    def __init__(self, gateway, token):
        path = "/v1/contexts/a/stream"
        self.sent: asyncio.Queue[dict] = asyncio.Queue()
        self._gone = asyncio.Event()
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "http",
            "server": ("127.0.0.1", 18080),
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())],
        }
        self.task = asyncio.create_task(gateway.app(scope, self._receive, self.sent.put))

    async def _receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def status(self):
        return (await self.sent.get())["status"]

    async def leave(self):
        self._gone.set()
        await self.task


def test_a_token_has_so_many_streams_at_once(tmp_path):
    gateway = Gateway(tmp_path, gateway_streams_per_token=2)
    other = gateway.token("other")

    async def streams():
        one, two = Stream(gateway, gateway.admin), Stream(gateway, gateway.admin)
        assert [await one.status(), await two.status()] == [200, 200]
        third = Stream(gateway, gateway.admin)
        assert await third.status() == 429
        others = Stream(gateway, other)
        assert await others.status() == 200
        await one.leave()
        fourth = Stream(gateway, gateway.admin)
        assert await fourth.status() == 200
        for left in (two, third, others, fourth):
            await left.leave()

    asyncio.run(streams())


@pytest.mark.parametrize(
    ("method", "path", "query", "accept", "counts"),
    [
        ("GET", "/v1/contexts/a/stream", b"", b"", True),
        ("GET", "/v1/contexts/a/frames", b"", b"application/x-ndjson", True),
        ("GET", "/v1/contexts/a/frames", b"format=ndjson", b"*/*", True),
        pytest.param(
            *("GET", "/v1/contexts/a/frames", b"%66ormat=%6Edjson", b"*/*", True),
            marks=pytest.mark.regression("gateway 56"),
        ),
        ("GET", "/v1/contexts/a/frames", b"limit=7", b"*/*", False),
        ("POST", "/v1/contexts/a/frames", b"", b"application/x-ndjson", False),
        ("GET", "/v1/contexts/a", b"", b"application/json", False),
        ("GET", "/v1/responses/resp_a", b"stream=true", b"*/*", True),
        ("GET", "/v1/responses/resp_a", b"str%65am=%74rue", b"*/*", True),
        ("GET", "/v1/responses/resp_a", b"stream=false", b"*/*", False),
    ],
)
@pytest.mark.regression("gateway 14")
def test_an_answer_of_any_length_counts_as_a_stream(method, path, query, accept, counts):
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(b"accept", accept)],
    }
    assert rate_limit._is_stream(scope) == counts


def restrict(gateway, name):
    """By hand, as no command does it."""
    file = json.loads(gateway.file.read_text())
    for token in file["tokens"]:
        token["prefix"] = "other/" if token["name"] == name else token["prefix"]
    gateway.file.write_text(json.dumps(file))


def make_anew(gateway, name):
    tokens.revoke(gateway.file, name)
    gateway.token(name)


CHANGES = {
    "revoked": lambda gateway: tokens.revoke(gateway.file, "ci"),
    "made anew": lambda gateway: make_anew(gateway, "ci"),
    "restricted": lambda gateway: restrict(gateway, "ci"),
    "no file": lambda gateway: gateway.file.unlink(),
    "half a file": lambda gateway: gateway.file.write_text(gateway.file.read_text()[:-9]),
}


@pytest.mark.regression("gateway 42")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_stream_ends_at_its_next_piece_once_its_token_is_no_longer_the_same(gateway, change):
    token = gateway.token("ci")

    async def stream():
        one = Stream(gateway, token)
        assert await one.status() == 200
        await gateway.pieces.put(b": 1\n\n")
        assert (await one.sent.get())["body"] == b": 1\n\n"
        gateway.token("another")
        await gateway.pieces.put(b": 2\n\n")
        assert (await one.sent.get())["body"] == b": 2\n\n"
        change(gateway)
        # As the commands do: until then the gateway need not have looked.
        await look_again(tokens.CHECK_SECONDS)
        await gateway.pieces.put(b"data: of others\n\n")
        last = await one.sent.get()
        assert (last["body"], last["more_body"]) == (b"", False)
        await one.task
        assert one.sent.empty()

    asyncio.run(stream())
    assert BUGS == []


@pytest.mark.regression("gateway 42")
def test_a_stream_of_a_gateway_without_tokens_ends_at_its_next_piece_once_it_has_some(tmp_path):
    gateway = Gateway(tmp_path, open_to_all=True)

    async def stream():
        one = Stream(gateway, "none")
        assert await one.status() == 200
        await gateway.pieces.put(b": 1\n\n")
        assert (await one.sent.get())["body"] == b": 1\n\n"
        tokens.create(tmp_path / tokens.FILE, "first", ("read",), now=datetime.now(UTC))
        await gateway.pieces.put(b"data: of others\n\n")
        assert (await one.sent.get())["more_body"] is False
        await one.task

    asyncio.run(stream())
