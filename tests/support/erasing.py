"""Finds remains of erased conversations, and compares the tables with a pure fold."""

import json
from typing import Any

import psycopg
from psycopg import sql
from tests.support.batches import FOLDED, rows_of
from tests.support.pipeline import Pipeline

from frameledger.chain import first_link, next_link
from frameledger.fold import Conversation, Folding
from frameledger.frames import LLMContextEraseFrame
from frameledger.record import DecodeError, Record, read
from frameledger_services.store.tables import metadata

NO_TEXT = ("int", "bool", "timestamp", "double", "uuid")


def found_in_tables(connection: psycopg.Connection, words: str) -> list[str]:
    """Returns the columns of all tables that contain these words: as text, in JSON, or in bytes."""
    found = []
    for table in metadata.tables.values():
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (table.name,),
        ).fetchall()
        for column, kind in columns:
            if kind.startswith(NO_TEXT):
                continue
            text = "encode({}, 'escape')" if kind == "bytea" else "{}::text"
            query = sql.SQL("SELECT count(*) FROM {} WHERE strpos(" + text + ", %s) > 0").format(
                sql.Identifier(table.name), sql.Identifier(column)
            )
            row = connection.execute(query, (words,)).fetchone()
            if row is not None and row[0]:
                found.append(f"{table.name}.{column}")
    return found


def found_in_statistics(connection: psycopg.Connection, words: str) -> list[str]:
    """Returns the columns for which PostgreSQL's statistics contain these words, as text or in bytes."""
    rows = connection.execute(
        """
        SELECT tablename || '.' || attname
        FROM pg_stats, concat(most_common_vals, histogram_bounds, most_common_elems) AS samples
        WHERE schemaname = 'public' AND (strpos(samples, %s) > 0 OR strpos(samples, %s) > 0)
        ORDER BY 1
        """,
        (words, words.encode().hex()),
    )
    return [column for (column,) in rows]


def dump(address: str) -> dict[str, list[str]]:
    """Returns every row of the folded tables and of the receipts, without the database's clock and user."""
    with psycopg.connect(address) as connection:
        tables = {table: rows_of(connection, table) for table in FOLDED}
        receipts = [json.loads(row) for row in rows_of(connection, "erasures")]
    for row in receipts:
        del row["erased_at"]
    return tables | {"erasures": sorted(map(json.dumps, receipts))}


def folded(records: list[Record]) -> dict[str, dict[str, Any]]:
    """Returns the version, chain, context and receipts of each conversation of a log, by a pure fold."""
    conversations: dict[str, tuple[Folding, dict[str, Any]]] = {}
    for record in records:
        try:
            logged = read(record)
        except DecodeError:
            continue
        context_id = logged.context_id
        folding, made = conversations.setdefault(
            context_id,
            (Folding(Conversation.new(context_id)), {"receipts": [], "chain": None, "frames": 0}),
        )
        step = folding.step(logged.frame)
        if step is None:
            continue
        made["chain"] = next_link(
            made["chain"] or first_link(context_id), step.state.version, logged.source, record.value or b""
        )
        if isinstance(logged.frame, LLMContextEraseFrame):
            made["receipts"].append((step.state.version, made["frames"], made["chain"]))
            made["frames"] = 0
        else:
            made["frames"] += 1
        made["version"] = step.state.version
    return {
        context_id: made | {"context": folding.conversation().context.to_wire()}
        for context_id, (folding, made) in conversations.items()
    }


def stored(address: str) -> dict[str, dict[str, Any]]:
    """Returns the same from the tables."""
    with psycopg.connect(address) as connection:
        found: dict[str, dict[str, Any]] = {}
        for context_id, version, count, chain in connection.execute(
            "SELECT context_id, version, frame_count, chain FROM erasures ORDER BY context_id, version"
        ).fetchall():
            one = found.setdefault(context_id, {"receipts": [], "frames": 0})
            one["receipts"].append((version, count, bytes(chain)))
            one |= {"version": version, "chain": bytes(chain), "context": EMPTY}
        for context_id, version, chain, context, frames in connection.execute(
            "SELECT context_id, version, chain, context_at(context_id), "
            "(SELECT count(*) FROM frames WHERE frames.context_id = contexts.context_id) FROM contexts"
        ).fetchall():
            one = found.setdefault(context_id, {"receipts": []})
            one |= {"version": version, "chain": bytes(chain), "context": context, "frames": frames}
    return found


EMPTY: dict[str, Any] = {"messages": [], "tools": [], "tool_choice": None, "settings": {}}


def check(pipeline: Pipeline, *, rounds: int) -> None:
    """Assert that the tables equal both a pure fold of the topic and what one projector writes that is never killed,
    after this many bursts of `kill_rounds.erasures` behind the first."""
    records = pipeline.records()
    found = stored(pipeline.address)
    assert found == folded(records)
    assert len([one for one in found if one.startswith("short")]) == rounds
    assert dump(pipeline.address) == dump(pipeline.folded_offline(records))
