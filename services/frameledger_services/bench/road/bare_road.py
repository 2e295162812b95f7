"""The yardstick of latency: one script in one process, without guarantees. Run as a process.

It awaits a send (acks=all, no linger), consumes the value, and executes one INSERT and COMMIT. The values of one poll
are one transaction, so it groups them when they come faster than commits. Its arguments are the number of values, the
number per second (0: the next one when the last is committed) and the bytes of each. It writes the seconds from just
before each send to the return of the COMMIT, in order, as JSON on standard output.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from psycopg import AsyncConnection

from frameledger.frames import encode_frame
from frameledger_services import access
from frameledger_services.bench.road.pace import at_pace
from frameledger_services.bench.road.stream import mixture
from frameledger_services.database_types import Connection
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings

PARTITION = 0


class BareRoad:
    """Sends values to one partition, each with its number as its key, and stores them as rows of `bare_road`."""

    def __init__(self, producer: Any, consumer: Any, connection: Connection, topic: str) -> None:
        self._producer = producer
        self._consumer = consumer
        self._connection = connection
        self._topic = topic
        self._committed: dict[int, asyncio.Future[float]] = {}

    async def send(self, numbered: tuple[int, bytes]) -> float:
        """Send a value and wait until it is committed. Returns the seconds that this took."""
        number, value = numbered
        committed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._committed[number] = committed
        start = time.perf_counter()
        await self._producer.send_and_wait(self._topic, value, key=b"%d" % number, partition=PARTITION)
        return await committed - start

    async def store(self) -> None:
        """Consume until cancelled."""
        while True:
            fetched = await self._consumer.getmany(timeout_ms=500)
            for records in fetched.values():
                async with self._connection.cursor() as cursor:
                    await cursor.executemany(
                        "INSERT INTO bare_road (value) VALUES (%s)", [(record.value,) for record in records]
                    )
                await self._connection.commit()
                now = time.perf_counter()
                for record in records:
                    self._committed.pop(int(record.key)).set_result(now)


async def drive(settings: Settings, values: Sequence[bytes], rate: int) -> list[float]:
    """Send all values through a new `BareRoad`."""
    options, topic = access.kafka_options(settings), TopicNames(settings.topic_prefix).frames
    producer = AIOKafkaProducer(**options, acks="all", linger_ms=0)
    consumer = AIOKafkaConsumer(**options, auto_offset_reset="earliest", enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    consumer.assign([TopicPartition(topic, PARTITION)])
    try:
        async with await AsyncConnection.connect(access.database_address(settings)) as connection:
            await connection.execute(
                "CREATE TABLE bare_road (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value bytea)"
            )
            await connection.commit()
            road = BareRoad(producer, consumer, connection, topic)
            storing = asyncio.create_task(road.store())
            try:
                return await at_pace(road.send, enumerate(values), rate)
            finally:
                storing.cancel()
                await asyncio.wait([storing])
    finally:
        await consumer.stop()
        await producer.stop()


if __name__ == "__main__":
    count, rate, size = map(int, sys.argv[1:])
    values = [encode_frame(frame) for _, frame in mixture(count, size)]
    print(json.dumps(asyncio.run(drive(Settings.from_env(look_for_running=False), values, rate))))
