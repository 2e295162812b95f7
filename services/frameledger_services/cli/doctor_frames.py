"""What `doctor` says of frames that were stored and changed nothing, since nobody here knows their type."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from frameledger_services.cli.doctor_finding import Finding
from frameledger_services.client.misspelled import meant_type
from frameledger_services.store import reading

Connection = AsyncConnection[Any]


async def unknown_types(connection: Connection) -> Finding:
    """Whether frames of the last days have types that this release does not know."""
    found = await reading.unknown_frames(connection)
    since = f"the last {reading.UNKNOWN_DAYS} days"
    if found is None:
        return Finding("types", "ok", f"All frames of {since} have types that are known.")
    count = f"{found.count:,}" if found.count < reading.COUNTED else f"At least {found.count:,}"
    newest = f"newest {found.newest_type} from {found.newest_source or 'nobody who said so'}"
    meant = meant_type(found.newest_type)
    guess = "" if meant is None else f" Was {meant} meant?"
    what = "1 frame of an unknown type" if found.count == 1 else f"{count} frames of unknown types"
    return Finding(
        "types",
        "warn",
        f"{what} in {since}, {newest}.{guess}",
        "They are stored and change nothing. Publish anew what is misspelled; a newer release folds what it knows.",
    )
