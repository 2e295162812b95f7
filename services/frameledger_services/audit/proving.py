"""Writes a proof: the frames of a conversation, as they are read, and their Merkle path to a root."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing

from frameledger.chain import first_link, next_link
from frameledger.errors import RefusedError
from frameledger.heads_file import Erased
from frameledger.proofs import FORMAT, Link, ProofHeader, Step
from frameledger_services.audit.heads import Traced
from frameledger_services.database_types import Connection
from frameledger_services.store import leaves, stored_rows
from frameledger_services.store.stored_rows import StoredFrameRow


class UnprovableError(RefusedError):
    """The stored frames of a conversation do not produce the head that is to be proved.

    Remedy: Run `frameledger verify` on the conversation: it names the first version that was changed.
    """


async def write_proof(
    connection: Connection, context_id: str, traced: Traced, write: Callable[[str], object]
) -> int:
    """Write the proof of a conversation up to the version of its leaf, line by line. Returns the number of frames.

    Call it in the transaction that traced the leaf, or in any transaction if the leaf comes from a file. Raises
    `UnprovableError`, possibly after some lines were written.
    """
    if isinstance(traced.leaf, Erased):
        write(_header(context_id, traced, None))
        return 0
    count, version, chain = 0, 0, b""
    pages = stored_rows.frames(connection, context_id, after=0, upto=traced.leaf.version)
    async with aclosing(pages):
        async for page in pages:
            if not count:
                after = await _link_before(connection, context_id, page[0].version)
                version, chain = (0, first_link(context_id)) if after is None else after
                write(_header(context_id, traced, after))
            for frame in page:
                _check_version(context_id, version, frame)
                version = frame.version
                chain = next_link(chain, version, frame.source, frame.payload)
                write(_line(frame))
            count += len(page)
    if not count:
        raise UnprovableError(f"There are no frames of {context_id!r} up to version {traced.leaf.version}.")
    if (version, chain) != (traced.leaf.version, traced.leaf.chain):
        raise UnprovableError(
            f"The stored frames of {context_id!r} produce version {version} and the link {chain.hex()}; the "
            f"head that is to be proved has version {traced.leaf.version} and {traced.leaf.chain.hex()}."
        )
    return count


async def _link_before(
    connection: Connection, context_id: str, first_version: int
) -> tuple[int, bytes] | None:
    """Returns the link before the first stored frame: that of a receipt, unless its version is 1."""
    if first_version == 1:
        return None
    before = first_version - 1
    chain = await leaves.link_of_receipt(connection, context_id, before)
    if chain is None:
        raise UnprovableError(
            f"The stored frames of {context_id!r} begin with version {first_version}, and no receipt has version "
            f"{before}."
        )
    return before, chain


def _check_version(context_id: str, before: int, frame: StoredFrameRow) -> None:
    if frame.version != before + 1:
        raise UnprovableError(f"The frame of version {before + 1} of {context_id!r} is missing.")


def _header(context_id: str, traced: Traced, after: tuple[int, bytes] | None) -> str:
    header = ProofHeader(
        format=FORMAT,
        context_id=context_id,
        erased=isinstance(traced.leaf, Erased),
        after=None if after is None else Link(version=after[0], chain=after[1].hex()),
        version=traced.leaf.version,
        chain=traced.leaf.chain.hex(),
        path=tuple(Step(side=sibling.side, hash=sibling.hash.hex()) for sibling in traced.path),
        root=traced.root.hash.hex(),
    )
    return json.dumps(header.model_dump(), ensure_ascii=False) + "\n"


def _line(frame: StoredFrameRow) -> str:
    values = {"version": frame.version, "source": frame.source, "payload": frame.payload.decode()}
    return json.dumps(values, ensure_ascii=False) + "\n"
