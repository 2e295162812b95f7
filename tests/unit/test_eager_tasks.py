"""Our consumers in a program whose event loop begins tasks where they are created: `asyncio.eager_task_factory`, since
Python 3.12. aiokafka's own do not work there."""

import asyncio
from functools import partial
from types import coroutine

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.subscription_state import SubscriptionState
from tests.support.turns import turns

from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import _Fetcher, _GroupCoordinator


def eager(begun_here, loop, begun, **options):
    """A task factory for any Python that begins a coroutine before it returns its task. `begun_here` are the names of
    those that it was given."""
    begun_here.append(begun.__name__)
    try:
        waits_for = begun.send(None)
    except StopIteration:
        waits_for = None

    @coroutine
    def rest():
        awaited = waits_for
        while awaited is not None:
            try:
                step, what = begun.send, (yield awaited)
            except BaseException as error:
                step, what = begun.throw, error
            try:
                awaited = step(what)
            except StopIteration:
                return

    async def go_on():
        await rest()

    return asyncio.Task(go_on(), loop=loop, **options)


@pytest.mark.regression("worker 174")
def test_a_consumer_begins_its_routines_when_it_is_whole_and_each_fetch_when_it_is_noted():
    """Otherwise a member of a group never joins it, and a consumer sends one fetch after the other."""
    begun: list[str] = []
    sent: list[int] = []

    class Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka is untyped
        async def send(self, node, *_):
            sent.append(node)
            await asyncio.Event().wait()

    async def run():
        asyncio.get_running_loop().set_task_factory(partial(eager, begun))
        client, subscriptions, partition = Client(), SubscriptionState(), TopicPartition("topic", 0)
        client.cluster.leader_for_partition = lambda _: 1
        fetcher = _Fetcher(client, subscriptions)
        coordinator = _GroupCoordinator(client, SubscriptionState(), group_id="group")
        subscriptions.assign_from_user([partition])
        subscriptions.subscription.assignment.state_value(partition).seek(0)
        await turns()
        assert sent == [1]
        assert not coordinator._coordination_task.done()
        await closed(coordinator.close())
        await fetcher.close()

    asyncio.run(run())
    assert not {"_proc_fetch_request", "_coordination_routine"} & set(begun)
