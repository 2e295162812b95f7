"""A scripted model server with the APIs of OpenAI and Anthropic, which records its requests.

In a process: `async with serving() as server`. As a process of its own, for benches: `python -m
frameledger_services.bench.inference.model_server --tokens 300 --pace 60` prints its address as one line and serves
until its standard input closes; `GET /received` lists when each request arrived, was answered, and was abandoned by its
client.
"""

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from frameledger_services.bench.inference import anthropic_wire, openai_wire
from frameledger_services.bench.inference.answers import Failure, Reply, say, words
from frameledger_services.bench.inference.http_wire import Connection, Received, Response


class ModelServer:
    """The answers that the server will give, and the requests that it received."""

    def __init__(self, otherwise: Reply | Callable[[Received], Reply]) -> None:
        self.received: list[Received] = []
        """Every request for an answer, oldest first."""
        self.connections_made = 0
        self.url = ""
        self._otherwise = otherwise
        self._next: deque[Reply] = deque()
        self._connections: set[Connection] = set()

    @property
    def openai_base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        return self.url

    def then(self, *replies: Reply) -> None:
        """Set the answers of the next requests, one each and in order. Later requests get the default answer."""
        self._next.extend(replies)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    @property
    def open_streams(self) -> int:
        """Number of answers in progress."""
        return sum(one.finished_at is None and one.left_at is None for one in self.received)

    def connection(self) -> Connection:
        self.connections_made += 1
        return Connection(self._answer, self._connections)

    def close(self) -> None:
        for connection in tuple(self._connections):
            connection.close()

    def _answer(self, received: Received) -> Response:
        if received.path == "/received":
            times = [one.times() for one in self.received]
            return Response(200, {"content-type": "application/json"}, (json.dumps(times).encode(),))
        self.received.append(received)
        path = received.path.partition("?")[0]
        failure = openai_wire.failure if path.endswith(openai_wire.PATH) else anthropic_wire.failure
        if not path.endswith((openai_wire.PATH, anthropic_wire.PATH)):
            return failure(Failure(404, f"there is nothing at {path}"))
        body = _object(received.body)
        if body is None or body.get("stream") is not True or not isinstance(body.get("model"), str):
            return failure(Failure(400, "this server takes a JSON object with a model and stream: true"))
        reply = self._next.popleft() if self._next else self._otherwise
        next_reply = reply(received) if callable(reply) else reply
        if isinstance(next_reply, Failure):
            return failure(next_reply)
        if path.endswith(anthropic_wire.PATH):
            return anthropic_wire.response(next_reply, body["model"])
        with_usage = (body.get("stream_options") or {}).get("include_usage") is True
        return openai_wire.response(next_reply, body["model"], with_usage=with_usage)


@asynccontextmanager
async def serving(
    otherwise: Reply | Callable[[Received], Reply] | None = None, *, port: int = 0
) -> AsyncIterator[ModelServer]:
    """Yields the server on 127.0.0.1, at a free port unless one is given. Open connections are reset at the end."""
    server = ModelServer(say("Hello", " there", ".") if otherwise is None else otherwise)
    # Hundreds of clients may connect at once; a client that finds the queue full tries again only a second later.
    listening = await asyncio.get_running_loop().create_server(
        server.connection, "127.0.0.1", port, backlog=1024
    )
    try:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
    finally:
        listening.close()
        server.close()
        await listening.wait_closed()


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


async def _until_stdin_closes(otherwise: Reply, port: int) -> None:
    async with serving(otherwise, port=port) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description="A model server that streams made-up tokens.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=300, help="of each answer")
    parser.add_argument("--pace", type=float, default=60, help="tokens a second of each stream; 0 is at once")
    parser.add_argument("--first-byte", type=float, default=0, help="seconds before an answer begins")
    arguments = parser.parse_args()
    answer = words(arguments.tokens, pace=arguments.pace or None, first_byte_secs=arguments.first_byte)
    asyncio.run(_until_stdin_closes(answer, arguments.port))


if __name__ == "__main__":
    main()
