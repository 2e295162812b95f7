"""Verification of rows: rows of the projector have no differences, and manual changes are found."""

import asyncio
from functools import cache
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel
from tests.support import tiers
from tests.support.batches import HISTORIES, Log, histories_interleaved, project
from tests.support.databases import made
from tests.support.rebuilding import rebuild_in
from tests.support.tampering import changed, rechained
from tests.support.tiers import long

from frameledger.frames import LLMContextEraseFrame, LLMMessagesAppendFrame, encode_frame
from frameledger_services.audit.verify import verify
from frameledger_services.store import frame_pages, tables


def verified(address, *context_ids, again=False):
    """The result of verifying, by conversation."""

    async def run():
        async with await AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            return {one.context_id: one for one in await verify(connection, context_ids, again=again)}

    return asyncio.run(run())


def everything(address):
    with psycopg.connect(address) as connection:
        return [row[0] for row in connection.execute("SELECT context_id FROM contexts").fetchall()]


@pytest.mark.parametrize(("page", "sizes"), [(3, (5_000,)), long(500, (100,))])
def test_nothing_differs_in_what_the_projector_wrote(database, monkeypatch, page, sizes):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    project(database, histories_interleaved(), sizes=sizes)
    done = verified(database, *everything(database))
    assert done.keys() == {path.stem for path in HISTORIES}
    assert {name: one.differences.in_order() for name, one in done.items() if one.differences.count} == {}


DESK = "a-day-at-the-desk"


@pytest.fixture(scope="module")
def histories(database_server, migrated_template):
    """A database with all histories, in which whatever is changed is taken back."""
    with made(database_server, template=migrated_template) as (_, address):
        project(address, histories_interleaved(), sizes=(2_000,))
        yield address


def tampered(address, *statements, context_ids=(DESK,)):
    """The results of verifying after these statements, in a transaction that is rolled back. The trigger that refuses
    such changes is off."""

    async def run():
        async with await AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            async with connection.transaction(force_rollback=True):
                await connection.execute("SET LOCAL session_replication_role = replica")
                for statement in statements:
                    cursor = await connection.execute(statement)
                    assert cursor.rowcount, statement
                return await verify(connection, context_ids)

    return asyncio.run(run())


def first(found):
    """The first difference: version, table and field."""
    assert found.first is not None, "nothing was found"
    return found.first.version, found.first.table, found.first.field


FRAMES = f"frames WHERE context_id = '{DESK}'"
FRAME_3 = f"context_id = '{DESK}' AND version = 3"


@pytest.mark.parametrize(
    ("statements", "version", "field"),
    [
        pytest.param(
            [
                "UPDATE frames SET payload = replace(payload::text, 'a', 'b')::json "
                f"WHERE context_id = '{DESK}' AND version = 7"
            ],
            7,
            "chain",
            id="a changed byte",
        ),
        pytest.param([f"DELETE FROM {FRAMES} AND version = 12"], 12, "row", id="a removed row"),
        pytest.param([f"DELETE FROM {FRAMES} AND version = 1"], 1, "row", id="the first row removed"),
        pytest.param(
            [
                f"UPDATE frames SET version = -version WHERE context_id = '{DESK}' AND version IN (9, 10)",
                f"UPDATE frames SET version = 19 + version WHERE context_id = '{DESK}' AND version < 0",
            ],
            9,
            "chain",
            id="a swapped pair",
        ),
        pytest.param(
            [
                'INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, '
                "chain, payload) SELECT context_id, version + 1, gen_random_uuid(), last_at, 999999, 0, 'LLMRunFrame', "
                "'applied', chain, '{\"type\":\"LLMRunFrame\"}' FROM contexts "
                f"WHERE context_id = '{DESK}'"
            ],
            None,
            "chain",
            id="an added frame",
        ),
        pytest.param(
            [
                "UPDATE frames SET outcome = 'ignored', reason = 'nothing_said' "
                f"WHERE context_id = '{DESK}' AND version = 8"
            ],
            8,
            "outcome",
            id="an outcome",
        ),
        pytest.param(
            [f"UPDATE frames SET source = 'somebody' WHERE context_id = '{DESK}' AND version = 5"],
            5,
            "chain",
            id="a source",
        ),
        pytest.param(
            [
                "UPDATE frames SET logged_at = logged_at - interval '1 day' "
                f"WHERE context_id = '{DESK}' AND version = 6"
            ],
            6,
            "logged_at",
            id="a time",
        ),
    ],
)
def test_a_changed_frame_is_found_at_its_version(histories, statements, version, field):
    names = [path.stem for path in HISTORIES[:3]]
    without_check = "ALTER TABLE frames DROP CONSTRAINT frames_version_check"
    done = tampered(histories, without_check, *statements, context_ids=names)
    [changed] = [one for one in done if one.differences.count]
    assert changed.context_id == DESK
    assert first(changed.differences) == (version or changed.version + 1, "frames", field)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("type", "'LLMRunFrame'"),
        ("run_id", "'other'"),
        ("tool_call_id", "'other'"),
        ("produced_at", "now()"),
        ("frame_id", "gen_random_uuid()"),
    ],
)
def test_a_changed_column_of_a_frame_is_found(histories, column, value):
    [done] = tampered(histories, f"UPDATE frames SET {column} = {value} WHERE {FRAME_3}")
    assert first(done.differences) == (3, "frames", column)


def columns_of(table, *without):
    return [
        pytest.param(table, column.name, id=f"{table.name}.{column.name}")
        for column in table.columns
        if column.name not in without
    ]


OTHER = {
    "Text": "coalesce({0}, '') || 'x'",
    "JSON": "'{{\"changed\": true}}'",
    "Boolean": "NOT coalesce({0}, false)",
    "BigInteger": "coalesce({0}, 1) + 1",
    "Integer": "coalesce({0}, 1) + 1",
    "Double": "coalesce({0}, 1) + 1",
    "DateTime": "coalesce({0}, now()) + interval '1 second'",
    "UUID": "gen_random_uuid()",
    "LargeBinary": "sha256({0})",
}
"""Expressions of SQL for another value of a column, by its type."""

PARTICULAR = {
    "messages.position": "position + 1000",
    "tool_calls.ordinal": "ordinal + 1000",
    "messages.valid_to": "valid_from + 1",
    "runs.status": "CASE status WHEN 'ended' THEN 'failed' ELSE 'ended' END",
    "tool_calls.status": "CASE status WHEN 'done' THEN 'failed' ELSE 'done' END",
    "contexts.state_version": "state_version - 1",
    "contexts.parked_version": "3, parked_at = now(), parked_error = 'by hand'",
    "contexts.turn_opened_version": "1, turn_waits = true",
    "contexts.turn_waits": "true, turn_opened_version = 1",
}

NOT_FROM_FRAMES = ("context_id", "duplicate_count", "parked_at", "parked_error", "rebuilt", "folded_by")
"""Columns of `contexts` that frames do not say: how often one was repeated, why it is parked, what was rebuilt."""


@cache
def newest_row(address, table):
    """The place of a row that no test changes for good, and its conversation."""
    with psycopg.connect(address) as connection:
        select = f"SELECT ctid::text, context_id FROM {table} ORDER BY ctid DESC LIMIT 1"
        return connection.execute(select).fetchone() or ("", "")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *columns_of(tables.messages, "context_id"),
        *columns_of(tables.eras, "context_id"),
        *columns_of(tables.context_settings, "context_id"),
        *columns_of(tables.runs, "context_id"),
        *columns_of(tables.tool_calls, "context_id"),
        *columns_of(tables.contexts, *NOT_FROM_FRAMES),
    ],
)
def test_a_changed_column_of_every_table_is_found(histories, table, column):
    other = OTHER[type(table.c[column].type).__name__].format(f'"{column}"')
    value = PARTICULAR.get(f"{table.name}.{column}", other)
    row, context_id = newest_row(histories, table.name)
    [done] = tampered(
        histories,
        f"UPDATE {table.name} SET \"{column}\" = {value} WHERE ctid = '{row}'",
        context_ids=[context_id],
    )
    assert done.differences.count
    assert table.name in {one.table for one in done.differences.kept} or column == "parked_version"
    assert done.differences.first is not None
    assert 1 <= done.differences.first.version <= done.version + 1


@pytest.mark.parametrize("table", ["messages", "eras", "context_settings", "runs", "tool_calls"])
def test_a_row_that_is_missing_or_too_many_is_found(histories, table):
    with psycopg.connect(histories) as connection:
        row, context_id = connection.execute(
            f"SELECT ctid::text, context_id FROM {table} ORDER BY ctid DESC LIMIT 1"
        ).fetchone() or ("", "")
    key = {
        "messages": "position = position + 1000",
        "runs": "run_id = run_id || 'x'",
        "tool_calls": "ordinal = ordinal + 7",
    }.get(table, "valid_from = valid_from - 1")
    for statement in (
        f"DELETE FROM {table} WHERE ctid = '{row}'",
        f"UPDATE {table} SET {key} WHERE ctid = '{row}'",
    ):
        [done] = tampered(histories, statement, context_ids=[context_id])
        rows = [one for one in done.differences.kept if (one.table, one.field) == (table, "row")]
        assert rows
        assert not [one for one in rows if isinstance(one.expected, bytes)], "JSON is shown as text"


ELSEWHERE = {
    *(f"frames.{name}" for name in ("partition", "offset", "generation", "trace_id", "causation_id")),
    "frames.recorded_at",
    *(f"contexts.{name}" for name in ("duplicate_count", "rebuilt", "parked_at", "parked_error")),
}
"""Columns that do not follow from the bytes of frames. `infra/docs/how-to/prove.md` names them."""


@pytest.mark.regression("fault 211")
@pytest.mark.parametrize(
    "table",
    tiers.first(2, ["frames", "contexts", "messages", "eras", "context_settings", "runs", "tool_calls"]),
)
def test_each_column_is_compared_or_named_by_the_page(histories, table):
    """The column is changed in the first row in which it has a value, and in the first in which it is null."""
    missed, allowed = set(), set()
    columns = {
        column.name: OTHER[type(column.type).__name__].format(f'"{column.name}"')
        for column in tables.metadata.tables[table].columns
        if column.name != "context_id"
    }
    for name, value in columns.items():
        for known in ("NOT NULL", "NULL"):
            statement = f"""
                UPDATE {table} SET "{name}" = {value}
                WHERE ctid = (SELECT min(ctid) FROM {table} WHERE context_id = '{DESK}' AND "{name}" IS {known})
            """
            try:
                [done] = tampered(histories, statement)
            except (AssertionError, psycopg.IntegrityError, psycopg.DataError):
                continue  # there is no such row, or the table refuses it
            allowed.add(name)
            if not done.differences.count:
                missed.add(f"{table}.{name}")
    assert len(allowed) >= len(columns) / 2
    assert missed <= ELSEWHERE
    page = (Path(__file__).parents[2] / "infra/docs/how-to/prove.md").read_text(encoding="utf-8")
    assert all(f"`{one.partition('.')[2]}`" in page for one in ELSEWHERE)


DEEP = "repeat('[', 3000) || repeat(']', 3000)"


@pytest.mark.regression("fault 177")
@pytest.mark.parametrize("page", [500, long(3)])
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("frames", "logged_at", "'-infinity'"),
        long("frames", "produced_at", "'0044-03-15 BC'"),
        ("messages", "said_at", "'infinity'"),
        long("messages", "message", f"({DEEP})::json"),
        long("runs", "requested_at", "'-infinity'"),
        ("tool_calls", "settled_at", "'12026-01-01'"),
        ("contexts", "last_at", "'infinity'"),
        ("contexts", "state", f"({DEEP})::json"),
        long("contexts", "folded_by", "'{\"a\": 1}'"),
        long("contexts", "folded_by", "'[[1, null]]'"),
        ("contexts", "folded_by", "'7'"),
    ],
)
def test_what_python_has_no_value_for_is_found_where_it_is(
    histories, monkeypatch, table, column, value, page
):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    names = [path.stem for path in HISTORIES]
    done = tampered(
        histories,
        f"UPDATE {table} SET {column} = {value} WHERE ctid = "
        f"(SELECT ctid FROM {table} WHERE context_id = '{DESK}' ORDER BY ctid DESC LIMIT 1)",
        context_ids=names,
    )
    assert len(done) == len(names)
    [changed] = [one for one in done if one.differences.count]
    assert changed.context_id == DESK
    assert (table, column) in {(one.table, one.field) for one in changed.differences.kept}


COPIED = {
    "eras": "valid_from",
    "context_settings": "valid_from",
    "runs": "requested_version",
    "tool_calls": "requested_version",
}
"""Tables that accept a row of version 0, which no conversation has, each with the column of its version."""


@pytest.mark.regression("fault 175")
@pytest.mark.parametrize("page", [3, 500])
@pytest.mark.parametrize("table", COPIED)
def test_a_row_of_before_the_first_version_is_found(histories, monkeypatch, table, page):
    """The SQL functions would show such a row: an era that begins at version 0 hides the history."""
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    columns = [column.name for column in tables.metadata.tables[table].columns]
    others = {
        name: "0" if name == COPIED[table] or name.endswith("_version") else name
        for name in columns
        if name != "context_id"
    } | ({"run_id": "'another'"} if table == "runs" else {})
    with psycopg.connect(histories) as connection:
        (context_id,) = connection.execute(f"SELECT context_id FROM {table} LIMIT 1").fetchone() or ("",)
    [done] = tampered(
        histories,
        f"INSERT INTO {table} (context_id, {', '.join(others)}) SELECT context_id, {', '.join(others.values())} "
        f"FROM {table} WHERE context_id = '{context_id}' ORDER BY {COPIED[table]} LIMIT 1",
        context_ids=[context_id],
    )
    assert (done.differences.count, first(done.differences)) == (1, (0, table, "row"))


@pytest.mark.regression("fault 175")
def test_what_is_left_of_an_erased_life_in_the_next_one_is_found_and_rebuilt(database):
    log = Log()
    for text in ("a secret", "hello"):
        frame = LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}])
        log.add("ctx", encode_frame(frame))
        if text == "a secret":
            log.add("ctx", encode_frame(LLMContextEraseFrame(why="asked")))
    project(database, log.records)
    assert verified(database, "ctx")["ctx"].differences.count == 0
    changed(
        database,
        "INSERT INTO messages (context_id, era, position, valid_from, role, text, message, said_at) "
        "SELECT context_id, era, position + 7, 1, role, text, message, said_at FROM messages",
    )
    assert first(verified(database, "ctx")["ctx"].differences) == (1, "messages", "row")
    rebuild_in(database)
    assert verified(database, "ctx")["ctx"].differences.count == 0


def test_a_rewritten_chain_is_not_found_in_the_rows_but_what_was_folded_is(database):
    """If all tables are rewritten, only an older root or Kafka shows it. If only frames are, the other tables do."""
    project(database, histories_interleaved(), sizes=(2_000,))
    changed(
        database,
        "UPDATE frames SET payload = replace(payload::text, 'you', 'me')::json "
        f"WHERE context_id = '{DESK}' AND payload::text LIKE '%you%'",
    )
    rechained(database, DESK)
    found = verified(database, DESK)[DESK].differences
    assert {one.table for one in found.kept} >= {"messages"}
    assert "chain" not in {one.field for one in found.kept}
