"""A gateway that is killed under appends: whoever sends again until it is answered has each frame stored once. A client
of ours does so by itself, and whoever follows with it gets each version once and in order."""

import asyncio
import random
import threading
import time
from contextlib import ExitStack

import httpx
import psycopg
from tests.bounds import ON_SERVERS
from tests.support.gateway import running
from tests.support.killable import projector
from tests.support.road import road_of_its_own  # noqa: F401  # a fixture
from tests.support.streaming import look_again

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.client import HttpClient
from frameledger_services.embedded import ports

WRITERS, TALKERS = 3, 2
KILLS = 3
BATCHES = 12
"""Of each writer between two kills."""


class Writer(threading.Thread):
    """Appends to a conversation of its own until all is answered; says the same again whatever went wrong."""

    def __init__(self, number: int, address: str) -> None:
        super().__init__()
        self.context_id = f"kills-{number}"
        self.sent = 0
        self.again = 0
        self._random = random.Random(number)
        self._address = address
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._address, timeout=ON_SERVERS) as http:
                for batch in range(KILLS * BATCHES):
                    self._append(http, batch)
        except BaseException as error:
            self.failure = error

    def _append(self, http: httpx.Client, batch: int) -> None:
        frames = [self._frame() for _ in range(self._random.randint(1, 5))]
        # Half of them by ids of their own, half by a key.
        if batch % 2:
            for number, one in enumerate(frames):
                one["id"] = f"{batch}-{number}"
        headers = {} if batch % 2 else {"Idempotency-Key": f"batch {batch}"}
        until = time.monotonic() + ON_SERVERS
        while time.monotonic() < until:
            try:
                answer = http.post(f"/v1/contexts/{self.context_id}/frames", json=frames, headers=headers)
            except httpx.TransportError:
                self.again += 1
                continue
            assert answer.status_code in (201, 202, 503), answer.text
            if answer.status_code == 201:
                return
            self.again += 1
        raise AssertionError("nobody answers")

    def _frame(self) -> dict[str, object]:
        self.sent += 1
        words = f"{self.context_id} {self.sent}"
        return {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": words}]}


class Talker(threading.Thread):
    """Publishes to a conversation of its own by our client, and follows it meanwhile."""

    def __init__(self, number: int, address: str) -> None:
        super().__init__()
        self.context_id = f"talks-{number}"
        self.sent = 0
        self.seen: list[tuple[int, str]] = []
        self._random = random.Random(number)
        self._address = address
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._talk())
        except BaseException as error:
            self.failure = error

    async def _talk(self) -> None:
        async with HttpClient(self._address, "") as client, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow(client))
            for _ in range(KILLS * BATCHES):
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


def test_each_frame_counts_once_however_often_the_gateway_is_killed(road):
    port = str(ports.choose(0))
    also = {"gateway_port": port, "gateway_requests_per_sec": "1000000"}
    address = f"http://127.0.0.1:{port}"
    writers = [Writer(number, address) for number in range(WRITERS)]
    talkers = [Talker(number, address) for number in range(TALKERS)]
    everybody: list[Writer | Talker] = [*writers, *talkers]
    with projector(road.settings) as projecting, ExitStack() as stack:
        stack.enter_context(running(road.settings, **also))
        for one in everybody:
            one.start()
        for kill in range(1, KILLS):
            road.until("SELECT count(*) >= %s FROM frames", kill * (WRITERS + TALKERS) * BATCHES)
            # Leaving the context kills it, in the middle of whatever it does.
            stack.close()
            stack.enter_context(running(road.settings, **also))
        for one in everybody:
            one.join(ON_SERVERS)
        assert [one.failure for one in everybody] == [None] * len(everybody)
        road.until_idle(projecting)
        assert projecting.stop() == 0
    with psycopg.connect(road.address) as connection:
        for talker in talkers:
            assert talker.seen == [
                (number, f"{talker.context_id} {number}") for number in range(1, talker.sent + 1)
            ]
        for writer in everybody:
            said = connection.execute(
                "SELECT text FROM messages WHERE context_id = %s ORDER BY position", (writer.context_id,)
            ).fetchall()
            # Each once, and in the order in which it was said.
            assert said == [(f"{writer.context_id} {number}",) for number in range(1, writer.sent + 1)]
    assert sum(one.again for one in writers) > 0
    road.check(every=50)
