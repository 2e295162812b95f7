"""Many clients of one gateway that retry through every failure."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import psycopg
from tests.bounds import ON_SERVERS
from tests.support.polling import look_again, pause
from tests.support.streaming import HOST, Browser

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.client import HttpClient


class Writers:
    """A number of writers, and their progress."""

    def __init__(self, prefix: str, count: int, port: int, batches: int, seed: int) -> None:
        self._progress = threading.Condition()
        self.all = [Writer(f"{prefix}-{number}", port, batches, seed, self._note) for number in range(count)]
        self.context_ids = [one.context_id for one in self.all]
        self.batches = count * batches

    def start(self) -> None:
        for one in self.all:
            one.start()

    def until_answered(self, batches: int) -> None:
        """Wait until this many batches are answered. Raises the error of a writer that failed."""
        with self._progress:
            seen = self._answered
            while self._answered < batches:
                assert self._progress.wait(ON_SERVERS), f"nothing is answered after {seen} of {batches}"
                for one in self.all:
                    if one.failure is not None:
                        raise one.failure
                seen = self._answered

    @property
    def lost(self) -> int:
        """Number of requests without an answer."""
        return sum(one.lost for one in self.all)

    @property
    def _answered(self) -> int:
        return sum(one.answered for one in self.all)

    def _note(self) -> None:
        with self._progress:
            self._progress.notify_all()


class Writer(threading.Thread):
    """Appends to its own conversation until everything is answered, and repeats every request that failed. Half of its
    requests have frame ids, the other half an idempotency key. It breaks off some requests at a random byte or before
    the response, and repeats some that were answered.
    """

    def __init__(
        self, context_id: str, port: int, batches: int, seed: int, on_progress: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        self.context_id = context_id
        self.sent = 0
        """Frames."""

        self.answered = 0
        """Number of batches."""

        self.lost = 0
        """Number of requests without an answer."""

        self.failure: BaseException | None = None
        self._port = port
        self._batches = batches
        self._random = random.Random(f"{seed} {context_id}")
        self._on_progress = on_progress

    def run(self) -> None:
        try:
            with httpx.Client(base_url=f"http://{HOST}:{self._port}", timeout=ON_SERVERS) as http:
                for batch in range(self._batches):
                    self._append(http, batch)
                    self.answered += 1
                    self._on_progress()
        except BaseException as error:
            self.failure = error
            self._on_progress()

    def _append(self, http: httpx.Client, batch: int) -> None:
        frames = [self._frame() for _ in range(self._random.randint(1, 5))]
        if batch % 2:
            for number, one in enumerate(frames):
                one["id"] = f"{batch}-{number}"
        headers = {} if batch % 2 else {"Idempotency-Key": f"batch {batch}"}
        path = f"/v1/contexts/{self.context_id}/frames"
        request = http.build_request("POST", path, json=frames, headers=headers)
        while self._random.random() < 0.2:
            self._hang_up_on(request)
        first = self._answered(http, request)
        assert [one["outcome"] for one in first["frames"]] == ["applied"] * len(frames)
        if self._random.random() < 0.1:
            again = self._answered(http, request)
            assert [one["version"] for one in again["frames"]] == [one["version"] for one in first["frames"]]

    def _frame(self) -> dict[str, object]:
        self.sent += 1
        words = f"{self.context_id} {self.sent}"
        return {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": words}]}

    def _hang_up_on(self, request: httpx.Request) -> None:
        """Send a request, or only its beginning, without waiting for the answer."""
        head = b"".join(b"%s: %s\r\n" % pair for pair in request.headers.raw)
        whole = b"POST %s HTTP/1.1\r\n%s\r\n%s" % (request.url.raw_path, head, request.read())
        self.lost += 1
        try:
            with socket.create_connection((HOST, self._port), ON_SERVERS) as connection:
                connection.sendall(
                    whole[: self._random.choice((len(whole), self._random.randrange(len(whole))))]
                )
        except OSError:
            # It is being killed.
            return

    def _answered(self, http: httpx.Client, request: httpx.Request) -> Any:
        until = time.monotonic() + ON_SERVERS
        while time.monotonic() < until:
            try:
                answer = http.send(request)
            except httpx.TransportError:
                self.lost += 1
                pause()
                continue
            assert answer.status_code in (201, 202, 503), answer.text
            if answer.status_code == 201:
                return answer.json()
            self.lost += 1
        raise AssertionError("nobody answers")


class Talker(threading.Thread):
    """Publishes to its own conversation with our client, which retries by itself, and follows it meanwhile. It
    continues for as long as these writers write, so that the same faults happen to it."""

    def __init__(self, context_id: str, port: int, batches: int, writers: Writers) -> None:
        super().__init__(daemon=True)
        self.context_id = context_id
        self.sent = 0
        """Frames."""

        self.seen: list[tuple[int, str]] = []
        """The version and the text of each frame, as received by the stream."""

        self.failure: BaseException | None = None
        self._port = port
        self._batches = batches
        self._writers = writers
        self._random = random.Random(context_id)

    def run(self) -> None:
        try:
            asyncio.run(self._talk())
        except BaseException as error:
            self.failure = error

    async def _talk(self) -> None:
        async with HttpClient(f"http://{HOST}:{self._port}", "") as client, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow(client))
            for batch in range(self._batches):
                await asyncio.to_thread(
                    self._writers.until_answered, batch * self._writers.batches // self._batches
                )
                frames = [self._frame() for _ in range(self._random.randint(1, 5))]
                published = await client.publish(self.context_id, *frames, wait=True, within=ON_SERVERS)
                assert [one.version for one in published] == [
                    *range(self.sent - len(frames) + 1, self.sent + 1)
                ]
            async with asyncio.timeout(ON_SERVERS):
                while len(self.seen) < self.sent:
                    await look_again()
            following.cancel()

    async def _follow(self, client: HttpClient) -> None:
        async for stored in client.follow(self.context_id):
            assert isinstance(stored.frame, LLMMessagesAppendFrame)
            self.seen.append((stored.version, str(stored.frame.messages[0]["content"])))

    def _frame(self) -> LLMMessagesAppendFrame:
        self.sent += 1
        return LLMMessagesAppendFrame(
            messages=[{"role": "user", "content": f"{self.context_id} {self.sent}"}]
        )


class Audience(threading.Thread):
    """Streams that follow conversations, in an event loop of their own."""

    def __init__(self, port: int, context_ids: Sequence[str], streams: int) -> None:
        super().__init__(daemon=True)
        names = [context_ids[number % len(context_ids)] for number in range(streams)]
        self.browsers = [(name, Browser(port, name)) for name in names]
        self.failure: BaseException | None = None
        self._newest: Mapping[str, int] | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._follow())
        except BaseException as error:
            self.failure = error

    def until_connected(self, times: int) -> None:
        """Wait until each stream has connected this many times."""
        until = time.monotonic() + ON_SERVERS
        while any(browser.connections < times for _, browser in self.browsers):
            if self.failure is not None:
                raise self.failure
            assert time.monotonic() < until, f"somebody was not connected {times} times"
            pause()

    def leave(self, newest: Mapping[str, int]) -> None:
        """Wait until all streams have seen these versions and are closed. Raises the error of a stream that failed."""
        self._newest = newest
        self.join(ON_SERVERS)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), "some have not seen everything"

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(browser.run()) for _, browser in self.browsers]
            while not self._has_all():
                await look_again()
            for one in following:
                one.cancel()

    def _has_all(self) -> bool:
        newest = self._newest
        return newest is not None and all(
            browser.events[-1:] and browser.events[-1].data.get("version") == newest[name]
            for name, browser in self.browsers
        )


def kept(browser: Browser) -> list[int]:
    """Returns the versions that a client has at the end. A reset discards the earlier ones."""
    names = [event.name for event in browser.events]
    begin = len(names) - names[::-1].index("reset") if "reset" in names else 0
    return [event.data["version"] for event in browser.events[begin:] if event.name == "frame"]


def check(
    address: str, writers: Writers, audience: Audience | None = None, talkers: Sequence[Talker] = ()
) -> None:
    """Assert that everything that was published is stored once and in order, and that each stream delivered every
    version once and in order."""
    for talker in talkers:
        talker.join(ON_SERVERS)
        if talker.failure is not None:
            raise talker.failure
        assert talker.seen == [
            (number, f"{talker.context_id} {number}") for number in range(1, talker.sent + 1)
        ]
    speakers: list[Writer | Talker] = [*writers.all, *talkers]
    with psycopg.connect(address) as connection:
        for one in speakers:
            said = connection.execute(
                "SELECT text FROM messages WHERE context_id = %s ORDER BY position", (one.context_id,)
            ).fetchall()
            assert said == [(f"{one.context_id} {number}",) for number in range(1, one.sent + 1)]
        newest: dict[str, int] = dict(
            connection.execute("SELECT context_id, version FROM contexts").fetchall()
        )
    if audience is not None:
        audience.leave(newest)
        for name, browser in audience.browsers:
            assert kept(browser) == list(range(1, newest[name] + 1)), name
