"""Forks: a conversation continued from a version as a new conversation. The original is only read.

A fork begins with one context frame: messages, tools, choice and settings as of the version, and `forked_from`, which
names the version. Open work is not copied: a turn or an answer in progress has no message yet, and running calls are
settled as cancelled, as by an `EndFrame`. Prompt caching and speech, which a context frame does not contain, and the
request for a run are separate frames after it.

All ids are derived from the version and the new conversation, so a fork that is published again, by any process, is the
same fork. The steps, between any two of which the process may die:

1. The version is read, and whether the new conversation exists. If it does, its origin has to be this version; then
   this is a repetition, and continues. Otherwise the fork is refused, and nothing was published.
2. The context frame is published and waited for. If the process dies before, nothing happened; if it dies after, the
   fork exists, and the repetition continues from here.
3. The frames after it are published. If the process dies in between, the repetition publishes the missing ones.

The context frame expects version 0 (rule RA5.expected). If several publishers begin a conversation with that id at the
same time, the first on the log wins, and a later fork is ignored as a whole: it is refused before it requests a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frameledger import chain, derived
from frameledger.errors import RefusedError
from frameledger.evolve import call_messages
from frameledger.frames import (
    AnyFrame,
    ContextSnapshot,
    ForkedFrom,
    LLMConfigureOutputFrame,
    LLMContextFrame,
    LLMEnablePromptCachingFrame,
    LLMRunFrame,
    LLMSetLimitsFrame,
    encode_frame,
)
from frameledger.ids import ToolCallId
from frameledger.record import MAX_VALUE_BYTES
from frameledger.values import value
from frameledger_services.database_types import Connection
from frameledger_services.event_log.frame_defaults import with_defaults
from frameledger_services.store import contexts, forks
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.forks import ForkedCall


class ForkRefusedError(RefusedError):
    """A conversation cannot be forked into this id, or not from that version. The message says why; nothing was
    published.

    Remedy: Fork into an id that does not exist, from a version that is folded and fits into a frame.
    """


@value
class Fork:
    """A fork that was published."""

    context_id: str
    version: int
    """The version of its last frame that belongs to the fork."""

    origin: ForkedFrom
    repeated: bool
    """Whether the fork had already been published, so that nothing changed now."""


@value
class ForkPoint:
    """The version of a conversation from which a fork continues."""

    origin: ForkedFrom
    stored: StoredContext
    """The context at that version, unchanged."""

    messages: tuple[Any, ...]
    """The messages in wire form, with running calls settled as cancelled."""

    def snapshot(self) -> ContextSnapshot:
        """The context of the fork."""
        return ContextSnapshot(**self.stored.context.to_wire() | {"messages": self.messages})


async def moment(connection: Connection, context_id: str, version: int | None = None) -> ForkPoint:
    """Returns the fork point at a version of a conversation, by default its newest one.

    Raises `NoSuchContextError`, `NoSuchVersionError`, and `ForkRefusedError` for a version that is not folded.
    """
    stored = await contexts.context(connection, context_id, version)
    if stored.parked_version is not None and stored.version >= stored.parked_version:
        raise ForkRefusedError(
            f"{context_id!r} is parked: its frames from version {stored.parked_version} on are not folded, so its "
            f"context at version {stored.version} is not known. Fork an earlier one, or unpark it."
        )
    link = chain.first_link(context_id)
    if stored.version:
        stored_link = await forks.chain_at(connection, context_id, stored.version)
        if stored_link is None:  # erased since
            raise await contexts.missing(connection, context_id)
        link = stored_link
    running = await forks.running_calls(connection, context_id, stored.version)
    origin = ForkedFrom(context_id=context_id, version=stored.version, chain=link.hex())
    return ForkPoint(origin, stored, settled(stored.context.to_wire()["messages"], running))


def settled(messages: Sequence[Any], running: Sequence[ForkedCall]) -> tuple[Any, ...]:
    """Returns the messages with each running call settled as cancelled, as in rule R1.6: a synchronous one in its
    place, if that still exists, an asynchronous one at the end."""
    now = list(messages)
    for call in running:
        tool_call_id = ToolCallId(call.tool_call_id)
        if not call.synchronous:
            now.append(call_messages.later_cancelled(tool_call_id))
        elif call.place is not None:
            now[call.place] = call_messages.cancelled(tool_call_id)
    return tuple(now)


async def check_free(connection: Connection, context_id: str, origin: ForkedFrom) -> bool:
    """Returns whether the conversation already is this fork. Raises `ForkRefusedError` if it is another one."""
    existing = await forks.origin_of(connection, context_id)
    if existing is None:
        return False
    if existing.origin != {"context_id": origin.context_id, "version": origin.version, "chain": origin.chain}:
        raise ForkRefusedError(
            f"The conversation {context_id!r} exists already, at version {existing.version}, and does not start "
            f"with version {origin.version} of {origin.context_id!r}. Choose another id."
        )
    return True


def was_taken(context_id: str, reason: str | None) -> ForkRefusedError:
    """Returns the error for a fork whose first frame was not applied."""
    return ForkRefusedError(
        f"Another publisher started the conversation {context_id!r} at the same time, so the fork did not change "
        f"it ({reason}). Choose another id."
    )


def opening(origin: ForkedFrom, context_id: str, snapshot: ContextSnapshot) -> LLMContextFrame:
    """Returns the frame that begins a fork, in a conversation that has nothing yet."""
    return LLMContextFrame(
        id=_id("fork", origin, context_id), context=snapshot, forked_from=origin, expected_version=0
    )


def check_size(opening: LLMContextFrame, origin: ForkedFrom) -> None:
    """Raise `ForkRefusedError` if the frame that begins a conversation with this context would be larger than a frame
    may be, for instance because of many images."""
    # As it is published: with an id and a time.
    size = len(encode_frame(with_defaults(opening)))
    if size > MAX_VALUE_BYTES:
        raise ForkRefusedError(
            f"The context of {origin.context_id!r} at version {origin.version} has {size:,} bytes, but the "
            f"first frame of a fork has at most {MAX_VALUE_BYTES:,}. Choose an earlier version."
        )


def behind(moment: ForkPoint, context_id: str, *, run: bool) -> list[AnyFrame]:
    """Returns the frames that follow the opening of a fork."""
    frames: list[AnyFrame] = []
    stored, origin = moment.stored, moment.origin
    if stored.prompt_caching is not None:
        caching = _id("fork caching", origin, context_id)
        frames.append(LLMEnablePromptCachingFrame(id=caching, enable=stored.prompt_caching))
    if stored.skip_tts is not None:
        speech = _id("fork speech", origin, context_id)
        frames.append(LLMConfigureOutputFrame(id=speech, skip_tts=stored.skip_tts))
    if stored.limits:
        limits = _id("fork limits", origin, context_id)
        frames.append(LLMSetLimitsFrame(id=limits, **stored.limits))
    if run:
        frames.append(LLMRunFrame(id=_id("fork run", origin, context_id)))
    return frames


def _id(kind: str, origin: ForkedFrom, context_id: str) -> str:
    return derived.copy_id(kind, origin.context_id, str(origin.version), context_id)
