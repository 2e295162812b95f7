"""`frameledger top`: the whole installation, live in a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict
from rich.console import RenderableType
from rich.live import Live

from frameledger_services import database
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.top import screen, stages
from frameledger_services.cli.top.snapshot import Look, Sample, look, sample
from frameledger_services.cli.top.stages import Stages
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseUnavailableError

_Looked = tuple[Look, Stages | None]

commands = typer.Typer()


@commands.command()
def top(
    every: Annotated[
        float, typer.Option("--every", min=0.2, metavar="SECONDS", help="Seconds from look to look.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and end.")] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="Where a projector serves /metrics; again for each. Without it those that `up` runs here.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJsonLines = False,
) -> None:
    """Show what the whole installation does just now, until Ctrl-C.

    Records a second and how far they are behind, what the last minute's runs and calls were and how long users waited
    for first words, what is in progress and for how long, what went wrong, and what waits for somebody, as `frameledger
    doctor` says it. It reads the database, so it can be anywhere; where a projector's metrics are reached, also how
    long the stages of a batch take. A database that is away is waited for.

    With --json each look is an object on a line; --once prints one and ends.

    Example: frameledger top --once --json
    """
    with backend.exit_on_error(), suppress(KeyboardInterrupt):
        settings = Settings.from_env()
        addresses = _of_projectors(settings) if metrics is None else metrics
        asyncio.run(_Watch(settings, addresses, every).show(once=once, as_json=as_json))


class _Watch:
    """Looks at an installation again and again."""

    def __init__(self, settings: Settings, addresses: Sequence[str], every: float) -> None:
        self._connections = Connections(settings, "frameledger top", most=1)
        self._topic = TopicNames(settings.topic_prefix).frames
        self._addresses = addresses
        self._every = every
        self._title = f"frameledger top, {_where(settings)}"

    async def show(self, *, once: bool, as_json: bool) -> None:
        """Show samples until Ctrl-C, or one. Raises what the first look raises; later ones wait for the database,
        unless one is all that is asked for."""
        try:
            first = await self._look()
            if as_json:
                await self._go_on(first, lambda found: output.print_json([found]), once=once)
            elif once:
                await self._go_on(first, lambda found: output.console().print(self._page(found)), once=True)
            else:
                with Live(console=output.console(), screen=True, auto_refresh=False) as live:
                    live.update(self._page(_between(first, first)), refresh=True)
                    await self._go_on(
                        first,
                        lambda found: live.update(self._page(found), refresh=True),
                        lambda error: live.update(self._trouble(error), refresh=True),
                    )
        finally:
            await self._connections.close()

    async def _go_on(
        self,
        before: _Looked,
        show: Callable[[Sample], object],
        wait: Callable[[DatabaseUnavailableError], object] = lambda _: None,
        *,
        once: bool = False,
    ) -> None:
        """Look again and again, each time `show` what happened since the look before, and `wait` for a database that is
        away; or look once."""
        while True:
            await asyncio.sleep(min(self._every, 1.0) if once else self._every)
            try:
                after = await self._look()
            except DatabaseUnavailableError as error:
                if once:
                    raise
                wait(error)
                continue
            show(_between(before, after))
            if once:
                return
            before = after

    def _page(self, found: Sample) -> RenderableType:
        return screen.page(found, self._title)

    def _trouble(self, error: DatabaseUnavailableError) -> RenderableType:
        return screen.trouble(self._title, str(error), f"It is asked again in {self._every:g} s.")

    async def _look(self) -> _Looked:
        found = await self._connections.read(look, self._topic)
        return found, await asyncio.to_thread(stages.read, self._addresses)


def _between(before: _Looked, after: _Looked) -> Sample:
    known = None if before[1] is None or after[1] is None else (before[1], after[1])
    return sample(before[0], after[0], known)


def _of_projectors(settings: Settings) -> list[str]:
    """Where the projectors that `up` runs in the data directory serve their metrics."""
    # The embedded servers are an extra, for Linux and macOS; this command is for all.
    try:
        from frameledger_services.embedded.record import read_record
    except ImportError:
        return []
    record = read_record(settings.data_dir.resolve())
    if record is None:
        return []
    return [one.metrics for one in record.processes if one.metrics is not None and one.name == "projector"]


def _where(settings: Settings) -> str:
    """The database as a person names it, without its password."""
    said = conninfo_to_dict(database.address(settings, "frameledger top"))
    return f"{said.get('host', 'localhost')}:{said.get('port', 5432)}/{said.get('dbname', '')}"
