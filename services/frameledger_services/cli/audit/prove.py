"""`frameledger prove`: the frames of a conversation with their path to a Merkle root."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from frameledger_services.audit import heads, proving
from frameledger_services.audit.heads import Traced
from frameledger_services.cli.audit.heads import shown
from frameledger_services.cli.terminal import backend, escape, options, output
from frameledger_services.cli.terminal.counting import counting
from frameledger_services.cli.terminal.input_file import readable
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.terminal.whole_file import whole_file
from frameledger_services.settings import Settings
from frameledger_services.store.contexts import NoSuchContextError

commands = typer.Typer()


@commands.command()
def prove(
    context: options.Context,
    file: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Output file. Default: standard output.", dir_okay=False
        ),
    ] = None,
    heads_file: Annotated[
        Path | None,
        typer.Option(
            "--heads", metavar="FILE", help="Prove against the root of this file of heads.", dir_okay=False
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a proof of a conversation: its frames as stored, and their path to a Merkle root.

    The root is the current one or, with --heads, that of a file which `frameledger heads --full` wrote earlier; the
    proof then has the frames up to that time. The root is printed, to standard error if the proof goes to standard
    output. A recipient who has the root from another source verifies the file without this database: `frameledger
    verify FILE --root HEX`, or `frameledger.proofs.verify` in Python.

    Example: `frameledger prove ctx-1 -o ctx-1.proof.jsonl`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        with whole_file(file) as opened:
            traced, count = asyncio.run(_prove(settings, context, heads_file, opened))
    is_error_output = file is None
    if as_json:
        leaf = {"context_id": context, "version": traced.leaf.version, "chain": traced.leaf.chain.hex()}
        typer.echo(json.dumps(traced.root.to_json() | leaf | {"frames": count}), err=is_error_output)
        return
    for line in shown(traced.root):
        typer.echo(line, err=is_error_output)
    typer.echo(
        f"proves    {escape.printable(context)}, {plural(count, 'frame')} up to version {traced.leaf.version}",
        err=is_error_output,
    )


async def _prove(
    settings: Settings, context_id: str, heads_file: Path | None, file: BinaryIO
) -> tuple[Traced, int]:
    traced = None
    if heads_file is not None:
        with readable(heads_file):
            traced = heads.trace_in_file(heads_file, context_id)
        if traced is None:
            output.fail(
                f"The file {heads_file} has no head of {context_id!r}.",
                "Give a file that was written while the conversation existed.",
            )
    async with heads.snapshot(settings, "frameledger prove") as connection:
        if traced is None:
            with counting("Reading heads: {count:,} ...") as count:
                traced = await heads.trace(connection, context_id, lambda _: count())
        if traced is None:
            output.fail(
                f"{NoSuchContextError(context_id)} There is no receipt of its erasure either.",
                "`frameledger list` lists the conversations.",
            )
        written = await proving.write_proof(
            connection, context_id, traced, lambda line: file.write(line.encode())
        )
    return traced, written
