"""The size of a message on disk, including keys, heads and history."""

import psycopg
from psycopg import sql
from tests.conftest import ROOT
from tests.support import rows

DAY = ROOT / "tests" / "histories" / "a-day-at-the-desk.jsonl"
COPIES = 100
KEPT = ("frames", "messages", "eras", "context_settings", "contexts", "runs", "tool_calls")
FOR_PROGRAMS = (
    *("messages_by_version", "messages_by_time", "frames_by_time", "frames_asking", "frames_of_requests"),
    *("runs_by_version", "runs_requested_at", "tool_calls_requested_at"),
)
"""The indexes by which facts, limits and the gateway find what they read."""

KEYS = {"frames": "context_id, version", "messages": "context_id, era, position, valid_from"}


def test_everything_takes_little_more_than_bare_frames_and_messages(database):
    """Folded and shown data takes less than 30% more, and the indexes above another 5%."""
    with psycopg.connect(database) as connection:
        rows.write(connection, DAY.stem, DAY.read_bytes().splitlines())
        for table in KEPT:
            multiply(connection, table)
        for table, key in KEYS.items():
            connection.execute(f"CREATE TABLE bare_{table} (LIKE {table})")
            connection.execute(f"ALTER TABLE bare_{table} ADD PRIMARY KEY ({key})")
            connection.execute(f"INSERT INTO bare_{table} SELECT * FROM {table}")
        ours = sum(size(connection, table) for table in KEPT)
        bare = sum(size(connection, f"bare_{table}") for table in KEYS)
        for_programs = sum(size(connection, index) for index in FOR_PROGRAMS)
    assert bare > 10_000_000
    assert (ours - for_programs) / bare <= 1.3
    assert for_programs / bare <= 0.05


def multiply(connection: psycopg.Connection, table: str) -> None:
    """More conversations like the one that is there, with ids as long and as random as those of most people."""
    columns = connection.execute(
        "SELECT attname FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    ).fetchall()
    fresh = {
        "context_id": sql.SQL("md5(context_id || copy)::uuid::text"),
        "frame_id": sql.SQL("gen_random_uuid()"),
    }
    connection.execute(
        sql.SQL(
            "INSERT INTO {table} SELECT {columns} FROM {table} CROSS JOIN generate_series(1, {copies}) AS copy"
        ).format(
            table=sql.Identifier(table),
            columns=sql.SQL(", ").join(fresh.get(name, sql.Identifier(name)) for (name,) in columns),
            copies=COPIES,
        )
    )


def size(connection: psycopg.Connection, table: str) -> int:
    row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", (table,)).fetchone()
    assert row is not None
    return int(row[0])
