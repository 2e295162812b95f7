"""The rows of `outbox`, and the statements on them. No function here commits.

Rows that are already in the table are represented only by their places, in pages, and read page by page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from frameledger_services.database_types import Connection
from frameledger_services.store.record_headers import headers_as_json, headers_from_json

OutboxPlace = tuple[str, int, int, int, int]
"""Topic, partition, generation, offset and ordinal: the primary key of `outbox`."""


@dataclass(slots=True)
class OutboxRow:
    """A row of `outbox`: a record to be published, at the place of its cause."""

    topic: str
    partition: int
    generation: int
    offset: int
    ordinal: int
    kind: str
    to_topic: str
    context_id: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def place(self) -> OutboxPlace:
        """Its primary key."""
        return self.topic, self.partition, self.generation, self.offset, self.ordinal

    @property
    def size(self) -> int:
        """The bytes of its key, value and headers."""
        of_headers = sum(
            len(name.encode("utf-8", "replace")) + len(value or b"") for name, value in self.headers
        )
        return len(self.key or b"") + len(self.value or b"") + of_headers

    def values(self) -> list[Any]:
        """Returns the values of `COLUMNS`."""
        return [*_all_but_headers(self), headers_as_json(self.headers)]


@dataclass(frozen=True, slots=True)
class UnreadableHeaders:
    """A row of `outbox` whose headers are not those of a record, because they were written by hand."""

    place: OutboxPlace
    kind: str
    to_topic: str
    reason: str


Position = tuple[int, int, int]
"""Generation, offset and ordinal: the place of a row in its partition."""

PAGE_ROWS = 500
PAGE_BYTES = 8 * 1024 * 1024
"""A page ends at either limit; a single row may be as large as the largest record."""

FETCH_ROWS = 2_000
"""Number of rows without values that are fetched together."""


@dataclass(slots=True)
class OutboxPage:
    """Rows of one partition for one topic, from the first place to the last, without their values.

    All are of one generation, since a range of offsets is found by the primary key, in which the generation comes last.
    """

    topic: str
    partition: int
    to_topic: str
    first: Position
    last: Position
    rows: int = 1
    size: int = 0
    partitions: frozenset[int] = frozenset()
    """The partitions of `to_topic` of its rows, if they are tracked."""

    def takes(self, topic: str, position: Position, size: int) -> bool:
        """Whether a row can be added: it is after the last one in the same generation, and the page has room."""
        return (
            self.topic == topic
            and self.last[0] == position[0]
            and self.last < position
            and self.rows < PAGE_ROWS
            and self.size + size <= PAGE_BYTES
        )


class OutboxPages:
    """A queue of pages, to which rows are added in the order in which they are to be sent."""

    def __init__(self) -> None:
        self._pages: deque[OutboxPage] = deque()
        # The newest page of each partition and destination. The order between partitions does not matter.
        self._open: dict[tuple[int, str], OutboxPage] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[OutboxPage]:
        return iter(self._pages)

    def add(self, row: OutboxRow) -> OutboxPage:
        """Add a row by its place; its value is read again later. Returns its page."""
        position = row.generation, row.offset, row.ordinal
        return self.add_place(row.topic, row.partition, row.to_topic, position, row.size)

    def add_place(
        self, topic: str, partition: int, to_topic: str, position: Position, size: int
    ) -> OutboxPage:
        """Add a row that is not in memory, given its size in bytes. Returns its page."""
        page = self._open.get((partition, to_topic))
        if page is not None and page.takes(topic, position, size):
            page.last, page.rows, page.size = position, page.rows + 1, page.size + size
        else:
            page = OutboxPage(topic, partition, to_topic, position, position, size=size)
            self.append(page)
        return page

    def append(self, page: OutboxPage) -> None:
        self._pages.append(page)
        self._open[page.partition, page.to_topic] = page

    def first(self) -> OutboxPage:
        """Returns the first page and closes it. It stays in the queue until `done`."""
        return self.closed(0)

    def closed(self, index: int) -> OutboxPage:
        """Returns the page at this index and closes it: no rows are added from now on."""
        page = self._pages[index]
        if self._open.get((page.partition, page.to_topic)) is page:
            del self._open[page.partition, page.to_topic]
        return page

    def done(self, index: int = 0) -> None:
        """Remove a closed page: the first one, or another."""
        del self._pages[index]


COLUMNS = tuple(OutboxRow.__dataclass_fields__)

# The headers, the last column, are read as text: if the driver could not parse those of one row, it would refuse the
# whole page.
_COLUMNS_READ = ", ".join(f'"{column}"' for column in COLUMNS) + "::text"
_all_but_headers = attrgetter(*COLUMNS[:-1])


async def delete(connection: Connection, places: Sequence[OutboxPlace]) -> None:
    """Delete published rows."""
    await connection.execute(
        """
        DELETE FROM outbox USING unnest(%s::text[], %s::int[], %s::int[], %s::bigint[], %s::int[])
            AS sent (topic, partition, generation, "offset", ordinal)
        WHERE outbox.topic = sent.topic AND outbox.partition = sent.partition
            AND outbox.generation = sent.generation
            AND outbox."offset" = sent."offset" AND outbox.ordinal = sent.ordinal
        """,
        (
            [topic for topic, _, _, _, _ in places],
            [partition for _, partition, _, _, _ in places],
            [generation for _, _, generation, _, _ in places],
            [offset for _, _, _, offset, _ in places],
            [ordinal for _, _, _, _, ordinal in places],
        ),
    )


async def read(connection: Connection, page: OutboxPage) -> tuple[list[OutboxRow], list[UnreadableHeaders]]:
    """Returns the rows of a page that are still in the outbox, in the order of their places. An unreadable row is
    returned as its error."""
    generation, first_offset, first_ordinal = page.first
    _, last_offset, last_ordinal = page.last
    # The plain range of offsets tells the planner how few rows a page is; it does not estimate ranges of places.
    cursor = await connection.execute(
        f"""
        SELECT {_COLUMNS_READ}
        FROM outbox
        WHERE topic = %s AND partition = %s AND to_topic = %s AND generation = %s
            AND "offset" BETWEEN %s AND %s
            AND ("offset", ordinal) BETWEEN (%s, %s) AND (%s, %s)
        ORDER BY "offset", ordinal
        """,
        (
            page.topic,
            page.partition,
            page.to_topic,
            generation,
            first_offset,
            last_offset,
            first_offset,
            first_ordinal,
            last_offset,
            last_ordinal,
        ),
    )
    rows: list[OutboxRow] = []
    unreadable: list[UnreadableHeaders] = []
    for values in await cursor.fetchall():
        one = _row(values)
        if isinstance(one, UnreadableHeaders):
            unreadable.append(one)
        else:
            rows.append(one)
    return rows, unreadable


async def left_behind(connection: Connection, topic: str, partition: int) -> list[OutboxPage]:
    """Returns the rows that a former owner of a partition did not delete, including those of sealed generations, as
    pages without values, so that their memory does not depend on the size of the rows."""
    pages = OutboxPages()
    # No index has this order. A cursor sorts the rows once, while a query for each page would sort them each time.
    async with connection.transaction(), connection.cursor(name="left_behind") as cursor:
        await cursor.execute(
            """
            SELECT generation, "offset", ordinal, to_topic,
                coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + octet_length(headers::text)
            FROM outbox
            WHERE topic = %s AND partition = %s
            ORDER BY generation, "offset", ordinal
            """,
            (topic, partition),
        )
        while rows := await cursor.fetchmany(FETCH_ROWS):
            for generation, offset, ordinal, to_topic, size in rows:
                pages.add_place(topic, partition, to_topic, (generation, offset, ordinal), size)
    return list(pages)


def _row(values: Sequence[Any]) -> OutboxRow | UnreadableHeaders:
    row = OutboxRow(**dict(zip(COLUMNS, values, strict=True)) | {"headers": ()})
    try:
        row.headers = headers_from_json(values[-1])
    except ValueError as error:
        return UnreadableHeaders(row.place, row.kind, row.to_topic, str(error))
    return row
