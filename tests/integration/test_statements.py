"""Statements that are otherwise executed only in subprocesses or after rare failures."""

import asyncio
from uuid import uuid4

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.scene import INTERRUPTION, Scene

from frameledger_services import claims
from frameledger_services.client import reading
from frameledger_services.store import (
    conversation_state,
    dead_letters,
    offers,
    outbox,
    projections,
    serving,
    tool_calls,
)


def on(address, test):
    async def scenario():
        async with (
            asyncio.timeout(ON_SERVERS),
            await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
        ):
            await test(connection)

    asyncio.run(scenario())


def offer(**changed):
    return claims.Registration(
        **{
            "worker_id": f"worker-{uuid4()}",
            "service": "one",
            "kind": "inference",
            "host": "here",
            "pid": 1,
            "lease_secs": 60.0,
            "slots": 1,
            **changed,
        }
    )


def test_who_has_been_connected_for_a_lease_may_judge_others(database):
    async def test(connection):
        keeper = offer(kind="timekeeper")
        assert not await claims.may_judge(connection, keeper.worker_id)
        await claims.register(connection, keeper)
        assert not await claims.may_judge(connection, keeper.worker_id)
        await connection.execute("UPDATE workers SET connected_at = connected_at - interval '61 s'")
        assert await claims.may_judge(connection, keeper.worker_id)

    on(database, test)


def test_the_timekeeper_knows_how_far_each_partition_was_projected(database):
    async def test(connection):
        await projections.assign(connection, "frames", 3, "me")
        assert await projections.next_offsets(connection, "another") == {}
        assert (await projections.next_offsets(connection, "frames")).keys() <= {3}

    on(database, test)


def test_a_partition_that_nobody_ever_had_is_in_no_table(database):
    async def test(connection):
        assert await reading.next_offset(connection, "frames", 3) is None
        await projections.assign(connection, "frames", 3, "me")
        assert await reading.next_offset(connection, "frames", 3) == 0

    on(database, test)


def test_what_was_announced_together_is_read_together(database):
    scene = Scene(database)

    async def test(connection):
        look, _ = await scene.call("b", "look", "pay")
        found = await tool_calls.announced_at(connection, "b", look.requested_version)
        assert [(one.function_name, one.arguments) for one in found] == [
            ("look", {"n": 0}),
            ("pay", {"n": 1}),
        ]

    on(database, test)


def test_a_sitting_goes_on_while_a_run_or_a_call_is_open(database):
    scene = Scene(database)

    async def test(connection):
        assert not (await conversation_state.goes_on(connection, "a"))[0]
        await scene.ask("a")
        assert (await conversation_state.goes_on(connection, "a"))[0]
        await scene.fold(("a", INTERRUPTION))
        assert not (await conversation_state.goes_on(connection, "a"))[0]
        await scene.call("b", "look")
        assert (await conversation_state.goes_on(connection, "b"))[0]

    on(database, test)


def test_a_sitting_knows_how_many_could_answer(database):
    async def test(connection):
        assert await serving.live_inference_workers(connection) == 0
        await claims.register(connection, offer())
        await claims.register(connection, offer(kind="functions"))
        assert await serving.live_inference_workers(connection) == 1

    on(database, test)


def test_the_session_that_does_not_let_go_of_a_partition_is_ended_once(database):
    async def test(connection):
        owner = await psycopg.AsyncConnection.connect(database, autocommit=True)
        await projections.assign(owner, "frames", 0, "who froze")
        assert await projections.terminate_owner(connection, "frames", 0)
        with pytest.raises(psycopg.OperationalError):
            await owner.execute("SELECT 1")
        await owner.close()
        assert not await projections.terminate_owner(connection, "frames", 0)

    on(database, test)


def test_a_projector_finds_the_partitions_of_another_session_of_its_name(database):
    async def test(connection):
        async def namesake():
            return await projections.duplicate_instance(connection, "frames", "it", "it here")

        await projections.assign(connection, "frames", 0, "it here")
        await projections.assign(connection, "frames", 1, "nameless")
        assert await namesake() is None
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as other:
            await projections.assign(other, "frames", 0, "it there")
            assert await namesake() == ("it there", other.info.backend_pid)
        while await namesake() is not None:
            pass  # until the server has ended the session that was closed

    on(database, test)


def test_rows_left_in_the_outbox_are_known_by_pages_and_read_without_those_that_were_deleted(
    database, monkeypatch
):
    monkeypatch.setattr(outbox, "FETCH_ROWS", 3)
    monkeypatch.setattr(outbox, "PAGE_ROWS", 2)

    async def test(connection):
        places = [
            ("frames", 0, generation, offset, ordinal)
            for generation, offset, ordinal in ((0, 9, 0), (1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 3, 0))
        ]
        for place, to in zip(places, ("runs", "runs", "calls", "runs", "runs"), strict=True):
            await connection.execute(
                'INSERT INTO outbox (topic, partition, generation, "offset", ordinal, kind, to_topic, headers) '
                "VALUES (%s, %s, %s, %s, %s, 'effect', %s, '[]')",
                (*place, to),
            )
        assert await outbox.left_behind(connection, "frames", 1) == []
        old_runs, runs, calls, more_runs = await outbox.left_behind(connection, "frames", 0)
        await outbox.delete(connection, places[1:2])
        assert [one.place for one in (await outbox.read(connection, old_runs))[0]] == places[:1]
        assert [one.place for one in (await outbox.read(connection, runs))[0]] == places[3:4]
        assert [one.place for one in (await outbox.read(connection, calls))[0]] == places[2:3]
        assert [one.place for one in (await outbox.read(connection, more_runs))[0]] == places[4:]

    on(database, test)


@pytest.mark.regression("fault 224")
@pytest.mark.parametrize(
    "headers",
    [
        "7",
        "null",
        '{"a": "b"}',
        '["a", "b"]',
        '[["a"]]',
        '[["a", "b", "c"]]',
        '[[1, "b"]]',
        '[[null, "b"]]',
        '[["a", {}]]',
        '[["a", {"base64": 5}]]',
        '[["a", {"base64": "a"}]]',
        r'[["a", "\ud800"]]',
        r'[["\ud800", "b"]]',
        "[" * 3_000 + "]" * 3_000,
    ],
    ids=lambda headers: headers[:30],
)
def test_headers_in_the_outbox_that_nobody_can_read_stay_there_and_hold_up_no_other_row(database, headers):
    async def test(connection):
        for offset, written in enumerate(("[]", headers, '[["a", "b"]]')):
            await connection.execute(
                'INSERT INTO outbox (topic, partition, "offset", ordinal, kind, to_topic, headers) '
                "VALUES ('frames', 0, %s, 0, 'effect', 'runs', %s)",
                (offset, written),
            )
        [page] = await outbox.left_behind(connection, "frames", 0)
        found, unreadable = await outbox.read(connection, page)
        assert [(one.offset, one.headers) for one in found] == [(0, ()), (2, (("a", b"b"),))]
        assert [one.place for one in unreadable] == [("frames", 0, 1, 1, 0)]

    on(database, test)


def test_what_no_topic_takes_is_kept_once_with_its_headers(database):
    async def test(connection):
        row = outbox.OutboxRow(
            "frames", 0, 1, 7, 0, "forward", "frames", "ctx", b"ctx", b"large", (("a", b"a"),)
        )
        await dead_letters.keep_unsendable(connection, [row])
        await dead_letters.keep_unsendable(connection, [row])
        cursor = await connection.execute('SELECT code, "offset", headers FROM rejected_frames')
        assert await cursor.fetchall() == [("too_large", 7, [["a", "a"]])]

    on(database, test)


def test_the_tools_of_live_workers_are_on_offer_the_youngest_first(database):
    async def test(connection):
        def tool(name, **schema):
            return {"name": name, "schema": {"name": name, **schema}}

        for service, offered in ("one", [tool("a", v=1)]), ("two", [tool("a", v=2), {"name": "hidden"}]):
            await claims.register(
                connection, offer(kind="functions", service=service, offers={"functions": offered})
            )
        assert (await offers.tools_on_offer(connection))["a"]["v"] == 2
        assert (await offers.tools_on_offer(connection, ["one"]))["a"]["v"] == 1
        assert await offers.tools_on_offer(connection, []) == {}

    on(database, test)
