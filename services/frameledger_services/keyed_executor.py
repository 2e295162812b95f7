"""Jobs of one key in order, many keys at once, a limit on both. Of one event loop.

A key's jobs begin in the order in which they were given. The next one begins when those before it have ended or passed
their ticket on, and never more than `per_key` of one key go on at once. A job that waits for its turn takes up a place
too: whoever gives jobs asks first whether one is free, and so never takes on more than can be done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

Job = Callable[["Ticket"], Awaitable[None]]


class Ticket:
    """A job's place among those of its key."""

    def __init__(self, key: Hashable, job: Job, passed_on: Callable[[], None]) -> None:
        self.key = key
        self.job = job
        self.is_first = True
        """The next of its key waits for it."""

        self._passed_on = passed_on

    def release_order(self) -> None:
        """The next of this key may begin now, if `per_key` allows, while this one goes on. Called twice it does nothing
        more."""
        if self.is_first:
            self.is_first = False
            self._passed_on()


class _Key:
    """What goes on and what waits of one key."""

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self.going_on = 0
        self.first: Ticket | None = None


class KeyedExecutor:
    """Where jobs go on, as tasks of a task group.

    A job that raises ends the group: what is expected to fail is the job's own affair, and the rest is a bug that has
    to be seen. If the group is cancelled, what waits never begins.
    """

    def __init__(self, tasks: asyncio.TaskGroup, *, slots: int, per_key: int = 1) -> None:
        if slots < 1 or per_key < 1:
            raise ValueError(f"slots is {slots} and per_key {per_key}; both must be at least 1")
        self._tasks = tasks
        self._slots = slots
        self._per_key = per_key
        self._keys: dict[Hashable, _Key] = {}
        self._given = 0
        self._changed = asyncio.Event()

    @property
    def free_slots(self) -> int:
        """How many more may be given: `slots` less those that go on or wait for their turn."""
        return self._slots - self._given

    async def wait_for_slot(self) -> None:
        """Returns when one more may be given."""
        while self.free_slots < 1:
            await self._next_change()

    async def join(self) -> None:
        """Returns when nothing goes on and nothing waits."""
        while self._given:
            await self._next_change()

    def submit(self, key: Hashable, job: Job) -> Ticket:
        """Begin a job as soon as those of its key before it allow. Raises ValueError when no place is free."""
        if self.free_slots < 1:
            raise ValueError(f"all {self._slots} places are taken; wait_for_slot() says when one is not")
        of_key = self._keys.setdefault(key, _Key())
        ticket = Ticket(key, job, lambda: self._begin(of_key))
        of_key.waiting.append(ticket)
        self._given += 1
        self._begin(of_key)
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """True if the job had not begun, and it never will. False if it had, or was dropped before."""
        of_key = self._keys.get(ticket.key)
        if of_key is None or ticket not in of_key.waiting:
            return False
        of_key.waiting.remove(ticket)
        self._one_less(ticket.key, of_key)
        return True

    def _begin(self, of_key: _Key) -> None:
        while of_key.waiting and of_key.going_on < self._per_key:
            if of_key.first is not None and of_key.first.is_first:
                return
            ticket = of_key.waiting.popleft()
            of_key.first = ticket
            of_key.going_on += 1
            self._tasks.create_task(self._go(ticket, of_key))

    async def _go(self, ticket: Ticket, of_key: _Key) -> None:
        try:
            await ticket.job(ticket)
        finally:
            ticket.is_first = False
            of_key.going_on -= 1
            self._one_less(ticket.key, of_key)
        # Not if it raised: the group ends then, and takes no more tasks.
        self._begin(of_key)

    def _one_less(self, key: Hashable, of_key: _Key) -> None:
        self._given -= 1
        if not of_key.going_on and not of_key.waiting:
            del self._keys[key]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _next_change(self) -> None:
        await self._changed.wait()
