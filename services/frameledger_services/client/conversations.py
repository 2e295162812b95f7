"""`Conversations`: what every client can do with conversations, whatever its connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Self
from uuid import UUID

from frameledger.context import LLMContext
from frameledger.frames import LLMSetToolsFrame
from frameledger.ids import ContextId, Version
from frameledger.tools import Tools, tools_to_wire
from frameledger_services.client.frame_inputs import FrameInput
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.reading import NoSuchContextError, StoredContext, StoredFrame

WITHIN = 30.0


class Conversations(ABC):
    """The common methods of `Client` and `HttpClient`: a program that needs no more can use either."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Close all connections. A second call does nothing; every other method then raises RuntimeError."""

    @abstractmethod
    async def publish(
        self,
        context_id: str,
        *frames: FrameInput,
        traceparent: str | None = None,
        expected_version: int | None = None,
        causation_id: UUID | str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.publish`."""

    @abstractmethod
    async def until_stored(
        self, context_id: str, published: Sequence[PublishedFrame], *, within: float = WITHIN
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.until_stored`."""

    @abstractmethod
    async def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """See `Client.context`."""

    @abstractmethod
    async def newest_version(self, context_id: str) -> int:
        """See `Client.newest_version`."""

    @abstractmethod
    def frames(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """See `Client.frames`."""

    @abstractmethod
    def follow(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """See `Client.follow`."""

    async def set_tools(
        self, context_id: str, tools: Tools | None, *, wait: bool = False, within: float = WITHIN
    ) -> tuple[PublishedFrame, ...]:
        """Publish the tools that the model may call from here on: schemas, a `ToolsSchema`, or definitions in wire
        form.

        It runs none of them; for functions of your own use `FunctionService.set_tools`. Raises TypeError for a value
        that is not a tool, and what `publish` raises.
        """
        return await self.publish(
            context_id, LLMSetToolsFrame(tools=tools_to_wire(tools)), wait=wait, within=within
        )

    async def restore(self, context_id: str) -> StoredContext:
        """Returns the newest stored context of a conversation, to continue from it: its `context` has methods such as
        `add_message`, and its `version` is the `expected_version` of `publish`.

            restored = await client.restore("ctx-1")
            summary = LLMMessagesUpdateFrame(messages=await summarize(restored.context))
            await client.publish("ctx-1", summary, expected_version=restored.version, wait=True)

        Unlike `context` it returns an empty context, at version 0, for a conversation that does not exist, so that a
        process need not know whether it is the first. It lacks frames that are on the log but not stored yet, and
        parked ones (`parked_version`); if one of these changes the context, `expected_version` detects it. Raises what
        `context` raises, except `NoSuchContextError`.
        """
        try:
            return await self.context(context_id)
        except NoSuchContextError:
            return StoredContext(ContextId(context_id), Version(0), LLMContext())
