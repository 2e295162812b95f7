"""Verification of files by `frameledger verify`: proofs, and the heads of an earlier root."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import typer

from frameledger import heads_file
from frameledger.heads_file import HeadsHeader
from frameledger_services.audit import proof_files
from frameledger_services.audit.against import WRONG, ComparedHead, What, compare
from frameledger_services.audit.heads import snapshot
from frameledger_services.audit.proof_files import HeadsFile, ProofFile
from frameledger_services.cli.terminal import backend, escape, output
from frameledger_services.cli.terminal.counting import counting
from frameledger_services.cli.terminal.input_file import readable
from frameledger_services.settings import Settings

WORDS: dict[What, str] = {
    "missing": "gone",
    "truncated": "truncated",
    "rewritten": "rewritten",
    "receipt_missing": "receipt gone",
    "erased": "erased",
}


def verify_file(path: Path, root: bytes | None, *, as_json: bool) -> None:
    """Verify a file and print what it proves. Ends the command with exit code 1 if verification fails."""
    with backend.exit_on_error(), readable(path):
        content = proof_files.verify_file(path, root)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "verified": True} | _as_json(content, root)))
        return
    for line in textwrap.wrap(f"Verified. {escape.printable(content.statement)}", output.WIDTH_OF_A_FILE):
        typer.echo(line)
    if isinstance(content, ProofFile):
        header = content.proven.header
        if header.after is not None:
            typer.echo(f"after  {header.after.chain}")
        typer.echo(f"chain  {header.chain}")
    typer.echo(f"root   {content.root}")
    if root is None:
        _warn_of_own_root()


def verify_against(path: Path, root: bytes | None, *, as_json: bool) -> None:
    """Compare the database with a file of heads. Ends the command with exit code 1 if a recorded head is missing."""
    # Opened once: another file, such as that of the next root, may take its name meanwhile.
    with backend.exit_on_error(), readable(path), path.open("rb") as file:
        header = proof_files.verify_heads(file, root)
        file.seek(0)
        comparison = asyncio.run(_compare(Settings.from_env(), file))
    if as_json:
        listed = [asdict(one) for one in comparison.listed]
        typer.echo(
            json.dumps({"root": header.root, "at": header.at, "counts": comparison.counts, "found": listed})
        )
    else:
        for head in comparison.listed:
            name = "-" if head.context_id is None else escape.printable(head.context_id)
            typer.echo(f"{name}  version {head.version:,}  {WORDS[head.what]}: {head.detail}")
        for line in _summary(header, comparison):
            typer.echo(line)
    if root is None and not as_json:
        _warn_of_own_root()
    if comparison.wrong_count:
        raise typer.Exit(1)


@dataclass(slots=True)
class _Comparison:
    """The comparison of the conversations in a file with the database."""

    counts: Counter[What] = field(default_factory=Counter)
    listed: list[ComparedHead] = field(default_factory=list)
    """Differences and erasures."""

    @property
    def wrong_count(self) -> int:
        return sum(self.counts[what] for what in WRONG)

    def add(self, head: ComparedHead) -> None:
        self.counts[head.what] += 1
        if head.is_wrong or head.what == "erased":
            self.listed.append(head)


async def _compare(settings: Settings, file: BinaryIO) -> _Comparison:
    comparison = _Comparison()
    async with snapshot(settings, "frameledger verify") as connection:
        with counting("Comparing heads: {count:,} ...") as count:
            _, written = heads_file.read(file)
            async with aclosing(compare(connection, written)) as compared:
                async for head in compared:
                    count()
                    comparison.add(head)
    return comparison


def _summary(header: HeadsHeader, comparison: _Comparison) -> Iterator[str]:
    counts = comparison.counts
    yield f"Compared with the root {header.root} of {header.at}:"
    yield f"  {counts['unchanged']:,} conversations are unchanged, {counts['continued']:,} continue their head,"
    yield f"  {counts['erased']:,} were erased with a receipt; {counts['new']:,} are new."
    yield (
        f"  {comparison.wrong_count:,} differ from their recorded head."
        if comparison.wrong_count
        else "  Nothing was changed, removed or replaced."
    )


def _as_json(content: ProofFile | HeadsFile, root: bytes | None) -> dict[str, Any]:
    if isinstance(content, HeadsFile):
        return {"kind": "heads", "root_given": root is not None} | content.header.model_dump(
            exclude={"format"}
        )
    header = content.proven.header.model_dump(exclude={"format", "path"})
    return {"kind": "proof", "root_given": root is not None, "frames": content.proven.frame_count} | header


def _warn_of_own_root() -> None:
    typer.echo(
        "The root is the one in the file itself. To compare it with one recorded elsewhere, use --root HEX.",
        err=True,
    )
