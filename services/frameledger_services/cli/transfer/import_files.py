"""`frameledger import`: the conversations of an exported file as conversations of this database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from psycopg import AsyncConnection

from frameledger_services import database
from frameledger_services.audit import proof_files
from frameledger_services.cli.terminal import backend, escape, options, output, progress
from frameledger_services.cli.terminal.input_file import readable
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.transfer.damaged import named_if_damaged
from frameledger_services.settings import Settings
from frameledger_services.store import binary_copy, schema
from frameledger_services.transfer import importing
from frameledger_services.transfer.importing import Checked, Imported
from frameledger_services.transfer.lines import LONGEST_LINE

commands = typer.Typer()

_FEW = 10


@commands.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `frameledger export` wrote as jsonl.")],
    as_json: options.AsJson = False,
) -> None:
    """Make the conversations of an exported file conversations of this database: same frames, same chain.

    The whole file is checked before anything is written; a line that is not as it was written is named. A conversation
    whose id is taken by another one, or was erased here, refuses the file. Each is imported in one transaction: after
    an interruption the same command goes on with those that are missing.

    Nothing is published and nothing happens: what was open is ended by an EndFrame, one version more, and the
    conversation goes on when somebody publishes to it. The frames are on no log of this database, so tables that are
    made anew from Kafka do not have them: keep the file. The database's user needs the rights of a projector.

    Example: `frameledger import ctx-1.jsonl`
    """
    with readable(file):
        kind = proof_files.kind_of(file)
    if kind != "export":
        output.fail(
            f"{file} is no export: its first line is not that of a conversation.",
            "`frameledger export CONTEXT -o FILE` writes what can be imported.",
        )
    checked: list[Checked] = []
    with backend.exit_on_error(), readable(file), named_if_damaged(file):
        done = asyncio.run(_import(Settings.from_env(), file, checked))
    if as_json:
        typer.echo(json.dumps(asdict(done) | {"refolded": [one.header.context_id for one in checked]}))
        return
    said = f"Imported {plural(done.conversations, 'conversation')}, {plural(done.frames, 'frame')}."
    if done.there_already:
        said += f" {done.there_already:,} {'was' if done.there_already == 1 else 'were'} here already."
    if done.ended:
        said += f" In {done.ended:,} something was open: an EndFrame ended it."
    typer.echo(said)
    for one in checked[:_FEW]:
        name = escape.printable(one.header.context_id)
        typer.echo(
            f"By the rules of this release {name} differs from the file: what became of version {one.refolded[0]}.",
            err=True,
        )
    if len(checked) > _FEW:
        typer.echo(f"... and {len(checked) - _FEW:,} more; --json tells of all.", err=True)


async def _import(settings: Settings, path: Path, refolded: list[Checked]) -> Imported:
    """Check and import; `refolded` gets the conversations that this release folds otherwise."""
    with backend.change():
        async with await database.connect(settings, "frameledger import") as connection:
            await schema.check(connection)
            binary_copy.prepare(connection)
            to_do = await _check(connection, path, refolded)
            with path.open("rb") as file, progress.shown("importing", to_do.frames) as advance:
                return await importing.write(connection, _lines(file), advance)


async def _check(connection: AsyncConnection[Any], path: Path, refolded: list[Checked]) -> Imported:
    def noted(found: Iterator[Checked]) -> Iterator[Checked]:
        for one in found:
            if one.refolded:
                refolded.append(one)
            yield one

    with path.open("rb") as file, progress.shown("checking") as advance:
        return await importing.check_free(connection, noted(importing.check(_lines(file), advance)))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one that is too long for an export no more than shows that."""
    while line := file.readline(LONGEST_LINE + 2):
        yield line
