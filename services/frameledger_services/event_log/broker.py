"""Describes and creates topics. Describing creates none, even with the broker's auto.create.topics.enable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest

from frameledger.errors import TransientError
from frameledger_services import access, descriptors
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.failover import is_connected
from frameledger_services.event_log.log_rate_limit import rate_limited
from frameledger_services.event_log.prepared_client import prepare
from frameledger_services.event_log.topic_request import TopicsRequest, topics_in
from frameledger_services.event_log.topics import TopicDescription, TopicSpec, missing
from frameledger_services.settings import Settings
from frameledger_services.transient import EventLogError

REQUEST_SECONDS = 15.0
READY_SECONDS = 30.0
NEXT_SECONDS = 3.0
"""Seconds after which another broker is asked, if one has not answered."""

_LOOK_AGAIN_SECONDS = 0.05


class BrokerError(EventLogError, TransientError):
    """The broker cannot be reached, or refuses a request. The message names the broker and the request.

    Remedy: Check that the broker runs at `FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS` and that the topics exist
    (`frameledger topics --create`), then try again.
    """


class Broker:
    """Requests about topics, on a connected client of aiokafka. `connect` creates both."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address
        self._latest: Any = None
        """The broker that answered last. It is asked again, because another one may not have its latest changes yet,
        such as a topic that was just created."""

    async def describe(self, names: Iterable[str], *, configs: bool = False) -> dict[str, TopicDescription]:
        """Returns those of the named topics that exist; `configs` includes their configuration.

        Some partitions may have no leader while their brokers are down. Raises `BrokerError`.
        """
        all_names = list(names)
        answer = await self._ask("describe topics", TopicsRequest(all_names))
        try:
            descriptions = {one.name: one for one in topics_in(answer)}
        except KafkaError as error:
            raise BrokerError(f"{self._address} does not describe topics: {_text_of(error)}") from error
        if not configs or not descriptions:
            return descriptions
        resources = [(int(ConfigResourceType.TOPIC), name, None) for name in descriptions]
        answer = await self._ask("describe the configuration of topics", DescribeConfigsRequest(resources))
        for code, message, _, name, entries in answer.resources:
            if for_code(code) is UnknownTopicOrPartitionError:
                # Deleted between the two requests.
                del descriptions[name]
            elif code:
                raise BrokerError(
                    f"{self._address} does not describe {name}: {message or for_code(code).description}"
                )
            else:
                description = descriptions[name]
                config = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
                descriptions[name] = replace(description, config=config)
        return descriptions

    async def find(self, name: str) -> TopicDescription | None:
        """Returns a topic with its configuration, or without it if we may not read it. Returns None if the topic does
        not exist. Raises `BrokerError`."""
        try:
            return (await self.describe([name], configs=True)).get(name)
        except BrokerError:
            # Reading the configuration needs a separate permission.
            return (await self.describe([name])).get(name)

    async def topic(self, name: str) -> TopicDescription:
        """Same as `find`, but raises `BrokerError` for a topic that does not exist."""
        if (description := await self.find(name)) is None:
            raise BrokerError(missing(name))
        return description

    async def create_missing(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Create the topics that do not exist. Returns the names of those that this call created.

        Called twice, or by two processes at once, it creates each topic once. Returns when all of `topics` have
        leaders. Raises `BrokerError`, also if a broker refuses one of them; others may have been created then.
        """
        existing = await self._with_leaders(topic.name for topic in topics)
        missing = [topic for topic in topics if topic.name not in existing]
        created = []
        if missing:
            answer = await self._ask("create topics", _creation(missing), to_controller=True)
            for name, code, message in answer.topic_errors:
                if code and for_code(code) is not TopicAlreadyExistsError:
                    raise BrokerError(
                        f"{self._address} does not create the topic {name}: {message or for_code(code).description}"
                    )
                if not code:
                    created.append(name)
            await self._until_ready(missing)
        return created

    async def _with_leaders(self, names: Iterable[str]) -> set[str]:
        """Returns those with leaders for all partitions; a topic that is being created may lack some."""
        descriptions = await self.describe(names)
        return {name for name, topic in descriptions.items() if not topic.leaderless}

    async def _until_ready(self, topics: Sequence[TopicSpec]) -> None:
        names = {topic.name for topic in topics}
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not names <= await self._with_leaders(names):
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except TimeoutError:
            raise BrokerError(
                f"{self._address} created topics, which had no leaders after {READY_SECONDS:.0f} s. "
                "`frameledger topics` shows when they have."
            ) from None

    async def _ask(self, what: str, request: Any, *, to_controller: bool = False) -> Any:
        """Returns the response of the first broker that sends one: some may be down, whatever the metadata says."""
        nodes = self._nodes(to_controller)
        failure: Exception | None = None
        for number, node in enumerate(nodes, 1):
            # If a broker is frozen, the next one is asked. The last one gets the client's own timeout.
            patience = None if to_controller or number == len(nodes) else NEXT_SECONDS
            try:
                async with asyncio.timeout(patience):
                    answer = await self._client.send(node, request)
                self._latest = node
                return answer
            except (KafkaError, NotImplementedError, TimeoutError) as error:
                failure = error
        which = f"none of its {len(nodes)} brokers answers; the last one: " if len(nodes) > 1 else ""
        problem = "no broker is known" if failure is None else _text_of(failure)
        raise BrokerError(f"{self._address} could not {what}: {which}{problem}") from failure

    def _nodes(self, to_controller: bool) -> list[Any]:
        cluster = self._client.cluster
        controller = cluster.controller if to_controller else None
        nodes = [one.nodeId for one in cluster.brokers()]
        # First the broker that answered last, which has what it has just created; then the connected ones.
        draw = {
            node: (node != self._latest, not is_connected(self._client, node), random.random())
            for node in nodes
        }
        nodes.sort(key=draw.__getitem__)
        if controller is not None:
            nodes = [controller.nodeId, *(node for node in nodes if node != controller.nodeId)]
        return nodes


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Broker]:
    """Yields a connected client for the duration of the block. Raises `BrokerError` if no broker answers."""
    options = access.kafka_options(settings)
    address = str(options["bootstrap_servers"])
    client = AIOKafkaClient(
        **options, client_id="frameledger-topics", request_timeout_ms=int(REQUEST_SECONDS * 1000)
    )
    prepare(client)
    try:
        try:
            with rate_limited():
                await client.bootstrap()
        except KafkaError as error:
            raise BrokerError(no_answer(settings)) from error
        yield Broker(client, address)
    finally:
        await closed(client.close())


def no_answer(settings: Settings) -> str:
    """Returns the message for the case that no broker answers. aiokafka logs the reason for each."""
    if shortage := descriptors.shortage():
        return f"No connection to Kafka at {settings.kafka_bootstrap_servers} could be opened. {shortage}"
    return (
        f"No Kafka answers at {settings.kafka_bootstrap_servers}. Is it running (`frameledger status`), and are "
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS and FRAMELEDGER_KAFKA_SECURITY_PROTOCOL "
        f"({settings.kafka_security_protocol}) right?"
    )


def _creation(topics: Sequence[TopicSpec]) -> Any:
    return CreateTopicsRequest(
        create_topic_requests=[
            # -1 is the broker's default.
            (topic.name, topic.partitions, topic.replication or -1, [], list(topic.config.items()))
            for topic in topics
        ],
        timeout=int(REQUEST_SECONDS * 1000),
        validate_only=False,
    )


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
