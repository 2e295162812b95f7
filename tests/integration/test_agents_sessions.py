"""Sessions of the OpenAI Agents SDK on real servers return what was added, also with two users of one session."""

import asyncio

import psycopg
from tests.bounds import ON_SERVERS
from tests.support.killable import projector
from tests.support.pages import ROOT, blocks
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.unit.test_agents_session import ITEMS

from frameledger_services.agents_sdk import FrameledgerSession
from frameledger_services.client import Client

SESSION = "ticket-7"
PAGE = ROOT / "infra" / "docs" / "how-to" / "frameworks.md"


def test_items_come_out_as_they_went_in_and_two_who_pop_at_once_get_one_each(pipeline):
    async def use(settings):
        async with Client(settings) as ours, Client(settings) as theirs:
            one = FrameledgerSession(SESSION, ours, within=ON_SERVERS)
            other = FrameledgerSession(SESSION, theirs, within=ON_SERVERS)
            assert await one.get_items() == []
            await one.add_items(ITEMS[:4])
            await other.add_items(ITEMS[4:])
            everything = await one.get_items()
            newest = await other.get_items(2)
            popped = await asyncio.gather(one.pop_item(), other.pop_item())
            left = await one.get_items()
            version = await ours.newest_version(SESSION)
            await other.clear_session()
            assert await one.get_items() == []
            assert await one.pop_item() is None
            before = await ours.context(SESSION, version)
            return everything, newest, popped, left, before

    with projector(pipeline.settings) as running:
        everything, newest, popped, left, before = asyncio.run(use(pipeline.settings))
        pipeline.check(running)
    assert everything == ITEMS
    assert newest == ITEMS[-2:]
    assert sorted(map(ITEMS.index, popped)) == [len(ITEMS) - 2, len(ITEMS) - 1]
    assert left == ITEMS[:-2]
    # What was cleared stays readable at the version that had it.
    assert len(before.context.messages) == len(left)
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
        [shown] = [block.text for block in blocks(PAGE) if block.language == "sql" and SESSION in block.text]
        for question in filter(str.strip, shown.split(";")):
            # Without hooks there are no runs; tests/bridges has them.
            rows = connection.execute(question.encode()).fetchall()
            assert bool(rows) == ("facts_messages" in question or "context_at" in question), question
            if "facts_messages" in question:
                # The first part of an item with parts, and the whole text of a plain one.
                assert {"a part", "Yes", "Is there a night train?"} <= {row[-1] for row in rows}
