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
class Stored:
    """The conversation as it is stored, with the repairs in it."""

    messages: list[Any]
    positions: Positions
    tools: list[Any]
    tool_choice: Any
    restored: Restored


async def stored(
    client: Client,
    context_id: str,
    session: UUID,
    *,
    initial: Iterable[Any],
    react: bool,
    open_calls: str,
    within: float,
) -> Stored:
    """Fence whoever kept the history before, and read it.

    A worker of ours that still answers its question is told to stop, and what it said until then is said.

    If this process dies after the fence, the next one finds what this one found. If it dies after the repairs, they are
    messages like all others: what is in a message is not said again. Called again in the same session, since the first
    time took too long, it reads up to where it read then, and so says the same: what arrived of that counts once.
    """
    fence: Fields = {"type": "LLMMirrorFrame", "mirror": str(session), "react": react}
    fence["id"] = str(uuid5(session, "mirror"))
    # A connection for what is read behind the fence, made meanwhile. What is wrong with it shows there.
    connecting = asyncio.ensure_future(client.newest_version(context_id))
    try:
        (published,) = await client.publish(context_id, fence, wait=True, within=within)
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    assert published.version is not None
    version = published.version
    found = await client.context(context_id, version)
    messages: list[Any] = [_wire(one) for one in found.context.messages]
    positions = Positions()
    positions.begin(messages, found.positions)
    terms = (list(found.context.tools or ()), found.context.tool_choice)
    is_new = version == 1
    if is_new:
        first = list(initial)
        if first:
            frame: Fields = {"type": "LLMMessagesAppendFrame", "messages": first, "mirror": str(session)}
            frame["id"] = str(uuid5(session, "initial"))
            (published,) = await client.publish(context_id, frame, wait=True, within=within)
            positions.apply(Appended(tuple(first)))
        changes: list[Change] = []
    else:
        tail = await _tail(client, context_id, version, version)
        if is_being_answered(tail):
            stop: Fields = {"type": "InterruptionFrame", "id": str(uuid5(session, "interruption"))}
            (published,) = await client.publish(context_id, stop, wait=True, within=within)
            tail = await _tail(client, context_id, version, published.version or version)
        changes = repairs(messages, tail, ambiguous=open_calls == "ambiguous")
        frames = [_frame(change, positions, session, number) for number, change in enumerate(changes)]
        if frames:
            *_, published = await client.publish(context_id, *frames, wait=True, within=within)
    restored = Restored(
        version=published.version or version,
        is_new=is_new,
        settings={name: value for name, value in found.context.settings.items() if name != NOTED},
        noted=_noted(found.context.settings),
        repaired=tuple(one for change in changes for one in _said(change)),
        without_media=sum(map(has_media_gone, positions.messages)),
    )
    return Stored(list(positions.messages), positions, *terms, restored)


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
