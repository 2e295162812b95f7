"""`frameledger import`: conversations of an exported file, inserted into this database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from frameledger_services import database
from frameledger_services.audit import proof_files
from frameledger_services.cli.terminal import backend, escape, options, output, progress
from frameledger_services.cli.terminal.input_file import readable, refuse_pipe
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.transfer.damaged import named_if_damaged
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import schema
from frameledger_services.transfer import importing
from frameledger_services.transfer.importing import Checked, Imported
from frameledger_services.transfer.lines import lines_of

commands = typer.Typer()

_FEW = 10


@commands.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File that `frameledger export` wrote as jsonl.")
    ],
    as_json: options.AsJson = False,
) -> None:
    """Import an exported file: same frames, same hash chain.

    The whole file is checked before anything is written; the error names an invalid line. The file is rejected if one
    of its conversations has an id that another conversation uses or that was erased in this database. Each conversation
    is imported in one transaction, so repeating the command after an interruption imports the missing ones.

    A parked conversation is imported if this release can fold its frames. Otherwise it is left out and named, and the
    command ends with exit code 1.

    Nothing is published and no effect starts: in a conversation with open work, an EndFrame is added that closes it.
    The conversation continues with the next frame that is published to it. The imported frames are not on this
    installation's log, so a rebuild of the tables from Kafka does not have them: keep the file. The database user needs
    the privileges of a projector.

    Example: `frameledger import ctx-1.jsonl`
    """
    refuse_pipe(file)
    with readable(file):
        kind = proof_files.kind_of(file)
    if kind != "export":
        output.fail(
            f"{file} is not an export: its first line is not that of a conversation.",
            "Give a file written by `frameledger export CONTEXT -o FILE`.",
        )
    checked: list[Checked] = []
    # Opened once: another export may take its name between the check and the import.
    with backend.exit_on_error(), readable(file), named_if_damaged(file), file.open("rb") as opened:
        imported = asyncio.run(_import(Settings.from_env(), opened, checked))
    left_out = [one for one in checked if one.header.context_id in set(imported.left_out)]
    refolded = [one for one in checked if one.refolded and one not in left_out]
    if as_json:
        typer.echo(json.dumps(asdict(imported) | {"refolded": [one.header.context_id for one in refolded]}))
    else:
        _print(imported, refolded)
    if left_out:
        _name(left_out)
        raise typer.Exit(1)


def _print(imported: Imported, refolded: Sequence[Checked]) -> None:
    sentence = (
        f"Imported {plural(imported.conversations, 'conversation')}, {plural(imported.frames, 'frame')}."
    )
    if imported.there_already:
        sentence += f" {imported.there_already:,} {'was' if imported.there_already == 1 else 'were'} already imported."
    if imported.ended:
        sentence += f" {imported.ended:,} had open work, which an EndFrame closed."
    typer.echo(sentence)
    for conversation in refolded[:_FEW]:
        name = escape.printable(conversation.header.context_id)
        typer.echo(
            f"By the rules of this release {name} differs from the file: "
            f"the outcome of version {conversation.refolded[0]}.",
            err=True,
        )
    if len(refolded) > _FEW:
        typer.echo(f"... and {len(refolded) - _FEW:,} more; --json prints all.", err=True)


def _name(left_out: Sequence[Checked]) -> None:
    for conversation in left_out[:_FEW]:
        name = escape.printable(conversation.header.context_id)
        why = escape.printable(conversation.unfoldable or "")
        typer.echo(f"{name} was left out: it was parked when it was exported, and {why}.", err=True)
    if len(left_out) > _FEW:
        typer.echo(f"... and {len(left_out) - _FEW:,} more; --json prints all.", err=True)


async def _import(settings: Settings, file: BinaryIO, noted: list[Checked]) -> Imported:
    """Check and import the file. Appends to `noted` the conversations that this release folds differently, or not."""
    with backend.change():
        async with await database.connect(
            settings, "frameledger import", database.BESIDE_PROJECTORS, role="frameledger_projector"
        ) as connection:
            await schema.check(connection)
            to_do = await _check(connection, file, noted)
            file.seek(0)
            with progress.shown("importing", to_do.frames) as advance:
                return await importing.write(connection, lines_of(file), advance, left_out=to_do.left_out)


async def _check(connection: Connection, file: BinaryIO, noted: list[Checked]) -> Imported:
    async def noting(conversations: AsyncIterator[Checked]) -> AsyncIterator[Checked]:
        async for conversation in conversations:
            if conversation.refolded or conversation.unfoldable is not None:
                noted.append(conversation)
            yield conversation

    with progress.shown("checking") as advance:
        return await importing.check_free(connection, noting(importing.check(lines_of(file), advance)))
