"""How a worker speaks: frames onto the log, within its lease only."""

from __future__ import annotations

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger.record import Place, outgoing
from frameledger_services.event_log.frame_defaults import with_defaults
from frameledger_services.event_log.producer import Producer
from frameledger_services.work.lease import Lease

WITHIN = 30.0
"""Seconds that the broker may take to acknowledge."""


class Publisher:
    """Publishes as one worker. Frames of a context lie in the order in which they were given.

    What is on its way when the lease ends may still arrive: the fold knows by its attempt whose it is.
    """

    def __init__(self, producer: Producer, topic: str, lease: Lease, source: str) -> None:
        self._producer = producer
        self._topic = topic
        self._lease = lease
        self._source = source

    async def publish(self, context_id: str, *frames: AnyFrame, within: float = WITHIN) -> list[Place]:
        """Publish frames; where each lies, once all in-sync replicas have them. What has no id gets a random one, and
        what has no `produced_at` the time.

        Raises `LeaseLostError` once the lease is over, also in the middle; ValueError for a frame that nobody could
        read, before anything is published; `PublishError` and `BrokerError` as the producer does. What has an id can
        be published again.
        """
        records = [
            outgoing(with_defaults(frame), ContextId(context_id), source=self._source) for frame in frames
        ]
        async with self._lease.held():
            return await self._producer.publish(self._topic, records, within=within)
