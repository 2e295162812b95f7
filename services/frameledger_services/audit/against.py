"""Compares the database with the heads of an older root: a recorded conversation may have grown, but its past must not
have changed.

Both are read in the same order in parallel, so memory does not grow with the number of conversations, only with that of
new receipts.
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

MAX_LOOKUPS = 1_000
"""Maximum links that one statement looks up."""

What = Literal[
    "unchanged", "continued", "new", "erased", "missing", "truncated", "rewritten", "receipt_missing"
]

WRONG: frozenset[What] = frozenset({"missing", "truncated", "rewritten", "receipt_missing"})
"""Changes that the system itself never makes."""


@dataclass(frozen=True, slots=True)
class ComparedHead:
    """The state of a conversation or of a receipt in the file, or of a new conversation."""

    what: What
    context_id: str | None
    """None for a missing receipt, whose id is not in the file."""

    version: int
    """The version in the file; for a new conversation its current version."""

    detail: str = ""
    """What is wrong or erased, for people."""

    @property
    def is_wrong(self) -> bool:
        """Returns whether the past was changed."""
        return self.what in WRONG


async def compare(
    connection: Connection, written: Iterable[Living | Erased]
) -> AsyncGenerator[ComparedHead, None]:
    """Yields the state of everything in the file, and new conversations, in no particular order.

    Call it in a transaction of isolation level REPEATABLE READ. `written` has the leaves of a file in their order
    (`frameledger.heads_file`). Raises the errors of that iterator.
    """
    receipts: Counter[tuple[bytes, int, bytes]] = Counter()
    grown: list[Living] = []
    async with (
        aclosing(_by_context(connection)) as conversations,
        aclosing(_paired(_recorded(written, receipts), conversations)) as pairs,
    ):
        async for recorded, now in pairs:
            for erased in () if now is None else now.receipts:
                _add(receipts, erased, -1)
            if recorded is None:
                if now is not None and now.living is not None:
                    yield ComparedHead("new", now.context_id, now.living.version)
                continue
            change = _status_of(recorded, now)
            if change is None:
                grown.append(recorded.head)
            else:
                yield change
            if len(grown) >= MAX_LOOKUPS:
                for one in await _by_links(connection, grown):
                    yield one
                grown.clear()
    for one in await _by_links(connection, grown):
        yield one
    for (name, version, _), count in receipts.items():
        for _ in range(count):
            yield ComparedHead(
                "receipt_missing",
                None,
                version,
                f"the receipt whose leaf has the name {name.hex()} is missing",
            )


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A head in the file."""

    head: Living
    receipts: list[Erased]
    """The receipts of its id."""


@dataclass(frozen=True, slots=True)
class _Now:
    """The head and the receipts of a context id in the database."""

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


async def _paired(
    recorded: Iterable[_Recorded], conversations: AsyncGenerator[_Now, None]
) -> AsyncGenerator[tuple[_Recorded | None, _Now | None], None]:
    """Yields, for each id in order, the entry of the file and that of the database; None if there is none. Both are
    sorted by id."""
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


def _status_of(recorded: _Recorded, now: _Now | None) -> ComparedHead | None:
    """Returns the state of a conversation; None if it depends on the link at the old version."""
    head = recorded.head
    name, version = head.context_id, head.version
    if now is None:
        return ComparedHead("missing", name, version, "it is missing, and has no receipt of an erasure")
    # Receipts are only added, after the existing ones.
    if len(now.receipts) > len(recorded.receipts):
        return _erased(head, now.receipts[len(recorded.receipts)])
    if now.living is None:
        return ComparedHead("missing", name, version, "its head is missing, and has no receipt of an erasure")
    if now.living.version < version:
        return ComparedHead("truncated", name, version, f"it now ends at version {now.living.version}")
    if now.living.version == version:
        return _by_link(head, now.living.chain, "unchanged")
    return None


def _erased(head: Living, receipt: Erased) -> ComparedHead:
    """Returns the state of a head in the file by the first receipt after it."""
    name, version = head.context_id, head.version
    if receipt.version < version:
        return ComparedHead(
            "truncated", name, version, f"the receipt of its erasure has version {receipt.version}"
        )
    if receipt.version == version and receipt.chain != head.chain:
        return ComparedHead("rewritten", name, version, "the receipt of its erasure has another link")
    return ComparedHead("erased", name, version, f"it was erased at version {receipt.version}")


async def _by_links(connection: Connection, grown: list[Living]) -> list[ComparedHead]:
    """Returns the states of these conversations by their links at the versions in the file."""
    if not grown:
        return []
    stored = await leaves.links(connection, [(head.context_id, head.version) for head in grown])
    return [_by_link(head, stored.get(head.context_id), "continued") for head in grown]


def _by_link(head: Living, stored: bytes | None, otherwise: What) -> ComparedHead:
    name, version = head.context_id, head.version
    if stored is None:
        return ComparedHead("missing", name, version, f"its frame of version {version} is missing")
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
