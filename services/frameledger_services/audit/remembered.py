"""The stored result of verifying a conversation, from which the next verification continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from frameledger import stored
from frameledger.ids import ContextId
from frameledger_services.projector.head import Counters, Head
from frameledger_services.store.verified import VerifiedUpTo


def remember(head: Head, row: Mapping[str, Any]) -> VerifiedUpTo:
    """Returns the result to store for a folded head and its row of `contexts`."""
    stored_head = {
        "counters": asdict(head.counters),
        "run_version": head.run_version,
        "first_text_of": head.first_text_of,
        "origin": None if head.origin is None else head.origin.decode(),
        "experiment": head.experiment,
        "started_at": _written(head.started_at),
        "last_at": _written(head.last_at),
        "rebuilt": row["rebuilt"],
        "row": digest(row),
    }
    state = stored.dump(head.state).decode()
    return VerifiedUpTo(
        head.context_id, head.version, head.chain, stored.FOLD_VERSION, json.dumps(stored_head), state
    )


@dataclass(frozen=True, slots=True)
class Remembered:
    """The verified state of a conversation."""

    head: Head
    """The folded head."""

    rebuilt: int
    """The number of rebuilds of the conversation until then."""

    row: str
    """The digest of its row of `contexts`."""

    def is_unchanged(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row of `contexts` is the verified one."""
        return self.row == digest(row)


def read(remembered: VerifiedUpTo, row: Mapping[str, Any]) -> Remembered | None:
    """Returns the stored result of a conversation with this row of `contexts`, if this fold version verified it and it
    was not rebuilt since. Returns None otherwise, or for an unreadable entry: the conversation is verified again."""
    if remembered.fold_version != stored.FOLD_VERSION:
        return None
    try:
        written = json.loads(remembered.head)
        known = Remembered(_head(remembered, written), written["rebuilt"], written["row"])
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None
    return known if known.rebuilt == row["rebuilt"] else None


def _head(remembered: VerifiedUpTo, head: Mapping[str, Any]) -> Head:
    run = head["first_text_of"]
    return Head(
        ContextId(remembered.context_id),
        stored.load(remembered.state.encode()),
        remembered.chain,
        version=remembered.version,
        started_at=_read(head["started_at"]),
        last_at=_read(head["last_at"]),
        counters=Counters(**head["counters"]),
        run_version=head["run_version"],
        origin=None if head["origin"] is None else head["origin"].encode(),
        experiment=head["experiment"],
        first_text_of=None if run is None else (run[0], run[1]),
    )


def digest(row: Mapping[str, Any]) -> str:
    """Returns a hash of a row of `contexts` that does not depend on the session's time zone."""
    values = {
        name: str(value.timestamp()) if isinstance(value, datetime) else value for name, value in row.items()
    }
    return sha256(json.dumps(values, sort_keys=True, default=bytes.hex).encode()).hexdigest()


def _written(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _read(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written)
