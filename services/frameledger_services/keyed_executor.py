"""An executor of jobs, within one event loop: jobs of one key begin in order, those of different keys run concurrently.

A key's jobs begin in the order in which they were submitted. The next one begins when the previous ones have ended or
released the order, and at most `per_key` jobs of a key run at once. A job that waits for its turn also occupies a slot,
so that no more work is claimed than can be done: callers submit only while a slot is free.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

Job = Callable[["Ticket"], Awaitable[None]]


class Ticket:
    """A job's place in the order of its key."""

    def __init__(self, key: Hashable, job: Job, released: Callable[[], None]) -> None:
        self.key = key
        self.job = job
        self.holds_order = True
        """Whether the next job of its key waits for it."""

        self._released = released

    def release_order(self) -> None:
        """Let the next job of this key begin, if `per_key` allows, while this one runs. A second call does nothing."""
        if self.holds_order:
            self.holds_order = False
            self._released()


class _Key:
    """The running and the waiting jobs of one key."""

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self.running = 0
        self.first: Ticket | None = None


class KeyedExecutor:
    """Runs jobs as tasks of a task group.

    A job that raises an error ends the group: expected failures are the job's own to handle, and the others are bugs.
    If the group is cancelled, waiting jobs never begin.
    """

    def __init__(self, tasks: asyncio.TaskGroup, *, slots: int, per_key: int = 1) -> None:
        if slots < 1 or per_key < 1:
            raise ValueError(f"slots is {slots} and per_key {per_key}; both must be at least 1")
        self._tasks = tasks
        self._context = contextvars.copy_context()
        self._slots = slots
        self._per_key = per_key
        self._keys: dict[Hashable, _Key] = {}
        self._used = 0
        self._changed = asyncio.Event()

    @property
    def free_slots(self) -> int:
        """The number of jobs that may be submitted: `slots` minus those that run or wait for their turn."""
        return self._slots - self._used

    @property
    def is_busy(self) -> bool:
        """Whether a job runs or waits for its turn."""
        return self._used > 0

    async def wait_for_slot(self) -> None:
        """Returns once a slot is free."""
        while self.free_slots < 1:
            await self._next_change()

    async def join(self) -> None:
        """Returns once no job runs or waits."""
        while self.is_busy:
            await self._next_change()

    def submit(self, key: Hashable, job: Job) -> Ticket:
        """Run a job in its turn. Raises ValueError if no slot is free."""
        if self.free_slots < 1:
            raise ValueError(f"all {self._slots} slots are in use; wait_for_slot() returns once one is free")
        of_key = self._keys.setdefault(key, _Key())
        ticket = Ticket(key, job, lambda: self._begin(of_key))
        of_key.waiting.append(ticket)
        self._used += 1
        self._begin(of_key)
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Withdraw a job that has not begun. Returns False if it has begun or was already withdrawn."""
        of_key = self._keys.get(ticket.key)
        if of_key is None or ticket not in of_key.waiting:
            return False
        of_key.waiting.remove(ticket)
        self._free(ticket.key, of_key)
        return True

    def _begin(self, of_key: _Key) -> None:
        while of_key.waiting and of_key.running < self._per_key:
            if of_key.first is not None and of_key.first.holds_order:
                return
            ticket = of_key.waiting.popleft()
            of_key.first = ticket
            of_key.running += 1
            job = self._run(ticket, of_key)
            try:
                # In our context: this may be called by another job, whose span and ids are not those of the next.
                self._tasks.create_task(job, context=self._context.copy())
            except RuntimeError:
                # The group is cancelled or ends by an error, and takes no more tasks.
                job.close()
                return

    async def _run(self, ticket: Ticket, of_key: _Key) -> None:
        try:
            await ticket.job(ticket)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The task was not cancelled: the job raised the error, such as from a task that it awaited.
        finally:
            ticket.holds_order = False
            of_key.running -= 1
            self._free(ticket.key, of_key)
        # Not reached if it raised: the group ends then.
        self._begin(of_key)

    def _free(self, key: Hashable, of_key: _Key) -> None:
        self._used -= 1
        if not of_key.running and not of_key.waiting:
            del self._keys[key]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _next_change(self) -> None:
        await self._changed.wait()
