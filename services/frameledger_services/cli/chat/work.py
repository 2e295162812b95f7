"""What a chat asks beside its conversation: whether it goes on, and who is there to work for it."""

from __future__ import annotations

from typing import Any, Protocol

from frameledger_services.store import client_calls, conversations, offers
from frameledger_services.store.connections import Connections


class Work(Protocol):
    """Asked of the database, or of a gateway: an `HttpClient` is one."""

    async def goes_on(self, context_id: str) -> tuple[bool, int]:
        """Returns whether a run is open, or a call that the conversation waits for, and the version at which."""

    async def waiting_for_client(self, context_id: str) -> dict[str, str]:
        """Returns the calls that wait for the client which brought their function: the functions' names, by their
        ids."""

    async def tools_on_offer(self) -> dict[str, dict[str, Any]]:
        """Returns the functions that live workers offer: their tools by name, in OpenAI's form."""

    async def live_inference_workers(self) -> int:
        """Returns how many there are."""


class StoredWork:
    """The work that the database has. `connections` are closed by the caller."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def goes_on(self, context_id: str) -> tuple[bool, int]:
        """See `Work`."""
        return await self._connections.read(conversations.goes_on, context_id)

    async def waiting_for_client(self, context_id: str) -> dict[str, str]:
        """See `Work`."""
        waiting = await self._connections.read(client_calls.waiting, context_id)
        return {call.tool_call_id: call.function_name for call in waiting if call.by_client}

    async def tools_on_offer(self) -> dict[str, dict[str, Any]]:
        """See `Work`."""
        return await self._connections.read(offers.tools_on_offer)

    async def live_inference_workers(self) -> int:
        """See `Work`."""
        return await self._connections.read(conversations.live_inference_workers)
