"""The relay: what the outbox holds goes to Kafka, and cancellations wait for nothing else."""

import asyncio

import pytest
from tests.bounds import IN_PROCESS

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


@pytest.mark.regression("trial m6")
def test_a_cancellation_is_sent_while_the_broker_has_not_acknowledged_what_was_sent_before(monkeypatch):
    removed: list[int] = []

    async def remove(_, places):
        removed.extend(place[3] for place in places)

    monkeypatch.setattr(outbox, "delete", remove)

    async def life():
        broker = Broker()
        relay = Relay(None, broker.send, nothing)
        running = [asyncio.create_task(relay.run())]
        relay.enqueue([row(1, "runs")])
        await broker.until(1)
        relay.enqueue([row(2, "cancellations"), row(3, "runs")])
        await broker.until(2)
        assert broker.sent == [1, 2]
        broker.acknowledges["runs"].set()
        await broker.until(3)
        drained = asyncio.create_task(relay.drained())
        relay.enqueue([row(4, "cancellations")])
        broker.acknowledges["cancellations"].set()
        await drained
        assert sorted(removed) == [1, 2, 3, 4]
        for one in running:
            one.cancel()
        await asyncio.wait(running)

    async def in_time():
        async with asyncio.timeout(IN_PROCESS):
            await life()

    asyncio.run(in_time())
