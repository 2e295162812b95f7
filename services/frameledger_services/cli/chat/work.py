"""Queries of a chat besides its conversation: whether work is open, and which workers run."""

from __future__ import annotations

from typing import Any, Protocol

from frameledger_services.store import client_calls, conversation_state, offers, serving
from frameledger_services.store.connections import Connections


class Work(Protocol):
    """Implemented for the database by `StoredWork`, and for a gateway by `HttpClient`."""

    async def goes_on(self, context_id: str) -> tuple[bool, int]:
        """Returns whether a run, or a call that the conversation waits for, is open, and at which version."""

    async def waiting_for_client(self, context_id: str) -> dict[str, str]:
        """Returns the calls that wait for the client which registered their function: function names by call id."""

    async def tools_on_offer(self) -> dict[str, dict[str, Any]]:
        """Returns the functions that live workers offer: tools by name, in OpenAI's format."""

    async def live_inference_workers(self) -> int:
        """Returns the number of running inference workers."""


class StoredWork:
    """Queries of the database. The caller closes `connections`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def goes_on(self, context_id: str) -> tuple[bool, int]:
        """See `Work`."""
        return await self._connections.read(conversation_state.goes_on, context_id)

    async def waiting_for_client(self, context_id: str) -> dict[str, str]:
        """See `Work`."""
        waiting = await self._connections.read(client_calls.waiting, context_id)
        return {call.tool_call_id: call.function_name for call in waiting if call.by_client}

    async def tools_on_offer(self) -> dict[str, dict[str, Any]]:
        """See `Work`."""
        return await self._connections.read(offers.tools_on_offer)

    async def live_inference_workers(self) -> int:
        """See `Work`."""
        return await self._connections.read(serving.live_inference_workers)
