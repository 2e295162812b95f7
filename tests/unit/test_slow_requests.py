"""Slow requests: one timer for all, and a request that is abandoned for another leader."""

import asyncio
from typing import Any

import pytest
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from tests.support.loop_clock import LoopClock
from tests.support.turns import turns

from frameledger_services.event_log import failover, slow_requests
from frameledger_services.event_log.slow_requests import SlowRequests


def test_a_request_is_slow_after_its_time_and_again_at_this_interval_until_it_is_answered():
    async def scenario() -> None:
        clock, slow, asked = LoopClock(), SlowRequests(), list[str]()

        def first() -> None:
            asked.append("first")

        def second() -> None:
            asked.append("second")

        slow.add(first)
        clock.seconds += slow_requests.SLOW_SECONDS / 2
        slow.add(second)
        await turns()
        assert asked == []
        clock.seconds += slow_requests.SLOW_SECONDS / 2
        await turns()
        assert asked == ["first"]
        clock.seconds += slow_requests.SLOW_SECONDS
        await turns()
        assert asked == ["first", "second", "first"]
        slow.remove(first)
        clock.seconds += slow_requests.SLOW_SECONDS
        await turns()
        assert asked == ["first", "second", "first", "second"]
        slow.remove(second)
        clock.seconds += slow_requests.SLOW_SECONDS
        await turns()
        slow.add(first)
        clock.seconds += slow_requests.SLOW_SECONDS
        await turns()
        assert asked == ["first", "second", "first", "second", "first"]
        slow.remove(first)

    asyncio.run(scenario())


class Cluster:
    leader = 1

    def leader_for_partition(self, _: object) -> int:
        return self.leader


def client_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a producer's client whose broker 1 does not answer, and whose other brokers know `cluster.leader`."""

    async def send(node: object, request: object, **options: object) -> None:
        await asyncio.get_running_loop().create_future()

    def learned() -> asyncio.Future[bool]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(True)
        return future

    client = AIOKafkaClient()
    monkeypatch.setattr(client, "send", send)
    monkeypatch.setattr(client, "cluster", Cluster())
    monkeypatch.setattr(client, "force_metadata_update", learned)
    failover.resend_to_new_leaders(client)
    return client


REQUEST = ProduceRequest(None, -1, 1000, [("frames", [(0, b"")])])


def test_a_request_ends_as_at_a_timeout_when_its_broker_leads_no_longer(monkeypatch):
    async def scenario() -> None:
        client, clock = client_that_never_answers(monkeypatch), LoopClock()
        sending = asyncio.ensure_future(client.send(1, REQUEST))
        await turns()
        clock.seconds += slow_requests.SLOW_SECONDS
        await turns()
        assert not sending.done(), "its broker still leads"
        client.cluster.leader = 2
        clock.seconds += slow_requests.SLOW_SECONDS
        with pytest.raises(kafka_errors.RequestTimedOutError):
            await sending
        assert sending.cancelling() == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("beside_a_new_leader", [False, True])
def test_a_cancellation_from_outside_is_passed_on(monkeypatch, beside_a_new_leader):
    async def scenario() -> None:
        client, clock = client_that_never_answers(monkeypatch), LoopClock()
        sending = asyncio.ensure_future(client.send(1, REQUEST))
        await turns()
        if beside_a_new_leader:

            def lost(*_: object) -> bool:
                sending.cancel()
                return True

            monkeypatch.setattr(failover, "_has_lost_leadership", lost)
            clock.seconds += slow_requests.SLOW_SECONDS
        else:
            sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    asyncio.run(scenario())
