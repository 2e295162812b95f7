"""What is stored of a verified conversation, so that the next verification continues from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from typing import Any

from frameledger import stored
from frameledger.ids import ContextId
from frameledger_services.projector.head import Counters, Head
from frameledger_services.store.verified import VerifiedUpTo


def remember(head: Head, row: Mapping[str, Any]) -> VerifiedUpTo:
    """Returns what is to be remembered of a head that was folded, and of its row of `contexts`."""
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


def head_of(remembered: VerifiedUpTo) -> Head:
    """Returns the head that was remembered. Raises `StoredStateError` for a state that was changed by hand."""
    head = json.loads(remembered.head)
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


def is_of(remembered: VerifiedUpTo, row: Mapping[str, Any]) -> bool:
    """Whether it was remembered of the rows that are there: of this fold, and not of what was rebuilt since."""
    return (
        remembered.fold_version == stored.FOLD_VERSION
        and json.loads(remembered.head)["rebuilt"] == row["rebuilt"]
    )


def is_unchanged(remembered: VerifiedUpTo, row: Mapping[str, Any]) -> bool:
    """Whether a row of `contexts` is the one that was verified."""
    return bool(json.loads(remembered.head)["row"] == digest(row))


def digest(row: Mapping[str, Any]) -> str:
    """Returns a hash of a row of `contexts`, whatever the session's time zone."""
    values = {
        name: str(value.timestamp()) if isinstance(value, datetime) else value for name, value in row.items()
    }
    return sha256(json.dumps(values, sort_keys=True, default=bytes.hex).encode()).hexdigest()


def _written(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _read(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written)
