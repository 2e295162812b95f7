"""An LRU cache of heads, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from frameledger_services.projector.head import Head

DEFAULT_BYTES = 64 * 1024 * 1024
"""Enough for more than ten thousand conversations, or some 250 with forty tools each. All misses of a batch cost one
query."""


class HeadCache:
    """Heads by context id, bounded by the sum of their `Head.weight`."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit = limit_bytes
        self._heads: OrderedDict[str, tuple[Head, int]] = OrderedDict()
        self._bytes = 0

    def get(self, context_id: str) -> Head | None:
        entry = self._heads.get(context_id)
        if entry is None:
            return None
        self._heads.move_to_end(context_id)
        return entry[0]

    def put(self, heads: Iterable[Head]) -> None:
        """Add these heads with their current weight, and evict others if there is no room."""
        for head in heads:
            self._drop(head.context_id)
            weight = head.weight()
            self._heads[head.context_id] = head, weight
            self._bytes += weight
        while self._bytes > self._limit and len(self._heads) > 1:
            self._drop(next(iter(self._heads)))

    def drop(self, context_ids: Iterable[str]) -> None:
        """Drop these heads: they may be ahead of the database, or another projector may own them by now."""
        for context_id in context_ids:
            self._drop(context_id)

    def clear(self) -> None:
        self._heads.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._heads)

    def _drop(self, context_id: str) -> None:
        entry = self._heads.pop(context_id, None)
        if entry is not None:
            self._bytes -= entry[1]
