"""An application in its own process that kills itself at a given step of its session."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from tests.bounds import ON_SERVERS
from tests.bridges.agents_sdk.apps import App
from tests.support.processes import preload

from frameledger_services.agents_sdk import FrameledgerRunHooks, FrameledgerSession
from frameledger_services.client import Client
from frameledger_services.settings import Settings

preload(__name__)

STRANGE: list[dict[str, Any]] = [
    {"type": "nobody_knows_this", "z": 1, "a": [1.0, 1e300, -0.0, 2**70, None, True], "é": "\U0001f600\x7f"},
    {"content": "other order", "role": "user"},
    {"role": "user", "content": [{"type": "input_text", "text": 'a part, "quoted"'}]},
]
SCRIPT: tuple[tuple[str, Any], ...] = (
    ("plain", False),
    ("add", STRANGE),
    ("pop", None),
    ("handoff", False),
    ("cancelled", False),
    ("clear", None),
    ("call", True),
    ("pop", None),
)


class Dying:
    """A client that notes its steps and dies at one of them. The steps are `asks` and `hears` of each read, and
    `asks`, `is on the log` and `hears` of each publish. Each is noted with what is read or changed by it."""

    def __init__(self, client: Client, dies_at: int | None, dies: Any) -> None:
        self._client, self._dies_at, self._dies = client, dies_at, dies
        self.steps: list[tuple[str, str]] = []

    def _step(self, name: str, what: str) -> None:
        self.steps.append((name, what))
        if len(self.steps) == self._dies_at:
            self._dies(name)
            os.kill(os.getpid(), signal.SIGKILL)

    async def context(self, *given: Any) -> Any:
        self._step("asks", "a read")
        try:
            return await self._client.context(*given)
        finally:
            self._step("hears", "a read")

    async def publish(self, context_id: str, *frames: Any, wait: bool, within: float) -> Any:
        kinds = " ".join(one.type for one in frames)
        self._step("asks", kinds)
        on_the_log = await self._client.publish(context_id, *frames, within=within)
        self._step("is on the log", kinds)
        stored = await self._client.until_stored(context_id, on_the_log, within=within)
        self._step("hears", kinds)
        return stored


def counting(kind: Any) -> Any:
    """Returns a session class that reports each completed change."""

    class Counting(kind):
        changes = 0

        async def changed(self) -> None:
            self.changes += 1

        async def add_items(self, items: Any) -> None:
            await super().add_items(items)
            await self.changed()

        async def pop_item(self) -> Any:
            popped = await super().pop_item()
            await self.changed()
            return popped

        async def clear_session(self) -> None:
            await super().clear_session()
            await self.changed()

    return Counting


async def play(session: Any, hooks: Any = None) -> None:
    app = App(session, hooks)
    for move, given in SCRIPT:
        if move == "add":
            await session.add_items(given)
        elif move == "pop":
            await session.pop_item()
        elif move == "clear":
            await session.clear_session()
        else:
            await app.turn(move, f"A question, {move}", given)


def run(settings: Settings, session_id: str, dies_at: int | None, said: Any) -> None:
    """Play the script. Sends its steps or, before it dies, the step and the number of completed changes."""
    asyncio.run(_run(settings, session_id, dies_at, said))


async def _run(settings: Settings, session_id: str, dies_at: int | None, said: Any) -> None:
    async with Client(settings) as client:
        session: Any = None

        def dies(name: str) -> None:
            said.send((name, session.changes))

        dying = Dying(client, dies_at, dies)
        session = counting(FrameledgerSession)(session_id, dying, within=ON_SERVERS)
        await play(session, FrameledgerRunHooks(session_id, client))
        said.send(dying.steps)
