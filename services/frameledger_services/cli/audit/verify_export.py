"""Verification of exported files by `frameledger verify`, without any server."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from frameledger_services.cli.terminal.input_file import readable
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.transfer.damaged import named_if_damaged
from frameledger_services.transfer import lines


def verify_export(path: Path, *, as_json: bool) -> None:
    """Verify every line and every hash chain of a file, and print the heads. Ends the command with exit code 1 at the
    first wrong line."""
    heads: list[lines.Header] = []
    frames = 0
    with named_if_damaged(path), readable(path), path.open("rb") as file:
        for line in lines.read(lines.lines_of(file)):
            if isinstance(line, lines.Header):
                heads.append(line)
            else:
                frames += 1
    if as_json:
        listed = [
            {"context_id": one.context_id, "version": one.version, "chain": one.chain.hex()} for one in heads
        ]
        result = {"file": str(path), "verified": True, "kind": "export", "frames": frames}
        typer.echo(json.dumps(result | {"conversations": listed}))
        return
    typer.echo(f"Verified {plural(len(heads), 'conversation')}: {plural(frames, 'frame')}.")
    typer.echo("  lines   all unchanged")
    typer.echo("  chain   each link computed from the bytes of its frame, up to the head in the file")
    if len(heads) == 1:
        typer.echo(f"  head    {heads[0].chain.hex()}")
    typer.echo(
        "A complete rewrite of the file is not detected. Compare the heads with a root that is recorded elsewhere: "
        "frameledger heads.",
        err=True,
    )
