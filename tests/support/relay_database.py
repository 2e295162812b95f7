"""A fake of a relay's database that only flushes commits."""

import asyncio

from frameledger_services.store import durability


class Database:
    """A connection whose flushes return at once, or when the test allows it."""

    def __init__(self, *, waits=False):
        self.began = self.ended = 0
        self._may_go_on = asyncio.Event()
        if not waits:
            self._may_go_on.set()

    async def execute(self, statement):
        assert statement == f"SELECT {durability.WAL_MESSAGE}"
        self.began += 1
        await self._may_go_on.wait()
        self.ended += 1

    def go_on(self):
        """Let the waiting statement return."""
        self._may_go_on.set()
        self._may_go_on = asyncio.Event()
