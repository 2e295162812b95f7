"""The relay publishes the outbox to Kafka, and delays no cancellation."""

import asyncio
from contextlib import asynccontextmanager

import psycopg
import pytest
from tests.bounds import IN_PROCESS
from tests.support.relay_database import Database
from tests.support.turns import turns

from frameledger_services.event_log.broker import BrokerError
from frameledger_services.projector import destination
from frameledger_services.projector.relay import Relay
from frameledger_services.store import outbox
from frameledger_services.store.outbox import OutboxRow


def row(number, topic):
    return OutboxRow("frames", 0, 0, number, 0, "effect", topic, "a", b"a", b"{}", ())


class Broker:
    """Acknowledges what goes to a topic when the test says so."""

    def __init__(self):
        self.sent = []
        self.acknowledges = {"runs": asyncio.Event(), "cancellations": asyncio.Event()}
        self._changed = asyncio.Event()

    async def send(self, rows):
        self.sent += [one.offset for one in rows]
        self._changed.set()
        await self.acknowledges[rows[0].to_topic].wait()
        return []

    async def until(self, *numbers):
        while not set(numbers) <= set(self.sent):
            self._changed.clear()
            await self._changed.wait()


async def nothing(_):
    pass


@asynccontextmanager
async def running(relay):
    task = asyncio.create_task(relay.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_rows_are_on_disk_before_they_are_sent_and_one_flush_serves_all_topics_that_wait():
    async def life():
        database, sent = Database(waits=True), list[tuple[int, int]]()

        async def send(rows):
            sent.extend((one.offset, database.ended) for one in rows)
            return []

        async with running(relay := Relay(database, send, nothing)):
            relay.enqueue([row(1, "runs")])
            await turns()
            assert (database.began, sent) == (1, [])
            # These were committed after the flush began.
            relay.enqueue([row(2, "calls")])
            relay.enqueue([row(3, "cancellations")])
            await turns()
            database.go_on()
            await turns()
            assert (database.began, sent) == (2, [(1, 1)])
            database.go_on()
            await turns()
            assert sorted(sent[1:]) == [(2, 2), (3, 2)]
            assert database.began == 2

    asyncio.run(life())


def test_nothing_is_sent_if_the_database_does_not_bring_it_to_disk():
    class Away(Database):
        async def execute(self, statement):
            await super().execute(statement)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    async def life():
        database, sent = Away(waits=True), []

        async def send(rows):
            sent.extend(rows)
            return []

        relay = Relay(database, send, nothing)
        task = asyncio.create_task(relay.run())
        relay.enqueue([row(1, "runs"), row(2, "cancellations")])
        await turns()
        database.go_on()
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(task, IN_PROCESS)
        assert sent == []

    asyncio.run(life())


@pytest.mark.regression("trial m6")
def test_a_cancellation_is_sent_while_the_broker_has_not_acknowledged_what_was_sent_before(monkeypatch):
    removed: list[int] = []

    async def remove(_, places):
        removed.extend(place[3] for place in places)

    monkeypatch.setattr(outbox, "delete", remove)

    async def life():
        broker = Broker()
        relay = Relay(Database(), broker.send, nothing)
        async with running(relay):
            relay.enqueue([row(1, "runs")])
            await broker.until(1)
            relay.enqueue([row(2, "cancellations"), row(3, "runs")])
            await broker.until(2)
            assert broker.sent == [1, 2]
            broker.acknowledges["runs"].set()
            await broker.until(3)
            drained = asyncio.create_task(relay.until_drained())
            relay.enqueue([row(4, "cancellations")])
            broker.acknowledges["cancellations"].set()
            await drained
            assert sorted(removed) == [1, 2, 3, 4]

    in_time(life())


class Outbox:
    """The table, in memory: pages are read from it."""

    def __init__(self, rows, page_bytes, monkeypatch):
        self.rows = rows
        self.largest = 0
        self.is_empty = asyncio.Event()
        monkeypatch.setattr(outbox, "PAGE_BYTES", page_bytes)
        monkeypatch.setattr(destination, "PAGE_BYTES", page_bytes)
        monkeypatch.setattr(outbox, "read", self.read)
        monkeypatch.setattr(outbox, "delete", self.delete)

    async def read(self, _, page):
        found = [
            one
            for one in self.rows
            if one.to_topic == page.to_topic
            and page.first <= (one.generation, one.offset, one.ordinal) <= page.last
        ]
        self.largest = max(self.largest, sum(one.size for one in found))
        return found, []

    async def delete(self, _, places):
        self.rows = [one for one in self.rows if one.place not in set(places)]
        if not self.rows:
            self.is_empty.set()


def pages_of(rows):
    pages = outbox.OutboxPages()
    for one in rows:
        pages.add(one)
    return pages


SIZE = row(0, "runs").size


@pytest.mark.regression("fault 24")
def test_rows_of_a_former_owner_are_read_page_by_page_and_sent_before_those_that_come_later(monkeypatch):
    """A topic that refuses them three times has them read again, one page at a time."""
    left = [row(number, "runs") for number in range(100)]
    table = Outbox(list(left), 7 * SIZE, monkeypatch)
    refusals = iter([None] * 3)
    sent: list[int] = []

    async def send(rows):
        if next(refusals, rows) is None:
            raise BrokerError("the topic is not there")
        sent.extend(one.offset for one in rows)
        return []

    async def life():
        relay = Relay(Database(), send, nothing)
        async with running(relay):
            relay.enqueue_pages(pages_of(left))
            table.rows.append(row(100, "runs"))
            relay.enqueue(table.rows[-1:])
            await table.is_empty.wait()

    in_time(life())
    assert sent == list(range(101))
    assert 0 < table.largest <= 7 * SIZE


@pytest.mark.regression("fault 24")
def test_what_is_committed_faster_than_the_broker_acknowledges_it_is_read_again_instead_of_kept(monkeypatch):
    rows = [row(number, "runs") for number in range(50)]
    table = Outbox(list(rows), 7 * SIZE, monkeypatch)

    async def life():
        broker = Broker()
        relay = Relay(Database(), broker.send, nothing)
        async with running(relay):
            relay.enqueue(rows[:1])
            await broker.until(0)
            relay.enqueue(rows[1:])
            kept = relay._destinations["runs"]._waiting
            assert sum(one.size for one in kept) <= 7 * SIZE
            broker.acknowledges["runs"].set()
            await relay.until_drained()
            assert broker.sent == list(range(50))

    in_time(life())
    assert table.rows == []


def test_a_page_whose_rows_were_published_by_another_owner_is_passed_over(monkeypatch):
    Outbox([], 7 * SIZE, monkeypatch)

    async def life():
        broker = Broker()
        relay = Relay(Database(), broker.send, nothing)
        async with running(relay):
            relay.enqueue_pages(pages_of([row(1, "runs")]))
            await relay.until_drained()
            assert broker.sent == []

    in_time(life())


def in_time(life):
    async def bounded():
        async with asyncio.timeout(IN_PROCESS):
            await life

    asyncio.run(bounded())
