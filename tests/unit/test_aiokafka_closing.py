"""A cancellation during the close of an aiokafka client is not lost, and the client itself causes none."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.group_coordinator import NoGroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import NodeNotReadyError
from aiokafka.structs import BrokerMetadata
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import _Fetcher
from frameledger_services.event_log.failover import enable_failover


async def closing_as_aiokafka_does():
    """As its client's `close`: the suppressed cancellation may be of the task, or of who closes."""
    routine = asyncio.create_task(asyncio.Event().wait())
    await turns(1)
    routine.cancel()
    with suppress(asyncio.CancelledError):
        await routine


def test_closing_returns_when_nobody_is_cancelled():
    asyncio.run(closed(closing_as_aiokafka_does()))


@pytest.mark.regression("fault 133")
def test_a_client_that_is_closed_as_soon_as_it_was_started_cancels_nobody():
    """As when the database is found to be away right behind the start of a projector's client."""

    async def run():
        coordinator = NoGroupCoordinator(NoBroker(), SubscriptionState())
        await closed(coordinator.close())
        assert coordinator._reset_committed_task is None

    asyncio.run(run())


@pytest.mark.parametrize("after", range(6))
def test_who_is_cancelled_while_closing_does_not_go_on(after):
    went_on = []

    async def close_and_go_on():
        await closed(closing_as_aiokafka_does())
        went_on.append(True)
        await asyncio.Event().wait()

    async def run():
        task = asyncio.create_task(close_and_go_on())
        await turns(after)
        task.cancel()
        async with asyncio.timeout(IN_PROCESS):
            await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert went_on == [] or after == 5


def test_a_time_limit_that_passes_while_closing_is_told():
    async def run():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await closed(closing_as_aiokafka_does())

    asyncio.run(run())


class NoBroker:
    """A client whose broker is away."""

    _loop = None
    cluster = ClusterMetadata()
    _metadata_max_age_ms = 0

    async def send(self, node_id, request):
        raise NodeNotReadyError


class Asked:
    """A fetch that asks for nothing."""

    topics = ()


@pytest.mark.regression("journey 30")
@pytest.mark.parametrize("before", range(2))
@pytest.mark.parametrize("after", range(3))
def test_a_consumer_whose_fetch_waits_for_a_broker_that_is_away_is_closed_without_an_error(before, after):
    async def run():
        fetcher = _Fetcher(NoBroker(), SubscriptionState())
        await turns(before)
        pausing = asyncio.create_task(fetcher._proc_fetch_request(None, 1, Asked))
        fetcher._pending_tasks.add(pausing)
        await turns(after)
        async with asyncio.timeout(IN_PROCESS):
            await closed(fetcher.close())
        assert pausing.done()

    asyncio.run(run())


@pytest.mark.regression("fault 329")
def test_a_client_that_is_closed_connects_to_no_broker_any_more():
    """Its own task may be about to ask for metadata while the requests for earlier metadata are ended."""
    connecting = []

    async def connect(node, **_):
        connecting.append(node)
        try:
            await asyncio.Event().wait()
        finally:
            connecting.remove(node)

    async def run():
        client = AIOKafkaClient()
        client.cluster._brokers = {1: BrokerMetadata(1, "127.0.0.1", 1, None)}
        client._get_conn = connect
        enable_failover(client)
        # A request to a broker that is slow, while another one has answered.
        earlier = asyncio.create_task(client._metadata_update(client.cluster, []))
        await turns()
        earlier.cancel()
        client._sync_task = asyncio.create_task(client._md_synchronizer())
        await turns()
        assert connecting == [1]
        client.force_metadata_update()
        await closed(client.close())
        await turns()
        assert connecting == []

    asyncio.run(run())
