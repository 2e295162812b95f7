"""The cost of a session compared with the SDK's SQLite session, in one run (`make bench-bridges`)."""

import asyncio
from contextlib import closing
from statistics import median
from time import perf_counter

import pytest
from agents import SQLiteSession
from tests.bounds import ON_SERVERS
from tests.bridges.agents_sdk.test_on_servers import pipeline

from frameledger_services.agents_sdk import FrameledgerSession
from frameledger_services.client import Client

pytestmark = pytest.mark.servers

ITEMS = 200
ROUNDS = 30
WORDS = "Is there a night train to Brindle, and does it have a bed? " * 4


def some(number):
    return [{"role": ("user", "assistant")[one % 2], "content": f"{one}: {WORDS}"} for one in range(number)]


async def taken(work):
    times = []
    for _ in range(ROUNDS):
        since = perf_counter()
        await work()
        times.append((perf_counter() - since) * 1000)
    return median(times)


async def measured(session):
    """Returns median milliseconds to read 200 items, to add one, and to add 200."""
    await session.add_items(some(ITEMS))
    read = await taken(session.get_items)
    one = await taken(lambda: session.add_items(some(1)))
    many = await taken(lambda: session.add_items(some(ITEMS)))
    return read, one, many


def test_a_session_beside_the_sdk_s_own(settings, tmp_path):
    async def scene():
        async with pipeline(settings), Client(settings) as client:
            ours = await measured(FrameledgerSession("bench", client, within=ON_SERVERS))
            with closing(SQLiteSession("bench", tmp_path / "sessions.db")) as session:
                return ours, await measured(session)

    ours, theirs = asyncio.run(scene())
    print(f"\n{'ms, median of ' + str(ROUNDS):24}{'here':>10}{'SQLite':>10}")
    names = (f"get {ITEMS} items", "add 1 item", f"add {ITEMS} items")
    for name, here, there in zip(names, ours, theirs, strict=True):
        print(f"{name:24}{here:10.1f}{there:10.1f}")
    assert all(time > 0 for time in (*ours, *theirs))
