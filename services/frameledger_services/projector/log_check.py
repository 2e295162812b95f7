"""Whether the log of a partition is still the one that was stored: its ends, and the last record that was projected."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, Protocol

from frameledger.errors import ConfigurationError
from frameledger.record import Record
from frameledger_services.store.projections import StoredPosition

Symptom = Literal["fine", "shorter", "expired", "another_record"]
"""What is seen at a glance: it ends before what is stored, it begins behind it, or its newest known record differs."""

REMEDY = (
    "Nothing is skipped. `frameledger recover` says what can be done, and does it; or bring the broker back that has "
    "these records."
)


class LogChangedError(ConfigurationError):
    """The log is not the one that was projected: records are missing or others. Nothing is skipped.

    Remedy: Run `frameledger recover`, which shows what is missing and goes on as its operator decides.
    """


@dataclass(frozen=True, slots=True)
class LogState:
    """What the log has of a partition: its first offset, and the one behind its last record."""

    first: int
    end: int
    last_hash: bytes | None = None
    """Of the record at the stored `last_offset`; None if none is there."""


class LogProbe(Protocol):
    """What of the log has to be looked at."""

    async def offsets(self, partition: int) -> tuple[int, int]:
        """The first offset that a partition still has, and the one that its next record will get."""
        ...

    async def record_at(self, partition: int, offset: int) -> Record | None:
        """The record at an offset; None if there is none, as behind a transaction's marker."""
        ...


def symptom(stored: StoredPosition, log: LogState) -> Symptom:
    """Whether reading can go on, as far as ends and the newest known record tell."""
    if stored.next_offset > log.end:
        return "shorter"
    if stored.next_offset < log.first:
        return "expired"
    if (
        stored.last_offset is not None
        and stored.last_offset >= log.first
        and stored.last_hash != log.last_hash
    ):
        return "another_record"
    return "fine"


async def log_state(log: LogProbe, stored: StoredPosition) -> LogState:
    """What the log has of a partition that is stored so far."""
    first, end = await log.offsets(stored.partition)
    if stored.last_offset is None or not first <= stored.last_offset < end:
        return LogState(first, end)
    record = await log.record_at(stored.partition, stored.last_offset)
    return LogState(first, end, None if record is None else record_hash(record))


def describe_difference(topic: str, stored: StoredPosition, found: LogState) -> str | None:
    """Why a partition cannot be read on, in a sentence; None if it can."""
    where = f"{topic}/{stored.partition}"
    match symptom(stored, found):
        case "fine":
            return None
        case "shorter":
            return (
                f"{where} ends at {found.end}, and {stored.next_offset} is next: Kafka lost records that are stored "
                "here, or the topic was made anew."
            )
        case "expired":
            return (
                f"{where} begins at {found.first}, and {stored.next_offset} is next: the records between have expired "
                "and were never stored here."
            )
        case "another_record":
            return (
                f"{where} has another record at {stored.last_offset} than the one that is stored here: it is not the "
                "log that this database was filled from."
            )


def record_hash(record: Record) -> bytes:
    """What is compared when a partition is taken over: is the last record that was read still the one we know?"""
    parts = (record.key or b"", record.value or b"", str(record.timestamp_ms).encode())
    return sha256(b"".join([len(part).to_bytes(8, "big") + part for part in parts])).digest()
