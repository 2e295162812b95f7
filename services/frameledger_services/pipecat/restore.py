"""Restores a conversation as Pipecat's `LLMContext` in another process: fences the old process and repairs messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from frameledger.frames import AnyFrame, LLMMirrorFrame
from frameledger_services.client import Client, ConversationParkedError, FrameRejectedError
from frameledger_services.omitted_media import has_omitted_media, with_text_for_media
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.errors import TakenOverError
from frameledger_services.pipecat.mirror import Appended, Change, Positions, Rewritten
from frameledger_services.pipecat.outgoing import parts_of
from frameledger_services.pipecat.repairs import repairs
from frameledger_services.pipecat.stored_tail import is_being_answered, newest_frames, shows_next_position
from frameledger_services.pipecat.values import from_json, specific_from_json

NOTED = "noted"
"""The setting with the values that applications note. Requests to models do not contain it."""

MORE = "more"
"""In the metadata of a frame with the first messages of a conversation: more follow in the next frame."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of `restore`."""

    version: int = 0
    """The version with which the new process starts. It includes the first frame of this process."""

    is_new: bool = True
    """Whether the conversation had no frames before, or only those of processes that died before they had published all
    of its first messages. True after an erasure, too."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The stored settings, without the noted values."""

    noted: Mapping[str, Any] = field(default_factory=dict)
    """The values that the application had noted."""

    repaired: tuple[Mapping[str, Any], ...] = ()
    """The messages that were added or rewritten to repair what a crash lost."""

    tools_changed: tuple[str, ...] = ()
    """Names of tools that only the stored conversation or only the current code has."""

    without_media: int = 0
    """The number of messages whose media are stored only as hash and size."""


@dataclass(slots=True)
class RestoredConversation:
    """The stored conversation with the repairs applied."""

    messages: list[Any]
    positions: Positions
    next_is_known: bool
    """Whether `positions.next_position` is right. Otherwise all messages have to be published again before one of the
    next messages is rewritten."""

    tools: list[Any]
    tool_choice: Any
    restored: Restored


async def restore_conversation(
    client: Client,
    context_id: str,
    session: UUID,
    *,
    initial: Iterable[Any],
    react: bool,
    open_calls: str,
    within: float,
) -> RestoredConversation:
    """Fence the process that kept the history before, read the conversation, and publish the repairs after a crash.

    If an inference worker still answers the last question, it is interrupted, and what it generated until then is kept.

    Raises `ConversationParkedError` if the conversation is parked, since its newest messages are not known,
    `FrameRejectedError` if it was erased and the setting `erased_ids` refuses it, and `TakenOverError` if another
    process restores it at the same time and its fence comes before the repairs of this one.

    Crashes: a process that dies after the fence leaves the same state to the next one. Published repairs are messages
    like all others, and are not repeated. A second call in the same session, after a timeout, reads up to the same
    version and publishes the same frames with the same ids, so each counts once.
    """
    publisher = _Publisher(client, context_id, session, within)
    fence = await _fence(publisher, react)
    stored = await client.context(context_id, fence)
    messages: list[Any] = [_wire(one) for one in stored.context.messages]
    positions = Positions()
    positions.begin(messages, stored.positions)
    tail, version = await _tail_without_open_run(publisher, fence)
    is_new = all(isinstance(one, LLMMirrorFrame) or MORE in one.metadata for one in tail)
    changes: list[Change] = []
    if is_new:
        version = await _begin(publisher, positions, tuple(initial)) or version
    else:
        changes = repairs(messages, tail, ambiguous=open_calls == "ambiguous")
        version = await _repair(publisher, positions, changes) or version
    restored = Restored(
        version=version,
        is_new=is_new,
        settings={name: value for name, value in stored.context.settings.items() if name != NOTED},
        noted=_noted(stored.context.settings),
        repaired=tuple(one for change in changes for one in _messages_of(change)),
        without_media=sum(map(has_omitted_media, positions.messages)),
    )
    tools, tool_choice = list(stored.context.tools or ()), stored.context.tool_choice
    next_is_known = is_new or shows_next_position(tail)
    return RestoredConversation(
        list(positions.messages), positions, next_is_known, tools, tool_choice, restored
    )


@dataclass(frozen=True, slots=True)
class _Publisher:
    """Publishes frames of this restore and waits until they are stored. Their ids derive from the session, so a second
    call of restore publishes no frame twice."""

    client: Client
    context_id: str
    session: UUID
    within: float

    async def publish(self, *frames: Fields) -> int | None:
        """Returns the version of the last of these frames; None if the conversation was erased with it. Raises
        `ConversationParkedError` if it is stored and not folded, because a read would return an older state, and
        `FrameRejectedError` and `TakenOverError`."""
        *_, last = await self.client.publish(self.context_id, *frames, wait=True, within=self.within)
        if last.outcome == "parked":
            raise ConversationParkedError(self.context_id, frames[-1]["type"])
        if last.outcome == "rejected":
            raise FrameRejectedError(self.context_id, last)
        if last.reason == "mirror_superseded":
            raise TakenOverError(self.context_id)
        return last.version

    def id(self, name: str) -> str:
        return str(uuid5(self.session, name))


async def _fence(publisher: _Publisher, react: bool) -> int:
    """Publish the frame from which on only this session keeps the history. Returns its version."""
    fence: Fields = {"type": "LLMMirrorFrame", "mirror": str(publisher.session), "react": react}
    # Connects at the same time for the reads after the fence, which raise its error if it fails.
    connecting = asyncio.ensure_future(publisher.client.newest_version(publisher.context_id))
    version = None
    try:
        # Repeated if the fence was erased with the conversation: the next fence begins its next life.
        while version is None:
            version = await publisher.publish(fence | {"id": publisher.id("mirror")})
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    return version


async def _begin(publisher: _Publisher, positions: Positions, messages: tuple[Any, ...]) -> int | None:
    """Publish the first messages of a new conversation, if there are any. They replace those of a process that died
    before it had published all of them. Returns the version."""
    if not (messages or positions.messages):
        return None
    kind = "LLMMessagesUpdateFrame" if positions.messages else "LLMMessagesAppendFrame"
    positions.begin(messages)
    parts = parts_of(messages) or [()]
    frames: list[Fields] = []
    for number, part in enumerate(parts, 1):
        about: Fields = {"mirror": str(publisher.session), "id": publisher.id(f"initial.{number}")}
        if number < len(parts):
            about["metadata"] = {MORE: True}
        frames.append({"type": kind, "messages": list(part), **about})
        kind = "LLMMessagesAppendFrame"
    return await publisher.publish(*frames)


async def _tail_without_open_run(publisher: _Publisher, fence: int) -> tuple[list[AnyFrame], int]:
    """Returns the frames before the fence, and the newest version read. An open run is interrupted first, and the
    frames up to the interruption are read too."""
    client, context_id = publisher.client, publisher.context_id
    tail = await newest_frames(client, context_id, fence, fence)
    if not is_being_answered(tail):
        return tail, fence
    stop: Fields = {
        "type": "InterruptionFrame",
        "mirror": str(publisher.session),
        "id": publisher.id("interruption"),
    }
    newest = await publisher.publish(stop) or fence
    return await newest_frames(client, context_id, fence, newest), newest


async def _repair(publisher: _Publisher, positions: Positions, changes: Iterable[Change]) -> int | None:
    """Publish the repairs, if there are any. Returns the version of the last one."""
    frames = [
        _frame(change, positions, publisher.session, number)
        for number, change in enumerate(one for change in changes for one in _in_parts(change))
    ]
    return await publisher.publish(*frames) if frames else None


def _in_parts(change: Change) -> Iterable[Change]:
    return map(Appended, parts_of(change.messages)) if isinstance(change, Appended) else [change]


def _noted(settings: Mapping[str, Any]) -> dict[str, Any]:
    noted = settings.get(NOTED)
    return dict(noted) if isinstance(noted, Mapping) else {}


def _frame(change: Change, positions: Positions, session: UUID, number: int) -> Fields:
    position = positions.apply(change)
    about: Fields = {"id": str(uuid5(session, f"restored.{number}")), "mirror": str(session)}
    about["metadata"] = {"restored": True}
    if isinstance(change, Rewritten):
        fields = {"type": "LLMMessageRewriteFrame", "position": position, "message": change.message}
    else:
        fields = {"type": "LLMMessagesAppendFrame", "messages": list(change.messages)}
    return fields | about


def _messages_of(change: Change) -> Iterable[Mapping[str, Any]]:
    return [change.message] if isinstance(change, Rewritten) else change.messages


def _wire(message: Any) -> Any:
    return message.to_wire() if hasattr(message, "to_wire") else dict(message)


def for_pipecat(messages: Iterable[Any], specific: Any) -> list[Any]:
    """Returns the messages with `specific` objects for provider-specific messages, with bytes decoded, and with a text
    for each medium that was too large to store."""
    readable = [with_text_for_media(one) if has_omitted_media(one) else one for one in messages]
    return [
        specific(llm=one["llm"], message=specific_from_json(one["message"]))
        if set(one) == {"llm", "message"}
        else from_json(one)
        for one in readable
    ]
