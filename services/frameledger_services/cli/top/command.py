"""`frameledger top`: live activity of an installation in a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict
from rich.console import RenderableType
from rich.live import Live

from frameledger_services import database
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.top import screen, stages
from frameledger_services.cli.top.snapshot import Sample, Snapshot, sample, take_snapshot
from frameledger_services.cli.top.stages import Stages
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseUnavailableError

_Reading = tuple[Snapshot, Stages | None]

commands = typer.Typer()


@commands.command()
def top(
    every: Annotated[
        float, typer.Option("--every", min=0.2, metavar="SECONDS", help="Refresh interval.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and exit.")] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="URL of a projector's /metrics. Repeatable. Default: the projectors that `up` runs in this directory.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJsonLines = False,
) -> None:
    """Show live activity of the whole installation until Ctrl-C.

    Shows records per second and lag, the runs and calls of the last minute with their time to first text, work in
    progress, recent failures, and problems as `frameledger doctor` reports them. It reads the database, so it runs on
    any machine; from the metrics of projectors it also shows the duration of the stages of a batch. It waits for an
    unavailable database.

    With --json, prints one object per line for each refresh; --once prints one and exits.

    Example: frameledger top --once --json
    """
    with backend.exit_on_error(), output.regular_end_on_ctrl_c(until_ctrl_c=not once):
        settings = Settings.from_env()
        addresses = _of_projectors(settings) if metrics is None else metrics
        asyncio.run(_Watch(settings, addresses, every).show(once=once, as_json=as_json))


class _Watch:
    """Takes snapshots of an installation at an interval."""

    def __init__(self, settings: Settings, addresses: Sequence[str], every: float) -> None:
        self._connections = Connections(settings, "frameledger top", most=1)
        self._topic = TopicNames(settings.topic_prefix).frames
        self._addresses = addresses
        self._every = every
        self._title = f"frameledger top, {_where(settings)}"

    async def show(self, *, once: bool, as_json: bool) -> None:
        """Show samples until Ctrl-C, or one. Raises the errors of the first snapshot; later snapshots wait for the
        database, except with `once`."""
        try:
            first = await self._snapshot()
            if as_json:
                await self._repeat(first, lambda rates: output.print_json([rates]), once=once)
            elif once:
                await self._repeat(first, lambda rates: output.console().print(self._page(rates)), once=True)
            else:
                with Live(console=output.console(), screen=True, auto_refresh=False) as live:
                    live.update(self._page(_between(first, first)), refresh=True)
                    await self._repeat(
                        first,
                        lambda rates: live.update(self._page(rates), refresh=True),
                        lambda error: live.update(self._trouble(error), refresh=True),
                    )
        finally:
            await self._connections.close()

    async def _repeat(
        self,
        before: _Reading,
        show: Callable[[Sample], object],
        wait: Callable[[DatabaseUnavailableError], object] = lambda _: None,
        *,
        once: bool = False,
    ) -> None:
        """Take snapshots at the interval. Call `show` with the sample since the previous snapshot, and `wait` with the
        error while the database is unavailable. With `once`, take one."""
        while True:
            await asyncio.sleep(min(self._every, 1.0) if once else self._every)
            try:
                after = await self._snapshot()
            except DatabaseUnavailableError as error:
                if once:
                    raise
                wait(error)
                continue
            show(_between(before, after))
            if once:
                return
            before = after

    def _page(self, rates: Sample) -> RenderableType:
        return screen.page(rates, self._title)

    def _trouble(self, error: DatabaseUnavailableError) -> RenderableType:
        return screen.trouble(self._title, str(error), f"Retrying every {self._every:g} s.")

    async def _snapshot(self) -> _Reading:
        snapshot = await self._connections.read(take_snapshot, self._topic)
        return snapshot, await asyncio.to_thread(stages.read, self._addresses)


def _between(before: _Reading, after: _Reading) -> Sample:
    known = None if before[1] is None or after[1] is None else (before[1], after[1])
    return sample(before[0], after[0], known)


def _of_projectors(settings: Settings) -> list[str]:
    """Returns the metrics URLs of the projectors that `up` runs in the data directory."""
    # The embedded servers are an extra and need Linux or macOS; this command does not.
    try:
        from frameledger_services.embedded.record import record_of_running
    except ImportError:
        return []
    record = record_of_running(settings.directory)
    if record is None:
        return []
    return [one.metrics for one in record.processes if one.metrics is not None and one.name == "projector"]


def _where(settings: Settings) -> str:
    """Returns host, port and name of the database, without the password."""
    parameters = conninfo_to_dict(database.address(settings, "frameledger top"))
    return (
        f"{parameters.get('host', 'localhost')}:{parameters.get('port', 5432)}/{parameters.get('dbname', '')}"
    )
