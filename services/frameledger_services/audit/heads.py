"""The Merkle root over all heads and all receipts: one hash for the whole database.

`frameledger.leaves` defines the leaves. The heads are streamed in one ordered scan, and the tree keeps one hash for
each level, so memory does not grow with the number of conversations.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psycopg

from frameledger import heads_file
from frameledger.heads_file import Erased, Living
from frameledger.merkle import Sibling, Tree
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import connections, leaves
from frameledger_services.store.leaves import StoredLeaf


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a database at one time, which an operator records elsewhere."""

    hash: bytes
    conversations: int
    receipts: int
    """The number of receipts of erased conversations in the tree."""

    at: datetime
    """The start of the transaction, by the database's clock. The tree has all commits before it, and may have those of
    the milliseconds after it."""

    release: str

    @property
    def leaf_count(self) -> int:
        """Returns the number of leaves of the tree."""
        return self.conversations + self.receipts

    def to_json(self) -> dict[str, str | int]:
        """Returns the root as it is published and printed: the hash in hexadecimal digits, the number of leaves, the
        time and the release."""
        return {
            "root": self.hash.hex(),
            "leaves": self.leaf_count,
            "at": self.at.astimezone(UTC).isoformat(),
            "release": self.release,
        }


@dataclass(frozen=True, slots=True)
class Traced:
    """A root, and the leaf of one conversation with its path to the root."""

    root: Root
    leaf: Living | Erased
    path: tuple[Sibling, ...]


@asynccontextmanager
async def snapshot(settings: Settings, name: str) -> AsyncIterator[Connection]:
    """Yields a connection in a read-only transaction, all of whose statements see one snapshot. `name` is its
    `application_name`.

    Raises `DatabaseError`, and `SchemaError` for a database of another release.
    """
    try:
        connected = await connections.connect(settings, name, session=connections.LONG_SESSION)
        async with connected as connection, connection.transaction():
            yield connection
    except psycopg.Error as error:
        raise connections.failure("The database did not answer", error) from error


async def compute(connection: Connection, each: Callable[[Living | Erased], None] | None = None) -> Root:
    """Returns the root of this transaction's snapshot. Calls `each` with every leaf, in order."""
    root, _, _ = await _grow(connection, None, each)
    return root


async def trace(
    connection: Connection, context_id: str, each: Callable[[Living | Erased], None]
) -> Traced | None:
    """Returns the root of this transaction's snapshot, with the leaf and path of a conversation: of its head, or of its
    newest receipt if it was erased and not begun again. None if it has neither."""
    root, tree, traced = await _grow(connection, context_id, each)
    return None if traced is None else Traced(root, traced, tree.path())


def trace_in_file(path: Path, context_id: str) -> Traced | None:
    """Returns the root of a file of `heads --full`, with the leaf and path of a conversation in it; None if it has no
    head there. Raises `HeadsFileError`, and OSError."""
    tree = Tree()
    traced: Living | None = None
    with path.open("rb") as lines:
        header, written = heads_file.read(lines)
        conversations = 0
        for leaf in written:
            is_traced = isinstance(leaf, Living) and leaf.context_id == context_id
            tree.add(leaf.leaf(), trace=is_traced)
            if isinstance(leaf, Living):
                conversations += 1
                traced = leaf if is_traced else traced
    if traced is None:
        return None
    at = datetime.fromisoformat(header.at)
    root = Root(tree.root(), conversations, tree.size - conversations, at, header.release)
    return Traced(root, traced, tree.path())


async def _grow(
    connection: Connection, traced_id: str | None, each: Callable[[Living | Erased], None] | None
) -> tuple[Root, Tree, Living | Erased | None]:
    tree = Tree()
    at = await leaves.moment(connection)
    receipts = 0
    traced: Living | Erased | None = None
    async with aclosing(in_order(connection)) as ordered:
        async for context_id, leaf in ordered:
            # The last leaf of an id counts: its head, else its newest receipt.
            is_traced = context_id == traced_id
            tree.add(leaf.leaf(), trace=is_traced)
            if is_traced:
                traced = leaf
            if isinstance(leaf, Erased):
                receipts += 1
            if each is not None:
                each(leaf)
    return Root(tree.root(), tree.size - receipts, receipts, at, version("frameledger")), tree, traced


async def in_order(connection: Connection) -> AsyncGenerator[tuple[str, Living | Erased], None]:
    """Yields every leaf with its context id, in the order of the tree."""
    async with (
        aclosing(leaves.heads(connection)) as heads,
        aclosing(leaves.receipts(connection)) as receipts,
    ):
        receipt = await anext(receipts, None)
        async for head in heads:
            # Code points have the same order as their bytes in UTF-8.
            while receipt is not None and receipt.context_id <= head.context_id:
                yield receipt.context_id, _erased(receipt)
                receipt = await anext(receipts, None)
            yield head.context_id, Living(head.context_id, head.version, head.chain)
        while receipt is not None:
            yield receipt.context_id, _erased(receipt)
            receipt = await anext(receipts, None)


def _erased(receipt: StoredLeaf) -> Erased:
    return Erased.of(receipt.context_id, receipt.version, receipt.chain)
