"""`frameledger top`: the whole installation, live in a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict
from rich.console import RenderableType
from rich.live import Live

from frameledger_services import database
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.top import screen, stages
from frameledger_services.cli.top.look import Look, Sample, look, sample
from frameledger_services.cli.top.stages import Stages
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseUnavailableError

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
        """Show samples until Ctrl-C, or one. Raises what the first look raises; later ones wait for the database."""
        try:
            if once:
                found = await self._sample(*await self._look())
                if as_json:
                    output.print_json([found])
                else:
                    output.console().print(screen.page(found, self._title))
            elif as_json:
                await self._print_forever()
            else:
                await self._show_forever()
        finally:
            await self._connections.close()

    async def _show_forever(self) -> None:
        before = await self._look()
        with Live(console=output.console(), screen=True, auto_refresh=False) as live:
            live.update(screen.page(sample(before[0], before[0], None), self._title), refresh=True)
            while True:
                shown: RenderableType
                try:
                    await asyncio.sleep(self._every)
                    after = await self._look()
                    shown, before = screen.page(_between(before, after), self._title), after
                except DatabaseUnavailableError as error:
                    shown = screen.trouble(
                        self._title, str(error), f"It is asked again in {self._every:g} s."
                    )
                live.update(shown, refresh=True)

    async def _print_forever(self) -> None:
        before = await self._look()
        while True:
            await asyncio.sleep(self._every)
            with suppress(DatabaseUnavailableError):
                after = await self._look()
                output.print_json([_between(before, after)])
                before = after

    async def _sample(self, before: Look, stages_before: Stages | None) -> Sample:
        await asyncio.sleep(min(self._every, 1.0))
        return _between((before, stages_before), await self._look())

    async def _look(self) -> tuple[Look, Stages | None]:
        found = await self._connections.read(look, self._topic)
        return found, await asyncio.to_thread(stages.read, self._addresses)


def _between(before: tuple[Look, Stages | None], after: tuple[Look, Stages | None]) -> Sample:
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
