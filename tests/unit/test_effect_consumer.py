"""A member of a service's consumer group leaves it completely, even if its broker does not answer."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError

from frameledger_services.settings import Settings
from frameledger_services.work import effect_consumer
from frameledger_services.work.effect_consumer import EffectConsumer
from frameledger_services.work.kinds import RUNS


class Client:
    """aiokafka's consumer. It leaves its group first, and then closes its connections."""

    def __init__(self):
        self.may_leave, self.is_closed = asyncio.Event(), asyncio.Event()
        self.stopped = 0

    async def stop(self):
        self.stopped += 1
        await self.may_leave.wait()
        self.is_closed.set()


@pytest.mark.regression("fault 121")
def test_a_member_whose_broker_does_not_answer_is_not_waited_for_and_closed_all_the_same(monkeypatch):
    async def scenario():
        client = Client()
        monkeypatch.setattr(effect_consumer, "STOP_SECONDS", 0.01)
        monkeypatch.setattr(effect_consumer, "consumer", lambda *_, **__: client)
        member = EffectConsumer(Settings(), topic="topic", group="group", decode=RUNS.decode)
        await member.stop()
        assert not client.is_closed.is_set()
        await member.stop()
        client.may_leave.set()
        while effect_consumer._leaving:
            await asyncio.wait(effect_consumer._leaving)
        assert client.is_closed.is_set()
        assert client.stopped == 1

    asyncio.run(scenario())


def test_an_error_of_a_member_that_leaves_is_that_of_who_stops_it(monkeypatch):
    class Failing(Client):
        async def stop(self):
            raise ConnectionError

    async def scenario():
        monkeypatch.setattr(effect_consumer, "consumer", lambda *_, **__: Failing())
        member = EffectConsumer(Settings(), topic="topic", group="group", decode=RUNS.decode)
        with pytest.raises(ConnectionError):
            await member.stop()

    asyncio.run(scenario())


def test_offsets_of_a_partition_that_was_revoked_while_they_were_committed_are_not_committed_later(
    monkeypatch,
):
    """They are kept after the failure, but only those of partitions that are still assigned are committed."""
    partition, commits = TopicPartition("topic", 0), []

    class Rebalancing(Client):
        is_member = True

        def assignment(self):
            return {partition} if self.is_member else set()

        async def commit(self, offsets):
            commits.append(offsets)
            self.is_member = False
            await member.on_partitions_revoked({partition})
            raise CommitFailedError

    async def scenario():
        member._next[partition] = 7
        await member.commit()
        await member.commit()
        assert commits == [{partition: 7}]

    monkeypatch.setattr(effect_consumer, "consumer", lambda *_, **__: Rebalancing())
    member = EffectConsumer(Settings(), topic="topic", group="group", decode=RUNS.decode)
    asyncio.run(scenario())
