"""Unregisters handlers that were registered with a context's tools: when a folded tool list omits them, or when the
conversation ends. So a process that outlives many conversations does not keep the tools of all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from frameledger_services import logs
from frameledger_services.functions.registry import FunctionRegistry
from frameledger_services.store import tool_lists
from frameledger_services.store.connections import Connections, DatabaseError

POLL_SECONDS = 1.0
"""A call that arrives meanwhile is still served: the model made it when it still had the tool."""

_log = logs.get_logger("functions")


class ToolListFollower:
    """Follows the tool lists of the contexts whose tools registered handlers."""

    def __init__(self, registry: FunctionRegistry, connections: Connections) -> None:
        self._registry = registry
        self._connections = connections
        self._seen: dict[str, int] = {}
        self._publishing: Counter[str] = Counter()
        """Number of new lists of a context that are awaited: the next one may be published before the last one is
        folded."""

    def publishing(self, context_id: str) -> None:
        """Called before a new list is published: while it is awaited, the stored list is ignored."""
        self._publishing[context_id] += 1

    def folded(self, context_id: str, version: int) -> None:
        """Called when the new list was folded at that version. Older lists are ignored from now on."""
        self._seen[context_id] = max(version, self._seen.get(context_id, 0))

    def not_awaited(self, context_id: str) -> None:
        """Called when the new list was folded, is not on the log, or was not folded in time. If no other list is
        awaited, the stored list counts again."""
        self._publishing[context_id] -= 1
        if not self._publishing[context_id]:
            del self._publishing[context_id]

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            advertising = self._registry.advertising_contexts()
            followed = advertising - self._publishing.keys()
            self._seen = {
                key: seen for key, seen in self._seen.items() if key in advertising or key in self._publishing
            }
            if followed:
                try:
                    await self._poll({context_id: self._seen.get(context_id, 0) for context_id in followed})
                except DatabaseError as error:
                    _log.warning("functions.tools_not_followed", error=str(error))
            await asyncio.sleep(POLL_SECONDS)

    async def _poll(self, seen: Mapping[str, int]) -> None:
        for context_id, version, names in await self._connections.read(tool_lists.changed, seen):
            # A newer list may have been set while this one was read.
            if context_id not in self._publishing and version > self._seen.get(context_id, 0):
                self._seen[context_id] = version
                self._registry.keep_advertised(context_id, names)
