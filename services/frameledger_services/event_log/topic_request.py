"""Kafka's Metadata request in a version that aiokafka does not have. Its response has topic ids.

The layouts are those of the Kafka protocol: Metadata, key 3, version 12. A broker before 2.8 is sent version 5, and
returns no ids. Unlike aiokafka's own, this request never creates a topic.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any
from uuid import UUID

from aiokafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from frameledger_services.event_log.topics import PartitionState, TopicDescription

_METADATA = 3
_NO_ID = UUID(int=0)


class Uuid(AbstractType):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """Sixteen bytes."""

    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


class TopicsResponseV12(Response):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """Brokers, which are not used, and topics with their partitions."""

    API_KEY = _METADATA
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class TopicsRequestV12(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """A topic is requested by its name, with an id of zeros."""

    FLEXIBLE_VERSION = True
    API_KEY = _METADATA
    API_VERSION = 12
    RESPONSE_TYPE = TopicsResponseV12
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", Uuid), ("name", CompactString()), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicsRequest(Request[MetadataRequest_v5 | TopicsRequestV12]):  # type: ignore[misc]  # aiokafka is untyped
    """Requests these topics, in the newest version that the broker supports."""

    API_KEY = _METADATA

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is TopicsRequestV12:
            return TopicsRequestV12([(_NO_ID, name, {}) for name in self._names], False, False, {})
        return request_struct_class(self._names, False)


def topics_in(response: Any) -> list[TopicDescription]:
    """Returns the topics that exist, from a response of either version."""
    if isinstance(response, TopicsResponseV12):
        return [
            _found(name, None if topic_id == _NO_ID else topic_id, partitions, 4)
            for code, name, topic_id, _, partitions, _, _ in response.topics
            if _is_there(code, name, partitions)
        ]
    return [
        _found(name, None, partitions, 3)
        for code, name, _, partitions in response.topics
        if _is_there(code, name, partitions)
    ]


def _is_there(code: int, name: str, partitions: list[tuple[Any, ...]]) -> bool:
    error = for_code(code)
    if error in (UnknownTopicOrPartitionError, LeaderNotAvailableError):
        return False
    if code:
        failure: KafkaError = error(name)
        raise failure
    return bool(partitions)


def _found(name: str, topic_id: UUID | None, partitions: list[tuple[Any, ...]], at: int) -> TopicDescription:
    """Returns the description of a topic. `at` is the index of a partition's replicas; those in sync come next."""
    states = {
        partition[1]: PartitionState(
            None if partition[2] < 0 else partition[2], len(partition[at]), len(partition[at + 1])
        )
        for partition in partitions
    }
    # The fewest: the topic is as safe as its worst partition.
    copies = min(state.copies for state in states.values())
    return TopicDescription(name, len(partitions), copies, topic_id, states=states)
