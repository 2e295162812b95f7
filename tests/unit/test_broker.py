"""Which broker of a cluster is asked about topics."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError

from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import Broker

BROKERS = range(5)


class Client:
    """A client of a cluster whose brokers answer nothing of interest; those that are `away` do not answer."""

    def __init__(self):
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=node) for node in BROKERS], controller=None
        )
        self.away = set()
        self.answered = []

    async def send(self, node, _):
        if node in self.away:
            raise KafkaConnectionError
        self.answered.append(node)


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(broker, "is_connected", lambda *_: True)
    monkeypatch.setattr(broker, "topics_in", lambda _: [])
    return Client()


@pytest.mark.regression("fault 55")
def test_the_broker_that_answered_is_asked_again_for_others_may_not_know_yet(client):
    asked = Broker(client, "a cluster")
    for _ in range(20):
        asyncio.run(asked.describe(["orders"]))
    assert len(set(client.answered)) == 1


def test_another_one_is_asked_once_it_does_not_answer(client):
    asked = Broker(client, "a cluster")
    asyncio.run(asked.describe(["orders"]))
    first = client.answered[0]
    client.away = {first}
    for _ in range(20):
        asyncio.run(asked.describe(["orders"]))
    assert len(set(client.answered) - {first}) == 1
