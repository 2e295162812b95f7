"""`frameledger heads`: the Merkle root over all conversations of the database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer

from frameledger.heads_file import Erased, Living
from frameledger.record import LogPosition
from frameledger_services.audit import heads as computing
from frameledger_services.audit import roots
from frameledger_services.audit.heads import Root
from frameledger_services.audit.heads_writer import HeadsWriter
from frameledger_services.cli.terminal import backend, options
from frameledger_services.cli.terminal.counting import counting
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.terminal.whole_file import whole_file
from frameledger_services.event_log.producer import Producer
from frameledger_services.settings import Settings

commands = typer.Typer()


@commands.command()
def heads(
    full: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write every head to this file.", dir_okay=False)
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also publish the root to the topic llm.roots.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Compute the Merkle root over the heads of all conversations.

    Store the root where users with write access to this database cannot change it. Later, `frameledger verify` checks a
    proof (`frameledger prove`) or the file of --full against it, and detects any change, deletion or insertion of
    frames that the root covers. The command reads one database snapshot in bounded memory; services keep running.

    Example: `frameledger heads --full heads.jsonl`
    """
    with backend.exit_on_error():
        root, place = asyncio.run(_heads(Settings.from_env(), full, publish))
    if as_json:
        published = None if place is None else {"topic": place.topic, "offset": place.offset}
        counts = {"conversations": root.conversations, "receipts": root.receipts}
        file = None if full is None else str(full)
        typer.echo(json.dumps(root.to_json() | counts | {"file": file, "published": published}))
        return
    for line in shown(root):
        typer.echo(line)
    if full is not None:
        typer.echo(f"file      {full}")
    if place is not None:
        typer.echo(f"published {place.topic}, offset {place.offset:,}")


def shown(root: Root) -> Iterator[str]:
    """Yields the lines to record."""
    erased = f", {plural(root.receipts, 'receipt')} of erasures" if root.receipts else ""
    yield f"root      {root.hash.hex()}"
    yield f"leaves    {root.leaf_count:,}: {plural(root.conversations, 'conversation')}{erased}"
    yield f"at        {root.at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC, database time"
    yield f"release   {root.release}"


async def _heads(settings: Settings, full: Path | None, publish: bool) -> tuple[Root, LogPosition | None]:
    async with computing.snapshot(settings, "frameledger heads") as connection:
        with ExitStack() as stack:
            count = stack.enter_context(counting("Reading heads: {count:,} ..."))
            writer = None if full is None else HeadsWriter(stack.enter_context(whole_file(full)))
            root = await computing.compute(connection, _each(count, writer))
            if writer is not None:
                writer.finish(root)
    if not publish:
        return root, None
    async with Producer(settings, name="frameledger-heads") as producer:
        return root, await roots.publish(producer, settings, root)


def _each(count: Callable[[], None], writer: HeadsWriter | None) -> Callable[[Living | Erased], None]:
    def each(leaf: Living | Erased) -> None:
        count()
        if writer is not None:
            writer.add(leaf)

    return each
