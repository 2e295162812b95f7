"""The marks of a gateway on its session, which are counted."""

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
        """The server notices later, and keeps the locks until then."""


@pytest.fixture
def session(monkeypatch):
    session = Session()

    async def connect(*_):
        return session

    monkeypatch.setattr(connections, "connect", connect)
    monkeypatch.setattr(client_marks, "add", session.add)
    monkeypatch.setattr(client_marks, "remove", session.remove)
    return session


async def set_mark(marks):
    marks.add("followed", "thread")
    await marks.settle()


@pytest.mark.regression("gateway 131")
def test_a_mark_is_set_once_though_who_waited_for_it_is_cancelled(session):
    """Set twice, it would remain when it is removed, and its client would count as one that still follows its run."""

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


@pytest.mark.regression("gateway 136")
def test_the_last_mark_is_gone_before_its_session_is_closed(session):
    """Whoever looks right after that, as the gateway does that interrupts a run, does not find it."""

    async def run():
        marks = SharedMarks(Settings(), None)
        await set_mark(marks)
        marks.remove("followed", "thread")
        # The task that keeps the marks comes first.
        await turns(9)
        await marks.settle()
        assert sorted(session.locks.values()) == [0]

    asyncio.run(run())
