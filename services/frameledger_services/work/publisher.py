"""Publishes a worker's frames, only while its lease is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger.record import LogPosition, outgoing
from frameledger_services import transient
from frameledger_services.event_log.frame_defaults import with_defaults
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import RecordRefusedError, TooLargeError
from frameledger_services.telemetry import tracing
from frameledger_services.work.lease import Lease

WITHIN = 30.0
"""Seconds within which the broker has to acknowledge."""

RETRY_SECONDS = 0.5
"""Seconds after which frames that the broker did not accept are published again."""


class WorkerPublisher:
    """Publishes as one worker. Frames of a context reach the log in the order of the calls.

    Frames in transit when the lease ends may still arrive: the fold distinguishes the workers by the attempt.
    """

    def __init__(self, producer: Producer, topic: str, lease: Lease, source: str) -> None:
        self._producer = producer
        self._topic = topic
        self._lease = lease
        self._source = source

    async def publish(
        self, context_id: str, *frames: AnyFrame, causation_id: UUID | str | None, within: float = WITHIN
    ) -> list[LogPosition]:
        """Publish frames. Returns the position of each when all in-sync replicas have them. A frame without an id gets
        a random one, and one without `produced_at` the current time. `causation_id` is the frame of the context that
        caused them; None only for frames that an application publishes on its own. They belong to the trace of the
        current span.

        Raises `LeaseLostError` when the lease ends, also during the publication; ValueError for a frame that cannot be
        encoded, before anything is published; `PublishError` and `BrokerError` as the producer does. Frames that have
        an id can safely be published again.
        """
        traceparent = tracing.current_traceparent()
        records = [
            outgoing(
                with_defaults(frame),
                ContextId(context_id),
                source=self._source,
                traceparent=traceparent,
                causation_id=causation_id,
            )
            for frame in frames
        ]
        async with self._lease.held():
            return await self._producer.publish(self._topic, records, within=within)


async def publish_until_accepted(
    publish: Callable[[], Awaitable[object]],
    *,
    on_refused: Callable[[Exception], None],
    on_outage: Callable[[Exception], None],
    refusals: int | None = None,
) -> None:
    """Publish frames that have ids, repeatedly until the broker accepts them. A repeated id counts once, and the caller
    publishes its later frames afterwards, so nothing counts twice or out of order. Frames that the broker refuses, for
    instance because a permission is missing, are published again too: an operator may grant it. The two functions log
    why the frames were not accepted.

    Raises `TooLargeError` and ValueError for frames that can never be accepted, `LeaseLostError`, and
    `RecordRefusedError` after this number of `refusals`; with None it retries until the lease ends.
    """
    refused = 0
    while True:
        try:
            await publish()
            return
        except TooLargeError:
            raise
        except RecordRefusedError as error:
            refused += 1
            on_refused(error)
            if refused == refusals:
                raise
        except transient.BROKER as error:
            on_outage(error)
        await asyncio.sleep(RETRY_SECONDS)
