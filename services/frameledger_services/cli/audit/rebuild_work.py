"""The work of `frameledger rebuild`: its connections, and the rebuild of the conversations that were selected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from psycopg import IsolationLevel

from frameledger_services import database
from frameledger_services.audit import rebuild as rebuilding
from frameledger_services.audit.rebuild import Pair, RebuildOptions
from frameledger_services.audit.restore import Restoring
from frameledger_services.cli.audit.rebuild_progress import RebuildView
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.producer import Producer
from frameledger_services.projector import service
from frameledger_services.projector.destination import Send
from frameledger_services.projector.row_sender import RowSender
from frameledger_services.settings import Settings
from frameledger_services.store import rebuilds, schema
from frameledger_services.store.outbox import OutboxRow

LOCK_TIMEOUT = "30s"

SESSION = {**database.BESIDE_PROJECTORS, "lock_timeout": LOCK_TIMEOUT, "jit": "off"}

PLANS = {name: value for name, value in service.SESSION.items() if name.startswith(("enable_", "plan_"))}
"""Planner settings of projectors: rows are replaced by key, whatever the tables' statistics."""


async def run(
    settings: Settings,
    chosen: RebuildOptions,
    contexts: list[str] | None,
    selection: rebuilds.Selection,
    jobs: int,
    view: RebuildView,
    *,
    again: bool,
) -> rebuilds.RebuildProgress:
    """Rebuild these conversations, or those of the selection, in `jobs` at once. Returns the totals."""
    async with AsyncExitStack() as stack:
        if chosen.source == "kafka":
            probe = await stack.enter_async_context(open_probe(settings, chosen.names.frames))
            chosen = replace(chosen, restoring=Restoring(settings, chosen.names.frames, probe))
        pairs, send = await stack.enter_async_context(_connected(settings, jobs, publishes=chosen.apply))
        if contexts:
            return await rebuilding.rebuild_some(pairs, chosen, sorted(set(contexts)), send, view.report)
        return await rebuilding.rebuild_many(
            pairs, chosen, selection, send, view.report, view.begin, again=again
        )


@asynccontextmanager
async def _connected(
    settings: Settings, jobs: int, *, publishes: bool
) -> AsyncIterator[tuple[list[Pair], Send]]:
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(jobs):
            reader = await stack.enter_async_context(
                await database.connect(
                    settings, "frameledger rebuild, reading", SESSION, role="frameledger_operator"
                )
            )
            await reader.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            writer = await stack.enter_async_context(
                await database.connect(
                    settings, "frameledger rebuild", SESSION | PLANS, role="frameledger_operator"
                )
            )
            pairs.append(Pair(reader, writer))
        await schema.check(pairs[0].writer)
        if not publishes:
            yield pairs, _nothing_to_send
            return
        producer = await stack.enter_async_context(Producer(settings, name="frameledger-rebuild"))
        yield pairs, RowSender(producer)


async def _nothing_to_send(rows: Sequence[OutboxRow]) -> list[OutboxRow]:
    raise AssertionError(f"comparing leaves nothing in the outbox: {rows}")
