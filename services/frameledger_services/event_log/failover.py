"""Failover from a frozen broker, whose connections stay open and do not answer.

aiokafka gives every answer the timeout of the slowest one, asks one broker after the other for metadata, and opens one
connection at a time, so one frozen broker blocks the others. Here connecting has a short timeout, the next broker is
asked for metadata before the previous one has answered, and a silent leader is left for its successor as soon as that
is known. If no known broker answers, the bootstrap servers are asked again: aiokafka does so only once, and would never
find a cluster whose brokers have changed their addresses. The methods of one client are replaced, not those of its
class.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import CloseReason, create_conn
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest

from frameledger_services.event_log.slow_requests import SlowRequests

CONNECT_SECONDS = 5.0
"""The timeout for opening a connection, and for the first answer from a bootstrap server."""

COORDINATOR_SECONDS = 15.0
"""The timeout for an answer of a group's coordinator. It answers a member that joins when all members have joined, or
after the session timeout of 10 s. A member that waits longer for a frozen coordinator is dropped by the next one."""

NEXT_SECONDS = 1.0
"""Seconds after which the next broker is asked for metadata, if the previous one has not answered."""

NO_LEADER = -1
"""The leader of a partition that has none."""

_CONNECTING = (
    "client_id",
    "request_timeout_ms",
    "ssl_context",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
)
"""The options with which a client of aiokafka connects, which are also its attributes."""


def enable_failover(client: AIOKafkaClient) -> None:
    """Give a client that is not connected yet the short connection timeout, and make it accept metadata from whichever
    broker answers first. Other requests keep the client's request timeout."""
    patience = client._request_timeout_ms / 1000
    # aiokafka uses this for opening a connection and for each answer on it.
    client._request_timeout_ms = int(min(CONNECT_SECONDS, patience) * 1000)
    connect = client._get_conn
    locks: defaultdict[Any, asyncio.Lock] = defaultdict(asyncio.Lock)

    @wraps(connect)
    async def connected(node: Any, *, group: Any = ConnectionGroup.DEFAULT, **options: Any) -> Any:
        # It has one lock for all connections, and acquires it without awaiting anything before.
        client._get_conn_lock_value = locks[node, group]
        connection = await connect(node, group=group, **options)
        if connection is not None:
            coordinates = group == ConnectionGroup.COORDINATION
            connection._request_timeout = min(COORDINATOR_SECONDS, patience) if coordinates else patience
        return connection

    client._get_conn = connected
    learn, learning = client._metadata_update, _MetadataRequests(client)

    @wraps(learn)
    async def learned(cluster: Any, topics: Any) -> bool:
        # While no broker is known there is only the bootstrap connection.
        knows_brokers = client.cluster.brokers()
        return await (learning.learn(cluster, topics) if knows_brokers else learn(cluster, topics))

    client._metadata_update = learned
    close = client.close

    @wraps(close)
    async def closed() -> None:
        if client._sync_task is not None:
            # Before `end`, since it begins requests.
            client._sync_task.cancel()
        await learning.end()
        await close()

    client.close = closed


class _MetadataRequests:
    """Asks brokers for metadata, several at once if they are slow."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._requests: set[asyncio.Task[Any]] = set()
        """Requests are not cancelled when another broker has answered, because that would close their connections. Each
        ends at its timeout."""

    async def end(self) -> None:
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    async def learn(self, cluster: Any, topics: Any) -> bool:
        """Returns whether a broker answered. If so, `cluster` has its answer."""
        request = MetadataRequest(list(topics) if topics else None)
        answer = await self._first(partial(self._answer, node, request) for node in self._nodes())
        if answer is None:
            # Before anything is read from it, as after each outage, the reader checks which cluster this is, and
            # whether its topic is the one that was read.
            hosts = self._client.hosts
            answer = await self._first(
                partial(self._bootstrap, host, port, request) for host, port, _ in hosts
            )
        if answer is None:
            cluster.failed_update(None)
            return False
        # A broker that knows no brokers is starting up.
        if answer.brokers:
            cluster.update_metadata(answer)
        return bool(answer.brokers)

    async def _first(self, asks: Iterable[Callable[[], Coroutine[Any, Any, Any]]]) -> Any:
        """Ask one after the other, each one when the previous ones have not answered for a while. Returns the first
        answer; None if none answers."""
        left = list(asks)
        pending: set[asyncio.Task[Any]] = set()
        while left or pending:
            if left:
                pending.add(self._begin(left.pop(0)()))
            done, pending = await asyncio.wait(
                pending, timeout=NEXT_SECONDS if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for answer in (task.result() for task in done):
                if answer is not None:
                    return answer
        return None

    def _begin(self, request: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    async def _answer(self, node: Any, request: MetadataRequest) -> Any:
        with suppress(kafka_errors.KafkaError, TimeoutError):
            if (connection := await self._client._get_conn(node)) is not None:
                return await connection.send(request)
        return None

    async def _bootstrap(self, host: str, port: int, request: MetadataRequest) -> Any:
        client = self._client
        options = {name: getattr(client, f"_{name}") for name in _CONNECTING}
        with suppress(OSError, kafka_errors.KafkaError, TimeoutError):
            connection = await create_conn(host, port, max_idle_ms=client._connections_max_idle_ms, **options)
            try:
                return await connection.send(request)
            finally:
                connection.close()
        return None

    def _nodes(self) -> list[Any]:
        """Returns the brokers, connected ones first: they are up, or were a moment ago."""
        nodes = [one.nodeId for one in self._client.cluster.brokers()]
        random.shuffle(nodes)
        return sorted(nodes, key=lambda node: not is_connected(self._client, node))


def is_connected(client: AIOKafkaClient, node: Any) -> bool:
    return open_connection(client, node) is not None


def open_connection(client: AIOKafkaClient, node: Any, group: Any = ConnectionGroup.DEFAULT) -> Any:
    """Returns the open connection to a broker; None if there is none."""
    connection = client._conns.get((node, group))
    return connection if connection is not None and connection.connected() else None


def resend_to_new_leaders(client: AIOKafkaClient) -> None:
    """Make a producer's client send records to their new leader if the former one has not answered. Only for an
    idempotent producer, because the former leader may have written them too."""
    send, slow = client.send, SlowRequests()

    @wraps(send)
    async def sent(node: Any, request: Any, **options: Any) -> Any:
        if not isinstance(request, ProduceRequest):
            return await send(node, request, **options)
        sending = _Sending(client, node, request)
        ask = sending.ask
        slow.add(ask)
        try:
            return await send(node, request, **options)
        except asyncio.CancelledError:
            if not sending.was_left():
                raise
        finally:
            slow.remove(ask)
            sending.is_over = True
        # As aiokafka does after its timeout: it connects again, and sends the records again.
        if (connection := open_connection(client, node)) is not None:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
        raise kafka_errors.RequestTimedOutError

    client.send = sent


class _Sending:
    """A request with records that is being sent, by the current task. It ends, as at a timeout, when another leader is
    known; `asyncio.timeout` does the same, and takes longer."""

    def __init__(self, client: AIOKafkaClient, node: Any, request: ProduceRequest) -> None:
        self._client = client
        self._node = node
        self._request = request
        self._task = asyncio.current_task()
        self._cancellations = 0 if self._task is None else self._task.cancelling()
        self._is_left = False
        self.is_over = False

    def ask(self) -> None:
        """Ask for the current leaders, and leave this one if it is none any more."""
        self._client.force_metadata_update().add_done_callback(self._look)

    def was_left(self) -> bool:
        """Returns whether its task was cancelled for this reason only."""
        return self._is_left and self._task is not None and self._task.uncancel() <= self._cancellations

    def _look(self, _: object) -> None:
        if (
            not (self.is_over or self._is_left)
            and self._task is not None
            and _has_lost_leadership(self._client, self._node, self._request)
        ):
            self._is_left = True
            self._task.cancel()


def _has_lost_leadership(client: AIOKafkaClient, node: Any, request: ProduceRequest) -> bool:
    """Returns whether some of a request's partitions have another leader now."""
    leaders = {
        client.cluster.leader_for_partition(TopicPartition(topic, partition))
        for topic, partitions in request._topics
        for partition, _ in partitions
    }
    return not leaders <= {node, None, NO_LEADER}
