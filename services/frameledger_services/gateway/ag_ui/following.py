"""Follows a run of a client as events, across attempts, calls and runs, until none of them is in progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Concatenate, ParamSpec, TypeVar

from frameledger.record import decode
from frameledger_services.database_types import Connection
from frameledger_services.gateway import answers
from frameledger_services.gateway.ag_ui.streamed_message import Event
from frameledger_services.gateway.ag_ui.translation import QUIET, Translation
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.gateway.live.hub import UNNOTIFIED_WAKE_SECONDS
from frameledger_services.store import client_calls, conversation_state
from frameledger_services.store.client_calls import BegunCall, WaitingCall
from frameledger_services.store.client_requests import AskedRun
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.store.shown_messages import (
    ShownMessage,
    WrittenMessage,
    shown_messages,
    written_after,
)

WORDS = frozenset(("LLMTextFrame", "TextFrame", "VisionTextFrame", "LLMThoughtTextFrame"))
"""The most frequent types of frames. None of them begins a call or writes a message."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events, and the version of the conversation after them."""

    version: int
    events: Sequence[Event]

    def written(self) -> bytes:
        """Returns the events as server-sent events."""
        return b"".join(
            b"id: %d\ndata: %s\n\n" % (self.version, answers.json_bytes(event)) for event in self.events
        )


class FollowedRun:
    """Follows one run, until it is closed."""

    def __init__(
        self,
        dependencies: Dependencies,
        thread_id: str,
        asked_run: AskedRun,
        parent_run_id: str | None = None,
        tools: Collection[str] = (),
    ) -> None:
        """`tools` names the functions of the client: a waiting call of one of them is no interrupt, even if a service
        registered the function. Raises `TooManyFollowersError`."""
        self.thread_id = thread_id
        self.run_id = asked_run.run_id
        self.is_over = False
        """Whether the last event was returned."""

        self._dependencies = dependencies
        self._tools = frozenset(tools)
        # An answer to a call is an event of this run; any other new message is in its snapshot.
        self._begin = asked_run.version - asked_run.is_answer
        self._translation = Translation(
            thread_id, asked_run.run_id, parent_run_id, is_mirror=asked_run.is_mirror
        )
        self._follower = dependencies.hub.follow(thread_id, self._begin)
        self._newest = (0, 0)
        """Era and position of the newest known message."""

    def close(self) -> None:
        """Stop following. A pending `next` returns no events."""
        self._follower.close()

    @property
    def is_closed(self) -> bool:
        return self._follower.is_closed

    def stopping(self) -> EventBatch:
        """Returns the event for a client whose run continues while this gateway stops."""
        stopping = "The gateway is stopping. The run continues: reconnect to it."
        version = self._follower.cursor.version
        return EventBatch(
            self._begin if version is None else version, self._translation.failed(stopping, "draining")
        )

    async def begin(self) -> EventBatch:
        """Returns the events that open the run."""
        stored = await self._messages(self._begin)
        return EventBatch(self._begin, self._translation.started(stored))

    async def next(self, within: float) -> list[EventBatch]:
        """Returns the events of the next frames. Returns none after `within` seconds without frames, or if the frames
        have no events."""
        chunk = await self._follower.next(within)
        if chunk is None:
            return []
        events = [one async for one in self._frames(chunk)]
        if (lost := chunk.lost) is not None:
            self.is_over = True
            code, sentence = lost
            events.append(EventBatch(chunk.version, self._translation.failed(sentence, code)))
        elif chunk.is_all and (waiting := await self._waiting_at_end(chunk)) is not None:
            self.is_over = True
            others = [call for call in waiting if not (call.by_client or call.function_name in self._tools)]
            events.append(EventBatch(chunk.version, self._translation.finished(others)))
        return events

    async def _frames(self, chunk: Chunk) -> AsyncIterator[EventBatch]:
        begun_calls, written = await self._begun_calls(chunk), await self._written(chunk)
        for frame, following in zip_longest(chunk.frames, chunk.frames[1:]):
            assert frame.payload is not None
            of_frame = frame.version, decode(frame.payload), frame.outcome, frame.reason
            events = self._translation.take(
                *of_frame, begun_calls.get(frame.version, ()), written.get(frame.version, ())
            )
            if self._translation.is_stale and not (following and following.type in QUIET):
                events += self._translation.snapshot(await self._messages(frame.version))
            if events:
                yield EventBatch(frame.version, events)

    async def _begun_calls(self, chunk: Chunk) -> Mapping[int, Sequence[BegunCall]]:
        """Returns the calls of clients that began with these frames, by version."""
        places = [frame.version for frame in chunk.frames if frame.type not in WORDS]
        by_version: dict[int, list[BegunCall]] = {}
        if places:
            for call in await self._read(client_calls.begun, self.thread_id, places[0], places[-1]):
                by_version.setdefault(call.version, []).append(call)
        return by_version

    async def _written(self, chunk: Chunk) -> Mapping[int, Sequence[WrittenMessage]]:
        """Returns the messages that were written with these frames, by version."""
        by_version: dict[int, list[WrittenMessage]] = {}
        if any(frame.type not in WORDS for frame in chunk.frames):
            upto = chunk.frames[-1].version
            for message in await self._read(written_after, self.thread_id, self._newest, upto):
                by_version.setdefault(message.version, []).append(message)
                self._newest = message.place
        return by_version

    async def _waiting_at_end(self, chunk: Chunk) -> Sequence[WaitingCall] | None:
        """Returns the calls that wait after this chunk; None if a run or a call that the conversation waits for is
        open, or new frames have arrived."""
        if chunk.head is not None and chunk.head.open_run_id is not None:
            # The case while an answer streams. Querying runs and calls for every piece would take longer.
            return None
        # Before the version is read, so a change in between has a later version.
        waiting = await self._read(client_calls.waiting, self.thread_id)
        goes_on, newest = await self._read(conversation_state.goes_on, self.thread_id)
        return None if goes_on or newest != chunk.version else waiting

    async def _messages(self, version: int) -> list[ShownMessage]:
        shown = await self._read(shown_messages, self.thread_id, version)
        if shown:
            self._newest = max(self._newest, (shown[-1].era, shown[-1].position))
        return shown

    async def _read(
        self, read: Callable[Concatenate[Connection, _P], Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Read from the database. Waits during outages, as the hub does: an error would end a stream that has begun."""
        while True:
            try:
                return await self._dependencies.database.read(read, *args, **kwargs)
            except DatabaseUnavailableError:
                if self.is_closed:
                    raise
                await asyncio.sleep(UNNOTIFIED_WAKE_SECONDS)
