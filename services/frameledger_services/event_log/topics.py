"""The topics: their purpose and configuration, and the check of a broker's topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from frameledger.partition import partition_for
from frameledger.record import MAX_VALUE_BYTES
from frameledger_services.settings import PREFIX, Settings

_MIB = 1024 * 1024
_DAY_MS = 24 * 60 * 60 * 1000

ROOM = 256 * 1024
"""Bytes for the rest of a record: the key, the headers, and what compression adds to incompressible data."""

MAX_RECORD_BYTES = MAX_VALUE_BYTES + ROOM
"""max.message.bytes of our topics, except the dead letters."""

MAX_DEAD_LETTER_BYTES = 9 * _MIB + ROOM
"""A dead letter contains the rejected record and the reason, so it may be larger than the record."""

DEFAULT_PARTITIONS = 64
EFFECT_DAYS = 7
"""How long effects are kept. The timekeeper has failed unclaimed work long before."""


home_partition = lru_cache(maxsize=8_192)(partition_for)
"""Returns the partition of a key. A conversation has many frames, and computing it for each would take a sixth of a
fold."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of the topics, which all begin with the setting `topic_prefix`."""

    prefix: str

    @property
    def frames(self) -> str:
        """Every frame: the source of everything else."""
        return f"{self.prefix}frames"

    @property
    def inference(self) -> str:
        """Requested runs."""
        return f"{self.prefix}inference"

    @property
    def function_calls(self) -> str:
        """Requested function calls."""
        return f"{self.prefix}function-calls"

    @property
    def cancellations(self) -> str:
        """Runs and calls that have to stop now."""
        return f"{self.prefix}cancellations"

    @property
    def roots(self) -> str:
        """Roots over all conversations, in the order in which they were computed."""
        return f"{self.prefix}roots"

    @property
    def dead_letters(self) -> str:
        """Records that are not frames, as received."""
        return f"{self.prefix}frames.dlq"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as the settings define it. `replication` None is the broker's default."""

    name: str
    partitions: int
    replication: int | None
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas of a partition."""

    leader: int | None
    """The broker that leads it; None if no running broker may lead it."""

    copies: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as a broker describes it."""

    name: str
    partitions: int
    replication: int
    topic_id: UUID | None
    """The broker's id of the topic, which changes when it is recreated; None from brokers before 2.8."""

    config: Mapping[str, str] = field(default_factory=dict)
    """The effective configuration, including the broker's defaults; empty if it was not requested."""

    states: Mapping[int, PartitionState] = field(default_factory=dict)
    """By partition."""

    @property
    def leaderless(self) -> list[int]:
        """Returns the partitions without a leader, which cannot be written or read."""
        return sorted(number for number, state in self.states.items() if state.leader is None)

    @property
    def min_insync(self) -> int | None:
        """Returns min.insync.replicas; None if it is not known."""
        value = self.config.get("min.insync.replicas")
        return None if value is None else int(value)

    @property
    def max_message_bytes(self) -> int | None:
        """Returns max.message.bytes, the largest batch as it is sent; None if it is not known."""
        value = self.config.get("max.message.bytes")
        return None if value is None else int(value)


def topic_specs(settings: Settings) -> tuple[TopicSpec, ...]:
    """Returns the topics that these settings define, that of the frames first."""
    names = TopicNames(settings.topic_prefix)
    keep = settings.frames_retention_days
    frames_ms = -1 if keep is None else keep * _DAY_MS
    limits = {
        names.frames: (frames_ms, MAX_RECORD_BYTES),
        names.inference: (EFFECT_DAYS * _DAY_MS, MAX_RECORD_BYTES),
        names.function_calls: (EFFECT_DAYS * _DAY_MS, MAX_RECORD_BYTES),
        # Cancellations are of no use tomorrow.
        names.cancellations: (_DAY_MS, MAX_RECORD_BYTES),
        names.roots: (-1, MAX_RECORD_BYTES),
        # A dead letter has the text of a frame, so it is kept no longer than a frame.
        names.dead_letters: (frames_ms, MAX_DEAD_LETTER_BYTES),
    }
    return tuple(
        TopicSpec(
            name,
            # Roots are few, and in one order.
            1 if name == names.roots else settings.topic_partitions or DEFAULT_PARTITIONS,
            settings.topic_replication,
            _config(settings, retention_ms, largest),
        )
        for name, (retention_ms, largest) in limits.items()
    )


def change(topic: str, name: str, value: str | int) -> str:
    """Returns the command of Kafka's distribution that changes a setting of a topic."""
    return f"kafka-configs.sh --bootstrap-server BROKER --alter --topic {topic} --add-config {name}={value}"


def missing(name: str) -> str:
    """Returns the sentence about a topic that does not exist. The command creates only topics with our names, whatever
    their prefix."""
    own = tuple(topic.name for topic in topic_specs(Settings(topic_prefix="")))
    if not name.endswith(own):
        return f"There is no topic {name}. `frameledger topics` lists those of this installation."
    return f"There is no topic {name}: create it with `frameledger topics --create`."


def problems(topics: Sequence[TopicSpec], descriptions: Mapping[str, TopicDescription]) -> list[str]:
    """Returns what is wrong with a broker's topics, one sentence each, with the remedy.

    Another number of partitions than a new topic would get is not wrong: keys are mapped to any number, as long as it
    does not change.
    """
    sentences = []
    for topic in topics:
        if topic.name not in descriptions:
            sentences.append(missing(topic.name))
        else:
            sentences += _problems_of(topic, descriptions[topic.name])
    return sentences


def unreadable(description: TopicDescription) -> str | None:
    """Returns why the records of a topic are not reliable, with the remedy; None if they are, or that is unknown.

    The timestamps of its records are not its broker's; or it is compacted, which deletes records and leaves gaps in the
    offsets that look like those of an aborted transaction.
    """
    if "compact" in description.config.get("cleanup.policy", ""):
        return _config_problem(description, "cleanup.policy", "delete")
    return _config_problem(description, "message.timestamp.type", "LogAppendTime")


def unwritable(description: TopicDescription, partitions: Iterable[int]) -> str | None:
    """Returns why some of these partitions currently cannot be written, because brokers are down; None if they can, as
    far as is known."""
    for number in sorted(set(partitions) & description.states.keys()):
        state = description.states[number]
        which = f"partition {number} of {description.name}"
        if state.leader is None:
            return f"No broker leads {which}: those that have it are down."
        if description.min_insync is not None and state.in_sync < description.min_insync:
            away = state.copies - state.in_sync
            return (
                f"{away} of {state.copies} replicas of {which} are down or out of sync, and min.insync.replicas is "
                f"{description.min_insync}."
            )
    return None


def _config(settings: Settings, retention_ms: int, largest: int) -> dict[str, str]:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        # By time only: a broker may have a default in bytes.
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(largest),
    }
    if settings.topic_min_insync_replicas is not None:
        config["min.insync.replicas"] = str(settings.topic_min_insync_replicas)
    return config


def _problems_of(topic: TopicSpec, description: TopicDescription) -> list[str]:
    problems = [_config_problem(description, name, value) for name, value in topic.config.items()]
    sentences = [problem for problem in problems if problem is not None]
    if topic.replication is not None and description.replication < topic.replication:
        sentences.append(
            f"{topic.name} has {description.replication} replicas of each partition, and {PREFIX}TOPIC_REPLICATION "
            f"is {topic.replication}: add some with Kafka's kafka-reassign-partitions, or change the setting."
        )
    insync = int(description.config.get("min.insync.replicas", "1"))
    if insync > description.replication:
        sentences.append(
            f"{topic.name} has min.insync.replicas={insync} and only {description.replication} replicas: nothing can "
            f"be published. Lower it: {change(topic.name, 'min.insync.replicas', description.replication)}"
        )
    elif (why := unwritable(description, description.states)) is not None:
        sentences.append(f"{why} Start them.")
    return sentences


def _config_problem(description: TopicDescription, name: str, value: str) -> str | None:
    actual = description.config.get(name)
    if actual is None or _serves(name, value, actual):
        return None
    return (
        f"{description.name} has {name}={actual} and needs {value}: {_WHY[name]}. Change it with Kafka's own tool: "
        f"{change(description.name, name, value)}"
    )


_WHY = {
    "cleanup.policy": "compaction would delete frames that have later ones of the same conversation",
    "retention.ms": "it would be deleted earlier than the settings say",
    "retention.bytes": "it would be deleted earlier than the settings say",
    "message.timestamp.type": "the time of a frame is the broker's, whatever a publisher's clock says",
    "max.message.bytes": "valid frames would be rejected",
    "min.insync.replicas": "the settings require it",
}


def _serves(name: str, needed: str, actual: str) -> bool:
    """Returns whether a value suffices: some may be more than is needed."""
    if name in ("retention.ms", "retention.bytes"):
        return actual == "-1" or (needed != "-1" and int(actual) >= int(needed))
    if name in ("max.message.bytes", "min.insync.replicas"):
        return int(actual) >= int(needed)
    return actual == needed
