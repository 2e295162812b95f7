"""Work that no worker serves: the report to an operator, and the rows that it reads."""

import asyncio

import psycopg
import pytest
from tests.integration.test_query_plans import FILL
from tests.integration.test_timekeeper_plans import counted
from tests.integration.test_timekeeper_unstarted import calls, cancelling, run_id
from tests.support.databases import made
from tests.support.tiers import first
from tests.support.timekeeping import with_harness
from tests.unit.rules.dsl import (
    ask,
    begin,
    bot_speaks,
    committed,
    context,
    end,
    result,
    settings,
    speak,
    start,
)
from tests.unit.rules.test_client_functions import brought

from frameledger import derived
from frameledger.frames.calls import Waiting
from frameledger.ids import ContextId, Version
from frameledger_services import claims
from frameledger_services.claims import OpenWork, Unserved, unserved
from frameledger_services.cli.doctor import work
from frameledger_services.store import client_calls, tool_calls, work_to_do

CTX = "harness"
HOUR = 3_600


async def runs(harness):
    return shown(await claims.unserved_runs(harness.connection))


async def called(harness):
    return shown(await claims.unserved_calls(harness.connection))


def shown(found: list[Unserved]):
    """The count of each name that waits. The records of these tests are months old."""
    assert all(one.oldest_secs > HOUR for one in found)
    assert sorted(found, key=lambda one: -one.oldest_secs) == found
    return {one.name: one.count for one in found}


def test_unserved_runs_are_listed_by_model_until_a_live_worker_serves_it(database):
    async def test(harness):
        await harness.say("any 1", ask())
        await harness.say("any 2", ask())
        await harness.say("named 1", settings(model="m1"), ask())
        await harness.say("named 2", settings(model="m2", extra={"odd": "\ud800"}), ask())
        assert await runs(harness) == {None: 2, "m1": 1, "m2": 1}
        # A run that names no model is anybody's, as long as it is an inference service.
        await harness.lives("tools", kind="functions", serves=("m1",), serves_all=True)
        await harness.lives("first", kind="inference", serves=("m1", "m3"))
        assert await runs(harness) == {"m2": 1}
        await harness.dies("first")
        assert await runs(harness) == {None: 2, "m1": 1, "m2": 1}
        await harness.lives("second", kind="inference", serves_all=True)
        assert await runs(harness) == {}
        await claims.leave(harness.connection, "second")
        assert await runs(harness) == {None: 2, "m1": 1, "m2": 1}

    with_harness(database, test)


def test_a_claimed_run_is_served_while_its_worker_is_alive_or_has_done_it(database):
    async def test(harness):
        await harness.say(CTX, ask())
        # The worker is alive, but takes no other runs.
        await harness.lives("worker", kind="inference", serves=("another",))
        await harness.execute("UPDATE workers SET kind = 'functions'")
        await harness.claimed_run(CTX, 1, "worker")
        assert await runs(harness) == {}
        await harness.say(CTX, start(run_id(CTX), attempt=1))
        await harness.dies("worker")
        assert await runs(harness) == {None: 1}
        await harness.execute("UPDATE claims SET finished_at = now(), finish = 'done'")
        assert await runs(harness) == {}

    with_harness(database, test)


@pytest.mark.regression("worker 14")
def test_work_that_a_live_worker_released_and_does_not_serve_any_more_is_listed(database):
    async def test(harness):
        await harness.say("run", ask())
        await harness.say("call", calls("a", of="call"))
        await harness.lives("model", kind="inference", serves=("m1",))
        await harness.lives("tools", serves=("a",))
        await harness.execute("UPDATE workers SET serves = ARRAY['another'] WHERE worker_id = 'tools'")
        await harness.claimed_run("run", 1, "model")
        await harness.claimed_call("call", "a", "tools")
        await harness.execute("UPDATE workers SET kind = 'functions' WHERE worker_id = 'model'")
        assert (await runs(harness), await called(harness)) == ({}, {})
        await harness.execute("UPDATE claims SET released_at = now()")
        assert (await runs(harness), await called(harness)) == ({None: 1}, {"a": 1})

    with_harness(database, test)


def test_a_run_that_an_unknown_program_answers_is_served(database):
    async def test(harness):
        await harness.say(CTX, ask(), start(run_id(CTX)))
        assert await runs(harness) == {}

    with_harness(database, test)


def test_unserved_calls_are_listed_by_function_until_a_live_worker_serves_it(database):
    async def test(harness):
        await harness.say("two", calls("a", "b", of="two"))
        await harness.say("one", calls("a", of="one"))
        assert await called(harness) == {"a": 2, "b": 1}
        await harness.lives("model", kind="inference", serves=("a",), serves_all=True)
        await harness.lives("tools", serves=("a",))
        assert await called(harness) == {"b": 1}
        await harness.lives("others", serves_all=True)
        assert await called(harness) == {}
        await harness.dies("tools")
        await harness.dies("others")
        assert await called(harness) == {"a": 2, "b": 1}
        await harness.claimed_call("one", "a", "model")
        assert await called(harness) == {"a": 1, "b": 1}
        await harness.dies("model")
        assert await called(harness) == {"a": 2, "b": 1}
        # Somebody runs it.
        await harness.say("one", begin("a", attempt=1))
        assert await called(harness) == {"a": 1, "b": 1}

    with_harness(database, test)


@pytest.mark.parametrize(("builtin", "needed"), [(True, "book"), (False, "cancel_book")])
def test_a_builtin_tool_waits_for_the_function_that_it_is_about(database, builtin, needed):
    async def test(harness):
        await harness.say(
            CTX, ask(), start(run_id(CTX)), cancelling("cancel_book", builtin=builtin), end(run_id(CTX))
        )
        assert await called(harness) == {needed: 1}

    with_harness(database, test)


def test_work_that_is_young_parked_or_of_a_recording_is_not_listed(database, monkeypatch):
    async def test(harness):
        await harness.say("young", ask())
        await harness.say("recorded", context("x", react=False), ask(), committed("a", run=None))
        await harness.say("parked", calls("b", of="parked"))
        await harness.say("parked too", ask())
        await harness.execute(
            "UPDATE contexts SET parked_version = 1, parked_at = now(), parked_error = 'x' "
            "WHERE starts_with(context_id, 'parked')"
        )
        assert (await runs(harness), await called(harness)) == ({None: 1}, {})
        monkeypatch.setattr(unserved, "AFTER_SECONDS", 1e9)
        assert (await runs(harness), await called(harness)) == ({}, {})

    with_harness(database, test)


def test_open_work_and_timekeepers_are_counted(database):
    async def test(harness):
        assert await claims.open_work(harness.connection) == OpenWork(0, 0, 0, 0)
        await harness.say("run", ask())
        await harness.say("calls", calls("a", "b", of="calls"))
        await harness.say("turn", speak())
        await harness.say("bot", bot_speaks())
        await harness.lives("keeper", kind="timekeeper")
        await harness.lives("gone", kind="timekeeper")
        await harness.dies("gone")
        assert await claims.open_work(harness.connection) == OpenWork(1, 2, 2, 1)

    with_harness(database, test)


async def left(harness):
    return {
        one.why: (one.count, one.tool_call_id)
        for one in await claims.calls_needing_attention(harness.connection)
    }


@pytest.mark.regression("trial C5", "journey 12")
def test_calls_that_need_attention_are_listed_with_their_age_and_the_oldest(database):
    async def test(harness):
        assert await left(harness) == {}
        await harness.lives("worker")
        await harness.say(CTX, calls("a", "b", "c", "d", "e"))
        for call in ("a", "b"):
            await harness.claimed_call(CTX, call, "worker")
        await harness.say(CTX, begin("a", attempt=1, worker="worker"), begin("b", attempt=1, worker="worker"))
        await harness.say(CTX, begin("c"), begin("d", attempt=1, waiting=Waiting(for_="approval")))
        await harness.say(CTX, begin("e", attempt=1), result("e", "?", settled_as="ambiguous"))
        told = {"waiting": (1, "d"), "ambiguous": (1, "e")}
        assert await left(harness) == told, "c is run by somebody who claims nothing"
        await harness.dies("worker")
        assert await left(harness) == told | {"lost": (2, "a")}
        findings = [found async for found in work.findings(harness.connection)]
        said = {found.found.partition(",")[0]: found for found in findings if found.state == "warn"}
        assert "2 calls lost their worker while running" in said
        assert "One call is ambiguous" in said
        assert "One call waits for a person" in said
        assert all(f"of {CTX}" in found.found for found in said.values() if found.check == "calls")
        assert {"days", "h"} & set(" ".join(found.found for found in findings).replace(":", "").split())
        await harness.say(CTX, result("e", "It was not.", settled_as="resolved"))
        await harness.execute("UPDATE contexts SET recording = true")
        assert await left(harness) == {}

    with_harness(database, test)


@pytest.mark.regression("journey 33")
def test_a_call_that_a_known_worker_started_without_a_claim_is_lost_with_it(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, calls("a", "b"))
        await harness.say(CTX, begin("a", worker="worker"), begin("b", worker="of no table"))
        assert await left(harness) == {}
        await harness.dies("worker")
        assert await left(harness) == {"lost": (1, "a")}, "who runs b nobody knows: it may be alive"

    with_harness(database, test)


OPEN = 20
"""How many runs are open, and how many calls, beside all that are over."""

OPENED = """
UPDATE contexts SET parked_version = NULL, parked_at = NULL, parked_error = NULL WHERE parked_version IS NOT NULL;
UPDATE tool_calls SET status = 'dispatched', dispatched_version = requested_version, dispatched_at = requested_at
WHERE status = 'running';
UPDATE runs SET started_at = NULL WHERE status = 'open';
"""

FOUND = {
    claims.unserved_runs: [(None, OPEN)],
    claims.unserved_calls: [("look", OPEN)],
    claims.open_work: OpenWork(runs=OPEN, calls=2 * OPEN, speakers=OPEN, timekeepers=0),
}
MAX_ROWS = 10 * OPEN
"""For each open one the rows of itself, its context, its settings, its claim and its worker, and those of the few
workers that are alive."""


@pytest.fixture(scope="module")
def filled(database_server, migrated_template):
    with made(database_server, template=migrated_template) as (_, address):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(FILL + OPENED)
            connection.execute("VACUUM ANALYZE")
        yield address


@pytest.mark.parametrize("question", first(1, FOUND))
def test_a_question_reads_what_is_open_and_nothing_that_is_over(filled, question):
    async def asked():
        async with await psycopg.AsyncConnection.connect(filled) as connection:
            # What a parallel worker reads would be counted in that process.
            await connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            before = await counted(connection)
            found = await question(connection)
            return found, before, await counted(connection)

    found, before, after = asyncio.run(asked())
    scanned = {table for table, (scans, _) in after.items() if scans > before.get(table, (0, 0))[0]}
    # A row for each partition.
    assert scanned <= {"projections"}
    assert sum(rows for _, rows in after.values()) - sum(rows for _, rows in before.values()) <= MAX_ROWS
    assert (found if isinstance(found, OpenWork) else list(shown(found).items())) == FOUND[question]


def test_a_call_that_waits_for_its_client_is_nobodys_work_and_is_told_apart(database):
    async def test(harness):
        # The call that waits for its client is the older one. Nobody announced the name of the call that waits for a
        # person.
        await harness.say(
            "client",
            brought("paint"),
            ask(),
            committed("paint", run=derived.run_id(ContextId("client"), Version(2))),
        )
        await harness.say("person", begin("refund", waiting=Waiting(for_="a manager")))
        assert await left(harness) == {"waiting": (1, "refund")}
        assert (await work_to_do.count(harness.connection)).calls_waiting == 1
        listed = await tool_calls.unsettled(harness.connection, None, status="waiting")
        assert [(one.tool_call_id, one.waiting_for, one.by_client) for one in listed] == [
            ("refund", "a manager", False),
            ("paint", "the client", True),
        ]
        [call] = await client_calls.waiting(harness.connection, "person")
        assert call.by_client is False
        [other] = await client_calls.others_waiting_since(harness.connection, "person", 0)
        assert (other.function_name, other.waiting_for) == (call.function_name, "a manager")
        assert await client_calls.others_waiting_since(harness.connection, "client", 0) == []
        await harness.say("person", result("refund", 1))
        assert (await left(harness), (await work_to_do.count(harness.connection)).calls_waiting) == ({}, 0)
        # A person has to find out the result of an ambiguous call, whoever answered it.
        await harness.say("client", result("paint", "?", settled_as="ambiguous"))
        assert await left(harness) == {"ambiguous": (1, "paint")}

    with_harness(database, test)
