"""Tracks which requests follow which answer, on this gateway and on others.

A repeated request follows the answer to the first one, and a load balancer may route it to another gateway before the
first gateway knows that its client has left. So a request that may be a repetition is marked for all gateways before it
checks whether that answer is in progress, and no gateway interrupts an answer that another request follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from frameledger_services.gateway.shared_marks import SharedMarks
from frameledger_services.store.connections import DatabaseError

AnswerKey = tuple[str, str]
"""The answer to a request: its conversation, and the name of the request, which is the same for each repetition."""


class Followers:
    """The requests of this process, by the answers that they follow."""

    def __init__(self, marks: SharedMarks) -> None:
        self._marks = marks
        self._here: Counter[AnswerKey] = Counter()

    def add(self, key: AnswerKey, *, is_shared: bool) -> None:
        """Register a request that follows an answer, with `is_shared` for all gateways."""
        self._here[key] += 1
        if is_shared:
            self._marks.add("openai", *key)

    def remove(self, key: AnswerKey, *, is_shared: bool) -> None:
        """Unregister a request, with the arguments of its `add`."""
        self._here[key] -= 1
        if self._here[key] <= 0:
            del self._here[key]
        if is_shared:
            self._marks.remove("openai", *key)

    def has_here(self, key: AnswerKey) -> bool:
        """Returns whether any request follows the answer on this gateway."""
        return key in self._here

    async def has(self, key: AnswerKey) -> bool:
        """Returns whether any request follows the answer, on this gateway or another. Raises `DatabaseError`."""
        return self.has_here(key) or bool(await self._marks.found([("openai", *key)]))

    @asynccontextmanager
    async def held(self, key: AnswerKey, *, is_shared: bool) -> AsyncIterator[None]:
        """Registers a request that may be a repetition (`is_shared`) as a follower of the answer during the block.
        Other gateways know it when the block begins, unless the database does not respond."""
        if not is_shared:
            yield
            return
        self.add(key, is_shared=True)
        try:
            with suppress(DatabaseError):
                await self._marks.settle()
            yield
        finally:
            self.remove(key, is_shared=True)
