"""Reruns of many recorded runs, several concurrently."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from frameledger_services.exception_groups import sole
from frameledger_services.store import reruns
from frameledger_services.store.connections import Connections

PAGE = 500

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunAt:
    """A completed run, identified by the version of the conversation that it read."""

    context_id: str
    version: int


async def answered_runs(
    connections: Connections, context_ids: Sequence[str], since: datetime | None
) -> AsyncIterator[RunAt]:
    """Yields the completed runs of these conversations, or of all with a frame since a time, in order, one conversation
    after another. Skips experiments. Memory does not grow with their number."""
    for context_id in context_ids:
        async for run in _runs(connections, context_id):
            yield run
    after = ""
    while since is not None:
        page = await connections.read(reruns.active_since, since, after, PAGE)
        for context_id in page:
            if context_id not in context_ids:
                async for run in _runs(connections, context_id):
                    yield run
        if len(page) < PAGE:
            return
        after = page[-1]


async def in_order(
    moments: AsyncIterator[RunAt],
    rerun: Callable[[RunAt], Awaitable[_T]],
    report: Callable[[_T], None],
    jobs: int,
) -> None:
    """Call `rerun` for each moment, at most `jobs` at once, and `report` with each result, in the order of the moments.
    The first error, including those of `report`, cancels the others and is raised."""
    waiting: deque[asyncio.Task[_T]] = deque()
    try:
        async with asyncio.TaskGroup() as tasks:

            async def rerun_one(moment: RunAt) -> _T:
                return await rerun(moment)

            async for moment in moments:
                if len(waiting) == jobs:
                    report(await waiting.popleft())
                waiting.append(tasks.create_task(rerun_one(moment)))
            while waiting:
                report(await waiting.popleft())
    except BaseExceptionGroup as errors:
        raise sole(errors) from None


async def _runs(connections: Connections, context_id: str) -> AsyncIterator[RunAt]:
    after = -1
    while True:
        page = await connections.read(reruns.answered_versions, context_id, after, PAGE)
        for version in page:
            yield RunAt(context_id, version)
        if len(page) < PAGE:
            return
        after = page[-1]
