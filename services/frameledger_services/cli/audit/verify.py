"""`frameledger verify`: whether anything was changed: in the tables, on the log, or since a root was written down."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from frameledger_services import extras
from frameledger_services.audit import proof_files
from frameledger_services.cli.audit import verify_files
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.terminal.input_file import readable

commands = typer.Typer()


class Source(StrEnum):
    """What conversations are verified from."""

    ROWS = "rows"
    KAFKA = "kafka"


def _root(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        raise typer.BadParameter("a root has 64 hexadecimal digits")
    return bytes.fromhex(text.strip())


@commands.command()
def verify(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTEXT|FILE",
            help="Conversations; or one file: a proof, or the heads of `heads --full`, for which no server is asked.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Verify every conversation.")] = False,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="rows: from the tables alone. kafka: also hold them against the records that Kafka still has.",
        ),
    ] = Source.ROWS,
    again: Annotated[
        bool, typer.Option("--again", help="Read all again, also what was verified before.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=32, help="Conversations at once.")] = 2,
    root: Annotated[
        bytes | None,
        typer.Option(
            metavar="HEX", parser=_root, help="Of a file: the root that was written down elsewhere."
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare the database with the heads that `heads --full` wrote to this file."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Verify that nothing was changed.

    Of conversations it computes the hash chain from the frames' bytes, folds the frames again from version 1, and
    compares messages, eras, settings, runs, calls and the head with the tables; each prefix has to be valid for a
    provider, except for what clients appended. What differs is named with the first version at which it does. With
    --from kafka the frames are also held against their records, both ways, as far as Kafka still has these. Projectors
    may write meanwhile.

    What was verified is remembered in the table `verified`, if the user may write it (frameledger_operator), and not
    read again. That trusts this table and the rows below its versions: somebody who changes these since then is found
    with --again only. Who can write the whole database can make it consistent: that is found with --from kafka, or
    against a root that lies elsewhere (`frameledger heads`).

    A proof (`frameledger prove`) verifies from its file alone: the frames make the chain, and that leads to the
    root. So does an exported file, up to the heads that it names.
    With --against every conversation of that file must be there and continue what was written down, or have a receipt
    of its erasure. Ends with exit code 1 if anything differs.

    Example: `frameledger verify --all`
    """
    files = [Path(one) for one in what or () if Path(one).is_file()]
    if sum((bool(what), everything, against is not None)) != 1:
        raise typer.BadParameter("say which: CONTEXT, FILE, --all, or --against FILE", param_hint="CONTEXT")
    if root is not None and not files and against is None:
        raise typer.BadParameter("a root is for a file", param_hint="--root")
    if against is not None:
        verify_files.verify_against(against, root, as_json=as_json)
    elif not files:
        # A file verifies with the core alone.
        with backend.exit_on_error(), extras.needed("services"):
            from frameledger_services.cli.audit import verify_rows
        log = source is Source.KAFKA
        verify_rows.verify_rows(what or None, log=log, again=again, jobs=jobs, as_json=as_json)
    elif len(what or ()) > 1:
        raise typer.BadParameter(f"{files[0]} is a file: verify one at a time", param_hint="FILE")
    else:
        _verify_file(files[0], root, as_json=as_json)


def _verify_file(path: Path, root: bytes | None, *, as_json: bool) -> None:
    with readable(path):
        kind = proof_files.kind_of(path)
    if kind is None:
        output.fail(
            f"{path} is no file to verify: its first line is not that of a proof, of heads or of an export.",
            "These are what `frameledger prove`, `frameledger heads --full` and `frameledger export` write.",
        )
    if kind != "export":
        verify_files.verify_file(path, root, as_json=as_json)
    elif root is None:
        with backend.exit_on_error(), extras.needed("services"):
            from frameledger_services.cli.audit import verify_export
        verify_export.verify_export(path, as_json=as_json)
    else:
        raise typer.BadParameter("an exported file names no root; a proof does", param_hint="--root")
