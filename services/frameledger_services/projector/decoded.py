"""Records, each with its decoded frame or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger.record import DecodeError, LoggedFrame, Record, read


@dataclass(frozen=True, slots=True)
class Unstorable:
    """Why a record cannot be stored as a frame at all, not even unfolded."""

    reason: str
    detail: str


DecodedRecord = tuple[Record, LoggedFrame | DecodeError | Unstorable]

FetchedRecord = tuple[Record, LoggedFrame | DecodeError | Unstorable | None]
"""The same, with None for a record that is not decoded yet."""


def decode_record(record: Record) -> DecodedRecord:
    """Returns the record with its frame, or with the reason why it has none."""
    try:
        return record, read(record)
    except DecodeError as error:
        return record, error
    except Exception as error:
        # A bug of ours must not stop the partition.
        return record, Unstorable("refused", f"it cannot be decoded: {type(error).__name__}: {error}")
