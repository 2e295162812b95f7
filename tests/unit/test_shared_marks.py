"""The marks that one gateway sets on its session, which count how often they were set."""

import asyncio
from collections import Counter

import pytest
from tests.support.turns import turns

from frameledger_services.gateway.shared_marks import SharedMarks
from frameledger_services.settings import Settings
from frameledger_services.store import client_marks, connections


class Session:
    """A session of PostgreSQL, which does what it was asked also if nobody waits for its answer any more."""

    def __init__(self):
        self.locks: Counter[int] = Counter()

    async def add(self, _, marks):
        self.locks.update(marks)
        await turns(2)

    async def remove(self, _, marks):
        self.locks.subtract(marks)
        await turns(2)

    async def execute(self, _):
        """Answer a ping."""

    async def close(self):
        self.locks.clear()


async def set_mark(marks):
    marks.add("followed", "thread")
    await marks.settle()


@pytest.mark.regression("gateway 131")
def test_a_mark_is_set_once_though_who_waited_for_it_is_cancelled(monkeypatch):
    """Set twice, it would remain when it is removed, and its client would count as one that still follows its run."""
    session = Session()

    async def connect(*_):
        return session

    monkeypatch.setattr(connections, "connect", connect)
    monkeypatch.setattr(client_marks, "add", session.add)
    monkeypatch.setattr(client_marks, "remove", session.remove)

    async def run():
        marks = SharedMarks(Settings(), None)
        marks.add("another", "stays")
        await marks.settle()
        waiting = asyncio.create_task(set_mark(marks))
        await turns(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        await marks.settle()
        marks.remove("followed", "thread")
        await marks.settle()
        assert sorted(session.locks.values()) == [0, 1]

    asyncio.run(run())
