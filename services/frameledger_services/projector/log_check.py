"""Checks that the log of a partition is still the one that was stored, by its ends and the last stored record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, Protocol

from frameledger.errors import ConfigurationError
from frameledger.record import Record
from frameledger_services.store.projections import StoredPosition

Symptom = Literal["fine", "shorter", "expired", "another_record"]
"""The state of a log: `fine`, or it ends before the next offset, begins after it, or has another record at the last
stored offset."""

REMEDY = (
    "Nothing is skipped. `frameledger recover` shows what is missing, and with --apply continues; or restore the "
    "broker that has these records."
)


class LogChangedError(ConfigurationError):
    """The log is not the one that was projected: records are missing or differ. Nothing is skipped.

    Remedy: Run `frameledger recover`, which shows what is missing; with `--apply` it continues in a new generation.
    """


@dataclass(frozen=True, slots=True)
class LogState:
    """A partition's log: its first offset, and its end offset."""

    first: int
    end: int
    last_hash: bytes | None = None
    """Hash of the record at the stored `last_offset`, or None if there is no record."""


class LogReader(Protocol):
    """Reads offsets and single records of the log: `event_log.log_probe`."""

    async def offsets(self, partition: int) -> tuple[int, int]:
        """Returns the first offset of a partition, and its end offset, which its next record will get."""
        ...

    async def ends(self, partitions: Iterable[int], deadline: float) -> Mapping[int, int]:
        """Returns the end offsets of the partitions whose leaders answer by the deadline, a time of the event loop's
        clock. Raises the error of one of them if none answers."""
        ...

    async def record_at(self, partition: int, offset: int) -> Record | None:
        """Returns the record at an offset, or None if there is none, as at a transaction's marker."""
        ...


def symptom(stored: StoredPosition, log: LogState) -> Symptom:
    """Compares a log with the stored position, by its ends and the last stored record."""
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


async def log_state(log: LogReader, stored: StoredPosition) -> LogState:
    """Returns the state of a partition's log at the stored position."""
    first, end = await log.offsets(stored.partition)
    if stored.last_offset is None or not first <= stored.last_offset < end:
        return LogState(first, end)
    record = await log.record_at(stored.partition, stored.last_offset)
    return LogState(first, end, None if record is None else record_hash(record))


def describe_difference(topic: str, stored: StoredPosition, state: LogState) -> str | None:
    """Returns a sentence that says why reading a partition cannot continue, or None if it can."""
    where = f"{topic}/{stored.partition}"
    match symptom(stored, state):
        case "fine":
            return None
        case "shorter":
            return (
                f"{where} ends at offset {state.end}, but the next offset to read is {stored.next_offset}: Kafka "
                "lost records that are stored here, or the topic was recreated."
            )
        case "expired":
            return (
                f"{where} begins at offset {state.first}, but the next offset to read is {stored.next_offset}: the "
                "records between have expired and were never stored here."
            )
        case "another_record":
            return (
                f"{where} has another record at {stored.last_offset} than the one that is stored here: it is not the "
                "log that this database was filled from."
            )


def record_hash(record: Record) -> bytes:
    """Returns the hash by which `takeover` recognises the last stored record."""
    parts = (record.key or b"", record.value or b"", str(record.timestamp_ms).encode())
    return sha256(b"".join([len(part).to_bytes(8, "big") + part for part in parts])).digest()
