"""The servers that the demo uses: those of a running `frameledger up`, or its own for as long as it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from frameledger_services.embedded import stack
from frameledger_services.embedded.directory import is_claimed
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.record import Phase, Record, read_record
from frameledger_services.settings import Settings, read_running


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers and services that run. `ours`: whether they stop when the demo ends."""

    settings: Settings
    record: Record
    ours: bool


@asynccontextmanager
async def servers(
    settings: Settings,
    *,
    setup: Sequence[stack.Command],
    services: Sequence[stack.Command],
    on_change: Callable[[Record], None],
) -> AsyncIterator[Servers]:
    """Everything that `up` runs, ready, for as long as the block lasts; an `up` that runs already is used and left
    alone.

    `settings` without the addresses of a running `up`; those in `Servers` have them. Raises `EmbeddedError`, alone or
    in a group.
    """
    directory = settings.data_dir.resolve()
    if is_claimed(directory):
        record = read_record(directory)
        if record is None or record.phase is not Phase.READY:
            raise EmbeddedError(
                f"`frameledger up` is just starting or stopping in {directory}.",
                "Try again when `frameledger status` shows that everything runs, or nothing.",
            )
        yield Servers(_with_addresses(settings), record, ours=False)
        return

    ready: asyncio.Future[Record] = asyncio.get_running_loop().create_future()

    def changed(record: Record) -> None:
        on_change(record)
        if record.phase is Phase.READY and not ready.done():
            ready.set_result(record)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            stack.up(settings, setup=setup, services=services, on_change=changed), name="up"
        )
        record = await ready
        try:
            yield Servers(_with_addresses(settings), record, ours=True)
        finally:
            running.cancel()


def _with_addresses(settings: Settings) -> Settings:
    found = {
        name: value
        for name, value in read_running(settings.data_dir).items()
        if getattr(settings, name, "") is None
    }
    return Settings.model_validate({**settings.model_dump(), **found})
