"""`frameledger verify`: detection of changes to the tables or the log, or since a root was recorded."""

from __future__ import annotations

import os
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
from frameledger_services.cli.terminal.whole_file import is_device

commands = typer.Typer()


class Source(StrEnum):
    """The data against which conversations are verified."""

    ROWS = "rows"
    KAFKA = "kafka"


def _root(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        raise typer.BadParameter("a root has 64 hexadecimal digits")
    return bytes.fromhex(text.strip())


def _is_file(one: str) -> bool:
    # Not the method of a path, which raises for a name that is too long.
    return os.path.isfile(one)


def _ids_or_files(values: list[str] | None) -> list[str] | None:
    """Typer callback that validates the ids: all values that are not files."""
    for one in values or ():
        if is_device(one):
            raise typer.BadParameter(
                f"{one} is a pipe or a device, and is read more than once: save it as a file"
            )
    options.context_ids([one for one in values or () if not _is_file(one)])
    return values


@commands.command()
def verify(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTEXT|FILE",
            callback=_ids_or_files,
            help="Ids of conversations; or one file, which needs no server: a proof, the heads of `heads --full`, or "
            "an export.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Verify every conversation.")] = False,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="rows: the tables only. kafka: also compare them with the records that Kafka still has.",
        ),
    ] = Source.ROWS,
    again: Annotated[
        bool, typer.Option("--again", help="Verify everything again, including what was verified before.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=32, help="Conversations in parallel.")] = 2,
    root: Annotated[
        bytes | None,
        typer.Option(metavar="HEX", parser=_root, help="For a file: the root that was recorded elsewhere."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare the database with this file of heads, written by `heads --full`."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Verify that stored conversations, proofs and exports were not altered.

    For a conversation it computes the hash chain from the bytes of the frames, folds the frames again from version 1,
    compares messages, eras, settings, runs, calls and the head with the tables, and checks that every version is valid
    for a provider, except for what clients appended. Each difference is printed with the first version that has it.
    With --from kafka, frames and the records that Kafka still has are also compared in both directions. Projectors can
    keep running.

    Verified versions are recorded in the table `verified`, if the database user may write it (frameledger_operator),
    and are not read again. Later changes to those rows or to that table are detected only with --again. A user who can
    write the whole database can make it consistent; that is detected with --from kafka, or with a root that was
    recorded elsewhere (`frameledger heads`).

    A proof (`frameledger prove`) is verified from its file alone: the frames produce the hash chain, and the chain the
    root. An exported file is verified up to the heads that it contains. With --against, every conversation of that
    file must exist and continue its recorded head, or have a receipt of its erasure. Exit code 1 if anything differs.

    Example: `frameledger verify --all`
    """
    files = [Path(one) for one in what or () if _is_file(one)]
    if sum((bool(what), everything, against is not None)) != 1:
        raise typer.BadParameter("give one of CONTEXT, FILE, --all or --against FILE", param_hint="CONTEXT")
    if root is not None and not files and against is None:
        is_missing = f", and there is no file {what[0]!r}" if what else ""
        raise typer.BadParameter(f"use it with a file{is_missing}", param_hint="--root")
    if against is not None:
        verify_files.verify_against(against, root, as_json=as_json)
    elif not files:
        # Verifying a file needs no extra.
        with backend.exit_on_error(), extras.needed("services"):
            from frameledger_services.cli.audit import verify_rows
        log = source is Source.KAFKA
        verify_rows.verify_rows(what or None, log=log, again=again, jobs=jobs, as_json=as_json)
    elif len(what or ()) > 1:
        raise typer.BadParameter(f"{files[0]} is a file: verify one file at a time", param_hint="FILE")
    else:
        _verify_file(files[0], root, as_json=as_json)


def _verify_file(path: Path, root: bytes | None, *, as_json: bool) -> None:
    with readable(path):
        kind = proof_files.kind_of(path)
    if kind is None:
        output.fail(
            f"{path} cannot be verified: its first line is not that of a proof, of heads or of an export.",
            "Give a file written by `frameledger prove`, `frameledger heads --full` or `frameledger export`.",
        )
    if kind != "export":
        verify_files.verify_file(path, root, as_json=as_json)
    elif root is None:
        with backend.exit_on_error(), extras.needed("services"):
            from frameledger_services.cli.audit import verify_export
        verify_export.verify_export(path, as_json=as_json)
    else:
        raise typer.BadParameter("an exported file has no root; a proof has one", param_hint="--root")
