"""On a real Kafka and a real PostgreSQL: a session after a crash at each step, and the facts of runs in SQL."""

import asyncio
import json
import os
from contextlib import asynccontextmanager, closing
from typing import Any

import psycopg
import pytest
from agents import SQLiteSession
from tests.bounds import ON_SERVERS
from tests.bridges.agents_sdk import killable_app
from tests.bridges.agents_sdk.apps import TURNS, App
from tests.bridges.agents_sdk.killable_app import STRANGE, counting, play
from tests.support.pages import ROOT, blocks
from tests.support.processes import Process
from tests.support.projecting import make_topics, projecting

from frameledger_services.agents_sdk import FrameledgerRunHooks, FrameledgerSession
from frameledger_services.agents_sdk.items import item_of
from frameledger_services.client import Client

pytestmark = pytest.mark.servers

PAGE = ROOT / "infra" / "docs" / "how-to" / "frameworks.md"
CHANGES = (
    "LLMMirrorFrame LLMMessagesAppendFrame",
    "LLMMirrorFrame LLMMessageRewriteFrame",
    "LLMMirrorFrame LLMMessagesUpdateFrame",
)
MARK = {"role": "user", "content": "after the crash"}


@asynccontextmanager
async def pipeline(settings):
    """Topics and a running projector."""
    await make_topics(settings)
    async with asyncio.timeout(2 * ON_SERVERS), projecting(settings):
        yield


def in_sql(settings, question, *parameters):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute(question, parameters).fetchall()


async def what_sqlite_held():
    """Returns the items of the SDK's SQLite session before the first and after each change of the script."""
    held = ["[]"]

    kind: Any = counting(SQLiteSession)

    class Recording(kind):
        async def changed(self):
            await super().changed()
            held.append(json.dumps(await self.get_items()))

    with closing(Recording("s")) as session:
        await play(session)
    return held


def places(steps):
    """The steps at which the application dies, from 1: all with `BRIDGE_KILLS=all`, as in `make chaos`, otherwise the
    first step of each name in a read and in a change of each kind."""
    if os.environ.get("BRIDGE_KILLS") == "all":
        return range(1, len(steps) + 1)
    first = {step: place for place, step in reversed([*enumerate(steps, start=1)])}
    assert {what for _, what in first} == {"a read", *CHANGES}
    return sorted(first.values())


@pytest.mark.long
def test_killed_at_any_step_a_session_holds_what_was_changed_and_no_more(settings):
    async def killed(client, step):
        session_id = f"killed-{step}"
        with Process(killable_app.run, settings, session_id, step) as app:
            told = await asyncio.to_thread(app.hear)
            if step is None:
                return told
            assert await asyncio.to_thread(app.ended) == -9
        name, changes = told
        session = FrameledgerSession(session_id, client, within=ON_SERVERS)
        # After all frames that the dead process had published.
        await session.add_items([MARK])
        *items, mark = await session.get_items()
        assert mark == MARK
        return name, changes, json.dumps(items)

    async def scene():
        held = await what_sqlite_held()
        async with pipeline(settings), Client(settings) as client:
            steps = await killed(client, None)
            assert len(steps) > 40
            for step in places(steps):
                name, changes, items = await killed(client, step)
                # It was on the log before the change was reported: it counts.
                made = held[changes + 1] if name == "is on the log" else None
                assert items in ((made,) if made else (held[changes], held[changes + 1])), (step, name)
                if name == "asks":
                    assert items == held[changes], step
            assert json.dumps(await FrameledgerSession("killed-None", client).get_items()) == held[-1]

    asyncio.run(scene())


def test_sessions_hold_what_they_held_at_each_of_their_versions_and_apart(settings):
    async def scene():
        async with pipeline(settings), Client(settings) as ours, Client(settings) as theirs:
            one = FrameledgerSession("one", ours, within=ON_SERVERS)
            other = FrameledgerSession("other", theirs, within=ON_SERVERS)
            again = FrameledgerSession("one", theirs, within=ON_SERVERS)
            # Concurrently in two programs: each addition is atomic.
            parts = [[{"role": "user", "content": f"{number}"}, *STRANGE[:1]] for number in range(6)]
            await asyncio.gather(
                *((one, again)[number % 2].add_items(part) for number, part in enumerate(parts)),
                other.add_items(STRANGE),
            )
            items = await one.get_items()
            pairs = [json.dumps(items[place : place + 2]) for place in range(0, 12, 2)]
            assert sorted(pairs) == sorted(map(json.dumps, parts))
            assert json.dumps(await other.get_items()) == json.dumps(STRANGE)
            held = {await ours.newest_version("one"): items}
            adding = asyncio.ensure_future(again.add_items(STRANGE))
            await asyncio.wait([adding], timeout=0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            held[await ours.newest_version("one")] = [*items, *STRANGE]
            await one.pop_item()
            held[await ours.newest_version("one")] = [*items, *STRANGE[:-1]]
            await again.clear_session()
            held[await ours.newest_version("one")] = []
            assert len(held) == 4
            for version, then in held.items():
                stored = await theirs.context("one", version)
                there = [item_of(message) for message in stored.context.to_wire()["messages"]]
                assert json.dumps(there) == json.dumps(then)
            return held

    held = asyncio.run(scene())
    for version, items in held.items():
        [(messages,)] = in_sql(settings, "SELECT context_at('one', %s) -> 'messages'", version)
        assert [item_of(message) for message in messages] == items


def test_sql_has_the_runs_and_calls_of_an_application_as_of_any_other(settings):
    async def scene():
        with psycopg.connect(settings.database_url.get_secret_value()) as connection:
            connection.execute(
                "INSERT INTO prices (provider, model, valid_from, currency, input, output) "
                "VALUES ('test', 'scripted-1', '2020-01-01', 'EUR', 1000000, 1000000)"
            )
        async with pipeline(settings), Client(settings) as client:
            session = FrameledgerSession("ticket-7", client, within=ON_SERVERS)
            hooks = FrameledgerRunHooks("ticket-7", client)
            app = App(session, hooks)
            for kind in TURNS:
                await app.turn(kind, "secret" if kind == "tripwire" else f"A question, {kind}")
            assert await hooks.flush(ON_SERVERS)
            assert hooks.lost == 0
            # After the last frame of the hooks.
            await session.add_items([MARK])
            return await session.get_items()

    items = asyncio.run(scene())
    runs = in_sql(
        settings,
        "SELECT status, finish_reason, error_code, provider, model, output_tokens, cost IS NOT NULL "
        "FROM facts_runs WHERE context_id = 'ticket-7' ORDER BY requested_version",
    )
    ended = [run[1] for run in runs if run[0] == "ended"]
    # Plain; a call; one that fails; two before and one after a handoff and its call; and each before a call that ends
    # the run.
    assert ended == [
        "stop",
        *["tool_calls", "stop"] * 2,
        "tool_calls",
        "tool_calls",
        "stop",
        *["tool_calls"] * 2,
    ]
    assert sorted(run[:3] for run in runs if run[0] != "ended") == [
        ("failed", None, "InputGuardrailTripwireTriggered"),
        ("failed", None, "ModelDownError"),
        ("interrupted", None, None),
    ]
    assert {run[3:5] for run in runs} == {("test", "scripted-1")}
    assert all((run[0] == "ended") == (run[5] is not None) == run[6] for run in runs)
    calls = in_sql(
        settings,
        "SELECT function_name, status, synchronous FROM facts_calls "
        "WHERE context_id = 'ticket-7' ORDER BY requested_version",
    )
    assert calls == [
        ("order_status", "done", True),
        ("broken", "failed", True),
        ("order_status", "done", True),
        ("never_ends", "cancelled", True),
        ("breaks_the_run", "failed", True),
    ]
    [(interruptions,)] = in_sql(settings, "SELECT count(*) FROM interruptions WHERE context_id = 'ticket-7'")
    assert interruptions == 2
    # The session has all messages: none twice, none from the hooks.
    [(messages,)] = in_sql(settings, "SELECT context_at('ticket-7') -> 'messages'")
    assert [item_of(message) for message in messages] == items
    for question in ("SELECT count(*) FROM outbox", "SELECT count(*) FROM waiting"):
        assert in_sql(settings, question) == [(0,)]
    assert in_sql(settings, "SELECT count(*) FROM frames WHERE outcome = 'ignored'") == [(0,)]
    for block in blocks(PAGE):
        if block.language == "sql" and "ticket-7" in block.text:
            for question in filter(str.strip, block.text.split(";")):
                assert in_sql(settings, question), question
