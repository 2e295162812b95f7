"""Finds the leader of each partition of a topic, from the first broker that answers.

aiokafka asks one broker after the other, and waits long for a frozen one. Here all are asked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.protocol.metadata import MetadataRequest

from frameledger_services.event_log.failover import NO_LEADER
from frameledger_services.event_log.slow_requests import SlowRequests

AGAIN_SECONDS = 0.1
"""Seconds after which a request is repeated that a broker could not answer."""


class Leaders:
    """The leaders of a topic's partitions, as far as a client of aiokafka knows them."""

    def __init__(self, client: Any, topic: str, others: Sequence[Any]) -> None:
        """`others` are other views of the same cluster, aiokafka's `ClusterMetadata`, that are updated too."""
        self._client = client
        self._topic = topic
        self._clusters = (client.cluster, *others)
        self._partitions: dict[int, TopicPartition] = {}
        self._slow = SlowRequests()
        self._asking: set[int] = set()
        """Brokers whose answer is awaited."""

        self.tasks: asyncio.TaskGroup | None = None
        """The task group in which brokers are asked; to be set before the first request."""

    def of(self, partition: int) -> int | None:
        """Returns the broker that leads a partition; None if there is none, or it is not known."""
        # Called for each partition of each answer: creating the key would take longer than looking it up.
        if (place := self._partitions.get(partition)) is None:
            place = self._partitions[partition] = TopicPartition(self._topic, partition)
        leader: int | None = self._client.cluster.leader_for_partition(place)
        return None if leader == NO_LEADER else leader

    async def look_again(self, away: int | None = None) -> None:
        """Ask all brokers except `away`. Returns after `AGAIN_SECONDS`, whether or not one has answered."""
        # The answer is not awaited: aiokafka may ask the very broker that is down.
        self._client.force_metadata_update()
        self._ask_others(away)
        await asyncio.sleep(AGAIN_SECONDS)

    async def send(self, node: int, request: Any) -> Any:
        """Send a request to a broker and return the answer. While it is slow, the other brokers are asked for the
        current leaders.

        The request is not abandoned: its answer may be large, on a slow connection.
        """
        ask = partial(self._ask_others, node)
        self._slow.add(ask)
        try:
            return await self._client.send(node, request)
        finally:
            self._slow.remove(ask)

    def _ask_others(self, away: int | None) -> None:
        assert self.tasks is not None, "nobody reads yet"
        for broker in self._client.cluster.brokers():
            if broker.nodeId != away and broker.nodeId not in self._asking:
                request = self._learn_from(broker.nodeId)
                try:
                    self.tasks.create_task(request)
                except RuntimeError:
                    # The task group is ending and accepts no more tasks: the slow request will be cancelled in a
                    # moment.
                    request.close()
                    return
                self._asking.add(broker.nodeId)

    async def _learn_from(self, node: int) -> None:
        try:
            answer = await self._client.send(node, MetadataRequest([self._topic], False))
        except kafka_errors.KafkaError:
            return
        finally:
            self._asking.discard(node)
        if answer.brokers:
            for cluster in self._clusters:
                cluster.update_metadata(answer)
