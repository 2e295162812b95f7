"""Compares the database with the heads of an older root: each recorded conversation may have grown, and must not have
changed.

Both are read in order, in step with each other, so memory does not grow with the number of conversations, but with that
of the receipts that are new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from frameledger.heads_file import Erased, Living
from frameledger.leaves import erased_name
from frameledger_services.audit.heads import in_order
from frameledger_services.database_types import Connection
from frameledger_services.store import leaves

LOOKED_UP = 1_000
"""Links that are looked up with one statement."""

What = Literal[
    "unchanged", "continued", "new", "erased", "missing", "truncated", "rewritten", "receipt_missing"
]

WRONG: frozenset[What] = frozenset({"missing", "truncated", "rewritten", "receipt_missing"})
"""Changes that the system itself never makes."""


@dataclass(frozen=True, slots=True)
class ComparedHead:
    """The state of one conversation, or of one receipt, that the file has; or that it is new."""

    what: What
    context_id: str | None
    """None for a missing receipt: the file does not tell the id."""

    version: int
    """The version in the file; for a new conversation its version now."""

    detail: str = ""
    """For people: what is wrong or erased."""

    @property
    def is_wrong(self) -> bool:
        """Returns whether the past was changed."""
        return self.what in WRONG


async def compare(
    connection: Connection, written: Iterable[Living | Erased]
) -> AsyncGenerator[ComparedHead, None]:
    """Yields the state of everything in the file, and what is new, in no particular order.

    In a transaction of isolation level REPEATABLE READ. `written` are the leaves of a file in their order
    (`frameledger.heads_file`); its errors are passed on.
    """
    receipts: Counter[tuple[bytes, int, bytes]] = Counter()
    moved: list[Living] = []
    async with (
        aclosing(_by_context(connection)) as conversations,
        aclosing(_side_by_side(_recorded(written, receipts), conversations)) as pairs,
    ):
        async for recorded, now in pairs:
            for erased in () if now is None else now.receipts:
                _add(receipts, erased, -1)
            if recorded is None:
                if now is not None and now.living is not None:
                    yield ComparedHead("new", now.context_id, now.living.version)
                continue
            change = _judged(recorded, now)
            if change is None:
                moved.append(recorded.head)
            else:
                yield change
            if len(moved) >= LOOKED_UP:
                for one in await _looked_up(connection, moved):
                    yield one
                moved.clear()
    for one in await _looked_up(connection, moved):
        yield one
    for (name, version, _), count in receipts.items():
        for _ in range(count):
            yield ComparedHead(
                "receipt_missing", None, version, f"the receipt whose leaf has the name {name.hex()} is gone"
            )


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A head in the file."""

    head: Living
    receipts: list[Erased]
    """Those of its own id."""


@dataclass(frozen=True, slots=True)
class _Now:
    """What the database has of a context id."""

    context_id: str
    receipts: list[Erased]
    living: Living | None


async def _by_context(connection: Connection) -> AsyncGenerator[_Now, None]:
    current: _Now | None = None
    async with aclosing(in_order(connection)) as ordered:
        async for context_id, leaf in ordered:
            if current is not None and current.context_id != context_id:
                yield current
                current = None
            if isinstance(leaf, Living):
                # The last of its id.
                yield _Now(context_id, [] if current is None else current.receipts, leaf)
                current = None
            else:
                current = current or _Now(context_id, [], None)
                current.receipts.append(leaf)
    if current is not None:
        yield current


async def _side_by_side(
    recorded: Iterable[_Recorded], conversations: AsyncGenerator[_Now, None]
) -> AsyncGenerator[tuple[_Recorded | None, _Now | None], None]:
    """Yields, for each id in their order, what the file and what the database have; None for nothing. Both are sorted
    by id."""
    now = await anext(conversations, None)
    for one in recorded:
        while now is not None and now.context_id < one.head.context_id:
            yield None, now
            now = await anext(conversations, None)
        if now is None or now.context_id != one.head.context_id:
            yield one, None
        else:
            yield one, now
            now = await anext(conversations, None)
    while now is not None:
        yield None, now
        now = await anext(conversations, None)


def _recorded(
    written: Iterable[Living | Erased], receipts: Counter[tuple[bytes, int, bytes]]
) -> Iterator[_Recorded]:
    """Yields the heads of a file, each with the receipts of its own id, and counts all receipts."""
    before: list[Erased] = []
    for leaf in written:
        if isinstance(leaf, Erased):
            _add(receipts, leaf, 1)
            if before and before[-1].name != leaf.name:
                before = []
            before.append(leaf)
        else:
            is_its_own = bool(before) and before[-1].name == erased_name(leaf.context_id)
            yield _Recorded(leaf, before if is_its_own else [])
            before = []


def _add(receipts: Counter[tuple[bytes, int, bytes]], erased: Erased, count: int) -> None:
    key = (erased.name, erased.version, erased.chain)
    receipts[key] += count
    if not receipts[key]:
        del receipts[key]


def _judged(recorded: _Recorded, now: _Now | None) -> ComparedHead | None:
    """Returns the state of a conversation; None if its link at the old version has to decide."""
    head = recorded.head
    name, version = head.context_id, head.version
    if now is None:
        return ComparedHead("missing", name, version, "it is gone, and no receipt says why")
    # Receipts are only ever added, and after those that were there.
    if len(now.receipts) > len(recorded.receipts):
        return _erased(head, now.receipts[len(recorded.receipts)])
    if now.living is None:
        return ComparedHead("missing", name, version, "its head is gone, and no receipt says why")
    if now.living.version < version:
        return ComparedHead("truncated", name, version, f"it ends with version {now.living.version} now")
    if now.living.version == version:
        return _linked(head, now.living.chain, "unchanged")
    return None


def _erased(head: Living, receipt: Erased) -> ComparedHead:
    """Returns what the first receipt since then says about the head in the file."""
    name, version = head.context_id, head.version
    if receipt.version < version:
        return ComparedHead(
            "truncated", name, version, f"the receipt of its erasure has version {receipt.version}"
        )
    if receipt.version == version and receipt.chain != head.chain:
        return ComparedHead("rewritten", name, version, "the receipt of its erasure has another link")
    return ComparedHead("erased", name, version, f"it was erased at version {receipt.version}")


async def _looked_up(connection: Connection, moved: list[Living]) -> list[ComparedHead]:
    """Returns which of these conversations continue their heads in the file, by their links at that version."""
    if not moved:
        return []
    stored = await leaves.links(connection, [(head.context_id, head.version) for head in moved])
    return [_linked(head, stored.get(head.context_id), "continued") for head in moved]


def _linked(head: Living, stored: bytes | None, otherwise: What) -> ComparedHead:
    name, version = head.context_id, head.version
    if stored is None:
        return ComparedHead("missing", name, version, f"its frame of version {version} is gone")
    if stored != head.chain:
        return ComparedHead(
            "rewritten",
            name,
            version,
            f"its link is {_short(stored)}; the recorded one is {_short(head.chain)}",
        )
    return ComparedHead(otherwise, name, version)


def _short(link: bytes) -> str:
    return f"{link.hex()[:12]}..."
