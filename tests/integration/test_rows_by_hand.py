"""Rows with unusual values: a row that was changed by hand stops at most its conversation."""

import asyncio
import json

import psycopg
import pytest
from tests.support.batches import (  # noqa: F401  # a fixture among them
    PARTITIONS,
    TOPIC,
    TOPICS,
    Log,
    both_writers,
    dump,
    project,
    same,
)
from tests.support.databases import made
from tests.support.tampering import changed
from tests.support.tiers import long
from tests.support.unparking import Sent, operator

from frameledger.ids import ContextId
from frameledger_services.audit.verify import verify
from frameledger_services.claims import overdue_calls
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.rebuild import rebuild
from frameledger_services.recovery.unpark import MISSING, ContradictoryHeadError, unpark
from frameledger_services.settings import Settings
from frameledger_services.store import listing
from frameledger_services.store.connections import Connections

DEEP = "repeat('[', 3000) || repeat(']', 3000)"

BAD, GOOD = "bad", "good"


def words(number, context_ids=(BAD, GOOD)):
    """Returns the records of so many frames of each of these conversations, in turn."""
    log = Log()
    for index in range(number):
        for context_id in context_ids:
            message = {"role": "user", "content": f"{index}"}
            frame = {"type": "LLMMessagesAppendFrame", "messages": [message]}
            log.add(context_id, json.dumps(frame).encode())
    return log.records


def projected_around(address, *statements):
    """Project frames of two conversations; run the statements in between, while no projector has them in memory."""
    records = words(4)
    project(address, records[:4])
    changed(address, *statements)
    project(address, records[4:], sizes=(500,))


def on_database(address, function, *arguments):
    async def run():
        async with operator(address) as connection:
            return await function(connection, *arguments)

    return asyncio.run(run())


def rebuilt(address):
    return on_database(address, rebuild, TOPIC, TOPICS.effects, ContextId(BAD), "a test")


def query(address, statement):
    with psycopg.connect(address) as connection:
        return connection.execute(statement).fetchall()


@pytest.fixture(scope="module", name="untouched")
def tables_without_a_row_by_hand(database_server, migrated_template):
    with made(database_server, template=migrated_template) as (_, address):
        project(address, words(4))
        return dump(address)


@pytest.mark.regression("fault 205")
@pytest.mark.usefixtures("both_writers")
@pytest.mark.parametrize(
    "state",
    [
        "'{}'",
        long("'[]'"),
        f"({DEEP})::json",
        long("'{\"fold\": 12}'"),
        '\'{"fold": 99, "state": {}}\'',
    ],
)
def test_a_stored_state_that_cannot_be_read_parks_its_conversation_and_no_other(database, untouched, state):
    projected_around(database, f"UPDATE contexts SET state = {state} WHERE context_id = '{BAD}'")
    outcomes = "SELECT outcome, count(*) FROM frames WHERE context_id = '{}' GROUP BY 1 ORDER BY 1"
    assert query(database, outcomes.format(GOOD)) == [("applied", 4)]
    assert query(database, outcomes.format(BAD)) == [("applied", 2), ("parked", 2)]
    [(why,)] = query(database, "SELECT parked_error FROM contexts WHERE parked_version = 3")
    assert "the stored state" in why
    assert why.endswith("unpark it")

    rebuilt(database)
    on_database(database, unpark, TopicNames("llm."), BAD, "a test", Sent())
    same(dump(database), untouched)


@pytest.mark.regression("fault 205")
def test_a_state_that_cannot_be_read_is_erased_as_any_other(database):
    projected_around(
        database,
        f"UPDATE contexts SET state = '{{}}' WHERE context_id = '{BAD}'",
    )
    erasing = Log()
    erasing.records = words(4)
    for partition in range(PARTITIONS):
        erasing._offsets[partition] = sum(one.partition == partition for one in erasing.records)
    erasing.add(BAD, b'{"type": "LLMContextEraseFrame", "why": "a test"}')
    erasing.add(BAD, json.dumps({"type": "LLMMessagesAppendFrame", "messages": []}).encode())
    project(database, erasing.records[-2:], sizes=(1,))
    assert query(database, f"SELECT version, outcome FROM frames WHERE context_id = '{BAD}'") == [
        (6, "applied")
    ]
    [done] = on_database(database, verify, [BAD])
    assert not done.differences.count


@pytest.mark.regression("fault 206")
@pytest.mark.usefixtures("both_writers")
@pytest.mark.parametrize(
    "value",
    [
        long("folded_by = '{\"a\": 1}'"),
        "folded_by = '7'",
        long("folded_by = '[[\"a\", {}]]'"),
        f"folded_by = ({DEEP})::json",
        long("fold_version = 5, folded_by = '[[\"a\", 1]]'"),
        "fold_version = 99",
        long("fold_version = -1"),
        "last_at = 'infinity'",
        long("last_at = '20000-01-01'"),
        long("last_at = '9999-12-31 23:59+00'"),
        long("started_at = '-infinity'"),
        "started_at = '0044-03-15 BC'",
    ],
)
def test_what_of_a_head_the_fold_does_not_need_stops_no_conversation(database, untouched, value):
    projected_around(database, f"UPDATE contexts SET {value} WHERE context_id = '{BAD}'")
    assert query(database, "SELECT context_id, version FROM contexts ORDER BY 1") == [(BAD, 4), (GOOD, 4)]
    assert not query(database, "SELECT FROM rejected_frames")
    rebuilt(database)
    same(dump(database), untouched)


@pytest.mark.regression("fault 207")
@pytest.mark.parametrize("last_active", [True, False])
def test_a_time_that_python_has_no_value_for_keeps_no_conversation_out_of_a_list(database, last_active):
    project(database, words(2))
    changed(database, f"UPDATE contexts SET last_at = 'infinity' WHERE context_id = '{BAD}'")

    async def listed():
        connections = Connections(Settings(database_url=database))
        page = await connections.read(listing.page, listing.Selection(), 10, last_active=last_active)
        await connections.close()
        return {one.context_id for one in page.contexts}

    assert asyncio.run(listed()) == {BAD, GOOD}


@pytest.mark.regression("fault 208")
@pytest.mark.parametrize("parked", ["", ", parked_version = 3, parked_at = now(), parked_error = ''"])
@pytest.mark.parametrize("column", ["started_at", "last_at"])
def test_a_rebuild_replaces_a_time_that_python_has_no_value_for(database, column, parked):
    project(database, words(4))
    before = query(database, "SELECT started_at, last_at FROM contexts ORDER BY context_id")
    changed(database, f"UPDATE contexts SET {column} = 'infinity'{parked} WHERE context_id = '{BAD}'")
    rebuilt(database)
    assert query(database, "SELECT started_at, last_at FROM contexts ORDER BY context_id") == before


@pytest.mark.regression("fault 209")
@pytest.mark.parametrize("seconds", [long("-1e300"), "'-infinity'", "'NaN'", long("'infinity'")])
def test_a_timeout_that_is_none_keeps_no_other_call_from_its_own(database, seconds):
    log = Log()
    call = {"function_name": "f", "tool_call_id": "c", "arguments": {}}
    for context_id in (BAD, GOOD):
        for frame in (
            {"type": "FunctionCallsStartedFrame", "function_calls": [call]},
            {"type": "FunctionCallInProgressFrame", **call, "timeout_secs": 1},
        ):
            log.add(context_id, json.dumps(frame).encode())
    project(database, log.records)
    changed(database, f"UPDATE tool_calls SET timeout_secs = {seconds} WHERE context_id = '{BAD}'")
    changed(
        database, "UPDATE tool_calls SET requested_at = now() - interval '1 day', started_at = requested_at"
    )
    overdue = on_database(database, overdue_calls.past_deadline, 60.0, 0.0, list(range(PARTITIONS)))
    assert GOOD in {one.context_id for one in overdue}


def unparked(address):
    return on_database(address, unpark, TopicNames("llm."), BAD, "a test", Sent())


@pytest.mark.regression("fault 212")
@pytest.mark.parametrize("parked_version", [long(-1), 0, long(6), 99])
@pytest.mark.parametrize("frames_since", [True, False])
def test_a_conversation_that_is_parked_from_no_version_of_it_is_unparked(
    database, untouched, parked_version, frames_since
):
    parked = f"parked_version = {parked_version}, parked_at = now(), parked_error = ''"
    statement = f"UPDATE contexts SET {parked} WHERE context_id = '{BAD}'"
    if frames_since:
        projected_around(database, statement)
    else:
        project(database, words(4))
        changed(database, statement)
    try:
        done = unparked(database)
    except ContradictoryHeadError:
        done = None
    if done is None or done.error is not None:
        rebuilt(database)
        assert unparked(database).error is None
    same(dump(database), untouched)


@pytest.mark.regression("fault 213")
@pytest.mark.parametrize("missing", [(3,), long((4,)), (3, 4)])
def test_a_parked_frame_whose_row_is_missing_is_not_passed_over(database, missing):
    projected_around(database, f"UPDATE contexts SET state = '{{}}' WHERE context_id = '{BAD}'")
    rebuilt(database)
    changed(
        database,
        f"DELETE FROM frames WHERE context_id = '{BAD}' AND version IN ({', '.join(map(str, missing))})",
    )
    for _ in range(2):
        done = unparked(database)
        assert (done.parked_version, done.error) == (missing[0], MISSING)
    heads = query(database, f"SELECT parked_version, state_version FROM contexts WHERE context_id = '{BAD}'")
    assert heads == [(missing[0], missing[0] - 1)]
