"""Playback of a conversation in the terminal, with its timing."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, suppress

from frameledger.record import DecodeError, decode
from frameledger_services.cli.replay.render import Screen
from frameledger_services.cli.terminal import moment, output
from frameledger_services.forks.pace import ReplayPace, time_of
from frameledger_services.forks.replay import recorded_frames
from frameledger_services.settings import Settings
from frameledger_services.store import client_calls
from frameledger_services.store.client_calls import BegunCall
from frameledger_services.store.connections import Connections

MAX_PAUSE_SECONDS = 3.0
"""Maximum pause in the terminal, in seconds."""

VERSIONS_AT_ONCE = 500
"""Versions per query for calls of clients."""


async def play(
    settings: Settings,
    context_id: str,
    first: int | None,
    last: int | None,
    speed: float,
    as_json: bool,
) -> None:
    """Play the versions from `first` to `last`, or print each as JSON when it is due."""
    pace = ReplayPace(speed, time.monotonic, asyncio.sleep, MAX_PAUSE_SECONDS)
    screen = Screen(output.console())
    async with AsyncExitStack() as stack:
        connections = Connections(settings)
        stack.push_async_callback(connections.close)
        until = (await connections.read(moment.find_range, context_id, first, last)).version
        begun_calls = _BegunCalls(connections, context_id)
        async for recorded in recorded_frames(connections, context_id, first or 1, until):
            seconds, silence = pace.wait_for(time_of(recorded))
            if silence and not as_json:
                screen.silence(silence)
            await pace.wait(seconds)
            if recorded.outcome != "applied":
                continue
            if as_json:
                frame = json.loads(recorded.payload)
                output.print_json_object(
                    {"version": recorded.version, "at": time_of(recorded), "frame": frame}
                )
                continue
            with suppress(DecodeError):
                screen.show(decode(recorded.payload))
            for call in await begun_calls.at(recorded.version):
                screen.began(call)
    screen.end()


class _BegunCalls:
    """The calls that a client answers, by the version at which they started, for which there is no frame. Versions are
    queried in order and in batches, so that memory is bounded."""

    def __init__(self, connections: Connections, context_id: str) -> None:
        self._connections = connections
        self._context_id = context_id
        self._calls: list[BegunCall] = []
        self._last = 0

    async def at(self, version: int) -> list[BegunCall]:
        if version > self._last:
            self._last = version + VERSIONS_AT_ONCE - 1
            self._calls = await self._connections.read(
                client_calls.begun, self._context_id, version, self._last
            )
        return [call for call in self._calls if call.version == version]
