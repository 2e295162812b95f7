"""A conversation back as Pipecat's `LLMContext`, in another process: the old one fenced, what it left unsaid added."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from frameledger.frames import (
    AnyFrame,
    FunctionCallInProgressFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
)
from frameledger_services.client import Client, StoredFrame
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.mirror import Appended, Change, Positions, Rewritten
from frameledger_services.pipecat.repairs import is_being_answered, repairs
from frameledger_services.pipecat.values import from_json, has_media_gone

NOTED = "noted"
"""The setting that holds what applications note: whoever asks a model leaves it out."""

WINDOWS = (500, 10_000)
"""So many of the newest frames are looked through for words that are in no message; more, if no message is among them:
then a single answer is that long."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What `restore` found."""

    version: int = 0
    """The version of the conversation that the new process begins with; its own first frame is in it."""

    is_new: bool = True
    """Whether there was nothing before."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings as they were, without what was noted."""

    noted: Mapping[str, Any] = field(default_factory=dict)
    """What the application had noted."""

    repaired: tuple[Mapping[str, Any], ...] = ()
    """The messages that tell what a crash left unsaid, as they were added or rewritten."""

    tools_changed: tuple[str, ...] = ()
    """Names of tools that the conversation knew and today's code has not, or the other way round."""

    without_media: int = 0
    """Messages of which media are only known by hash and size."""


@dataclass(slots=True)
class RestoredConversation:
    """The stored conversation with the repairs applied."""

    messages: list[Any]
    positions: Positions
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
    """Fence the process that kept the history before, read the conversation, and publish what a crash left unsaid.

    If an inference worker still answers the last question, it is interrupted, and what it generated until then is kept.

    Crashes: a process that dies after the fence leaves the same state to the next one. After the repairs, those are
    messages like all others, and are not repeated. Called again in the same session, because the first call timed out,
    it reads up to the same version and publishes the same frames with the same ids: each counts once.
    """
    publisher = _Publisher(client, context_id, session, within)
    fence = await _fence(publisher, react)
    found = await client.context(context_id, fence)
    messages: list[Any] = [_wire(one) for one in found.context.messages]
    positions = Positions()
    positions.begin(messages, found.positions)
    is_new = fence == 1
    changes: list[Change] = []
    version = fence
    if is_new:
        version = await _append_initial(publisher, positions, tuple(initial)) or fence
    else:
        tail, version = await _tail_without_open_run(publisher, fence)
        changes = repairs(messages, tail, ambiguous=open_calls == "ambiguous")
        version = await _repair(publisher, positions, changes) or version
    restored = Restored(
        version=version,
        is_new=is_new,
        settings={name: value for name, value in found.context.settings.items() if name != NOTED},
        noted=_noted(found.context.settings),
        repaired=tuple(one for change in changes for one in _said(change)),
        without_media=sum(map(has_media_gone, positions.messages)),
    )
    tools, tool_choice = list(found.context.tools or ()), found.context.tool_choice
    return RestoredConversation(list(positions.messages), positions, tools, tool_choice, restored)


@dataclass(frozen=True, slots=True)
class _Publisher:
    """Publishes frames of this restore and waits until they are stored. Their ids derive from the session, so a second
    call of restore publishes no frame twice."""

    client: Client
    context_id: str
    session: UUID
    within: float

    async def publish(self, *frames: Fields) -> int | None:
        """Returns the version of the last of these frames; None if it was rejected."""
        *_, last = await self.client.publish(self.context_id, *frames, wait=True, within=self.within)
        return last.version

    def id(self, name: str) -> str:
        return str(uuid5(self.session, name))


async def _fence(publisher: _Publisher, react: bool) -> int:
    """From this frame on only this session keeps the history. Returns its version."""
    fence: Fields = {"type": "LLMMirrorFrame", "mirror": str(publisher.session), "react": react}
    # Connects meanwhile for the reads behind the fence. Those raise its error, if it has one.
    connecting = asyncio.ensure_future(publisher.client.newest_version(publisher.context_id))
    try:
        version = await publisher.publish(fence | {"id": publisher.id("mirror")})
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    assert version is not None
    return version


async def _append_initial(
    publisher: _Publisher, positions: Positions, messages: tuple[Any, ...]
) -> int | None:
    """Append the first messages of a new conversation, if there are any. Returns the version."""
    if not messages:
        return None
    positions.apply(Appended(messages))
    frame: Fields = {
        "type": "LLMMessagesAppendFrame",
        "messages": list(messages),
        "mirror": str(publisher.session),
        "id": publisher.id("initial"),
    }
    return await publisher.publish(frame)


async def _tail_without_open_run(publisher: _Publisher, fence: int) -> tuple[list[AnyFrame], int]:
    """Returns the frames before the fence, and the newest version read. An open run is interrupted first, and the
    frames up to the interruption are read too."""
    client, context_id = publisher.client, publisher.context_id
    tail = await _tail(client, context_id, fence, fence)
    if not is_being_answered(tail):
        return tail, fence
    stop: Fields = {"type": "InterruptionFrame", "id": publisher.id("interruption")}
    newest = await publisher.publish(stop) or fence
    return await _tail(client, context_id, fence, newest), newest


async def _repair(publisher: _Publisher, positions: Positions, changes: Iterable[Change]) -> int | None:
    """Publish the repairs, if there are any. Returns the version of the last one."""
    frames = [_frame(change, positions, publisher.session, number) for number, change in enumerate(changes)]
    return await publisher.publish(*frames) if frames else None


def _noted(settings: Mapping[str, Any]) -> dict[str, Any]:
    noted = settings.get(NOTED)
    return dict(noted) if isinstance(noted, Mapping) else {}


async def _tail(client: Client, context_id: str, fence: int, newest: int) -> list[AnyFrame]:
    """The frames before the fence, as many as are needed, and those up to the newest that is wanted."""
    tail: list[AnyFrame] = []
    for most in WINDOWS:
        after = max(0, fence - 1 - most)
        found = client.frames(context_id, after)
        tail = [one.frame async for one in found if one.version <= newest and _counts(one)]
        if after == 0 or any(
            isinstance(one, LLMMessagesAppendFrame | LLMMessagesUpdateFrame) for one in tail
        ):
            break
    return tail


def _counts(one: StoredFrame) -> bool:
    """Whether what it says is so: of a process that had been replaced, or of an answer that was taken back, it is
    not; nor is a start of a call that another had begun."""
    if isinstance(one.frame, FunctionCallInProgressFrame) and one.reason in ("call_started", "target_over"):
        return False
    return one.outcome == "applied" or (one.reason != "mirror_superseded" and one.run_id is None)


def _frame(change: Change, positions: Positions, session: UUID, number: int) -> Fields:
    position = positions.apply(change)
    about: Fields = {"id": str(uuid5(session, f"restored.{number}")), "mirror": str(session)}
    about["metadata"] = {"restored": True}
    if isinstance(change, Rewritten):
        said = {"type": "LLMMessageRewriteFrame", "position": position, "message": change.message}
    else:
        said = {"type": "LLMMessagesAppendFrame", "messages": list(change.messages)}
    return said | about


def _said(change: Change) -> Iterable[Mapping[str, Any]]:
    return [change.message] if isinstance(change, Rewritten) else change.messages


def _wire(message: Any) -> Any:
    return message.to_wire() if hasattr(message, "to_wire") else dict(message)


def for_pipecat(messages: Iterable[Any], specific: Any) -> list[Any]:
    """The messages with Pipecat's class for those that one provider reads, and bytes as bytes."""
    return [
        specific(llm=one["llm"], message=from_json(one["message"]))
        if set(one) == {"llm", "message"}
        else from_json(one)
        for one in messages
    ]


def names_of(tools: Iterable[Any]) -> set[str]:
    """The functions that tools in OpenAI's form describe."""
    described = [one.get("function", one) for one in tools if isinstance(one, Mapping)]
    return {str(one["name"]) for one in described if isinstance(one, Mapping) and "name" in one}
