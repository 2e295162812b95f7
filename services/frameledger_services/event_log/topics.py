"""The topics: what each is for, how it has to be configured, and what is wrong with those that a broker has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from frameledger.record import MAX_VALUE_BYTES
from frameledger_services.settings import PREFIX, Settings

_MIB = 1024 * 1024
_DAY_MS = 24 * 60 * 60 * 1000

ROOM = 256 * 1024
"""Bytes of a record beside its value: the key, the headers, and what compression adds where it does not help."""

MAX_RECORD_BYTES = MAX_VALUE_BYTES + ROOM
"""The largest record that a topic of ours takes, but for the dead letters."""

MAX_DEAD_LETTER_BYTES = 9 * _MIB + ROOM
"""Dead letters carry what was refused, and why, so they may be larger than what was refused."""

DEFAULT_PARTITIONS = 64
EFFECT_DAYS = 7
"""How long effects are kept: they name work, and work that nobody did by then was closed by the timekeeper."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics, which all begin with the prefix of the settings."""

    prefix: str

    @property
    def frames(self) -> str:
        """Every frame. The only truth."""
        return f"{self.prefix}frames"

    @property
    def inference(self) -> str:
        """Runs that are asked for."""
        return f"{self.prefix}inference"

    @property
    def function_calls(self) -> str:
        """Calls that are asked for."""
        return f"{self.prefix}function-calls"

    @property
    def cancellations(self) -> str:
        """Runs and calls that are to stop now."""
        return f"{self.prefix}cancellations"

    @property
    def dead_letters(self) -> str:
        """What is no frame, as received."""
        return f"{self.prefix}frames.dlq"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic as it has to be. None for `replication` leaves it to the broker."""

    name: str
    partitions: int
    replication: int | None
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as a broker has it."""

    name: str
    partitions: int
    replication: int
    topic_id: UUID | None
    """The broker's own id of it, another one each time it is made; None from brokers before 2.8."""

    config: Mapping[str, str] = field(default_factory=dict)
    """All that is in force, defaults of the broker included; empty if it was not asked for."""


def wanted(settings: Settings) -> tuple[Wanted, ...]:
    """The topics that these settings ask for, the frames first."""
    names = Topics(settings.topic_prefix)
    keep = settings.frames_retention_days
    frames_ms = -1 if keep is None else keep * _DAY_MS
    kept = {
        names.frames: (frames_ms, MAX_RECORD_BYTES),
        names.inference: (EFFECT_DAYS * _DAY_MS, MAX_RECORD_BYTES),
        names.function_calls: (EFFECT_DAYS * _DAY_MS, MAX_RECORD_BYTES),
        # What is to stop now is of no use tomorrow.
        names.cancellations: (_DAY_MS, MAX_RECORD_BYTES),
        names.dead_letters: (-1, MAX_DEAD_LETTER_BYTES),
    }
    return tuple(
        Wanted(
            name,
            settings.topic_partitions or DEFAULT_PARTITIONS,
            settings.topic_replication,
            _config(settings, retention_ms, largest),
        )
        for name, (retention_ms, largest) in kept.items()
    )


def problems(topics: Sequence[Wanted], found: Mapping[str, Found]) -> list[str]:
    """What is wrong with the topics that a broker has, a sentence for each thing, with what can be done about it.

    Another number of partitions than a new topic would get is not wrong by itself: keys find theirs in any number,
    as long as that stays what it was.
    """
    sentences = []
    for topic in topics:
        if topic.name not in found:
            sentences.append(
                f"The topic {topic.name} is not there: make it with `frameledger topics --create`."
            )
        else:
            sentences += _problems_of(topic, found[topic.name])
    return sentences


def _config(settings: Settings, retention_ms: int, largest: int) -> dict[str, str]:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        # Time alone decides: a broker may have a default in bytes.
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(largest),
    }
    if settings.topic_min_insync_replicas is not None:
        config["min.insync.replicas"] = str(settings.topic_min_insync_replicas)
    return config


def _problems_of(topic: Wanted, found: Found) -> list[str]:
    sentences = []
    for name, value in topic.config.items():
        actual = found.config.get(name)
        if actual is not None and not _serves(name, value, actual):
            sentences.append(
                f"{topic.name} has {name}={actual} and needs {value}: {_WHY[name]}. Change it with Kafka's own tool: "
                f"kafka-configs --alter --topic {topic.name} --add-config {name}={value}"
            )
    if topic.replication is not None and found.replication < topic.replication:
        sentences.append(
            f"{topic.name} has {found.replication} copies of each partition, and {PREFIX}TOPIC_REPLICATION asks for "
            f"{topic.replication}: add some with Kafka's kafka-reassign-partitions, or change the setting."
        )
    insync = int(found.config.get("min.insync.replicas", "1"))
    if insync > found.replication:
        sentences.append(
            f"{topic.name} has min.insync.replicas={insync} and only {found.replication} copies: nothing can be "
            f"published. Lower it: kafka-configs --alter --topic {topic.name} --add-config "
            f"min.insync.replicas={found.replication}"
        )
    return sentences


_WHY = {
    "cleanup.policy": "compaction would delete frames that have later ones of the same conversation",
    "retention.ms": "it would be deleted earlier than the settings say",
    "retention.bytes": "it would be deleted earlier than the settings say",
    "message.timestamp.type": "the time of a frame is the broker's, whatever a publisher's clock says",
    "max.message.bytes": "frames that are allowed would be refused",
    "min.insync.replicas": "the settings say so",
}


def _serves(name: str, needed: str, actual: str) -> bool:
    """Whether a value does what is needed: some may also be more than that."""
    if name in ("retention.ms", "retention.bytes"):
        return actual == "-1" or (needed != "-1" and int(actual) >= int(needed))
    if name in ("max.message.bytes", "min.insync.replicas"):
        return int(actual) >= int(needed)
    return actual == needed
