"""Heads from the database, for conversations that are not in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import AsyncConnection

from frameledger import stored
from frameledger.decoding import decode
from frameledger.errors import RefusedError
from frameledger.evolve import Step, evolve
from frameledger.ids import ContextId
from frameledger_services.projector.head import Counters, Head
from frameledger_services.store import heads as statements
from frameledger_services.store.heads import StoredHead, Unfolded


async def load(connection: AsyncConnection[Any], context_ids: Sequence[ContextId]) -> dict[str, Head]:
    """Returns the heads of these conversations, in one query; new heads for those that are not stored.

    A conversation whose head cannot be brought up to date is parked, and the others continue.
    """
    loaded = await statements.load(connection, context_ids)
    heads: dict[str, Head] = {}
    for context_id in context_ids:
        found = loaded.get(context_id)
        try:
            heads[context_id] = Head.new(context_id) if found is None else loaded_head(context_id, found)
        except RefoldError as behind:
            park(behind.head, str(behind))
            heads[context_id] = behind.head
    return heads


class RefoldError(RefusedError):
    """Stored frames cannot be folded again: the fold of this release has a bug that another did not have. `head` is as
    of the last frame that could.

    Remedy: Its conversation is parked. With a release that folds it, use `frameledger unpark`.
    """

    def __init__(self, head: Head, error: Exception) -> None:
        super().__init__(
            f"after version {head.state.version}, which was stored already: {type(error).__name__}: {error}"
        )
        self.head = head


def loaded_head(context_id: ContextId, found: StoredHead) -> Head:
    """Returns a head with its stored state, and the frames after that folded in. Raises `RefoldError` if a fold
    fails."""
    row = found.row
    counters: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for column, path in statements.ATTRIBUTES.items():
        of_counters, _, name = path.rpartition(".")
        (counters if of_counters else attributes)[name] = row[column]
    head = Head(
        context_id,
        stored.load(row["state"].encode()),
        **attributes,
        counters=Counters(**counters),
        parked_version=row["parked_version"],
        parked_error=row["parked_error"],
        stored=True,
        saved_version=row["state_version"],
        state_bytes=len(row["state"]),
    )
    try:
        refold(head, found.unfolded)
    except Exception as error:
        raise RefoldError(head, error) from error
    run = head.state.runs.open
    if run is not None and row["open_run_has_text"]:
        head.first_text_of = (run.run_id, int(run.attempt))
    return head


def refold(head: Head, frames: Iterable[Unfolded]) -> None:
    """Bring a loaded state up to its head's version, without effects: those were published when the frames were stored.

    Raises `OutcomeChangedError` where this release gives a frame another outcome than the stored one.
    """
    for one in frames:
        # A frame that was unknown when it was folded changed nothing, even if its type is known by now.
        frame = _UNKNOWN if one.outcome == "unknown" else decode(one.payload)
        step = evolve(head.state, frame)
        if (step.outcome, step.reason) != (one.outcome, one.reason):
            raise OutcomeChangedError(one, step)
        head.state = step.state


_UNKNOWN = decode(b'{"type":"unknown"}')


class OutcomeChangedError(RefusedError):
    """Another release folded a frame otherwise, and its rows are stored so: a state of this one would not be theirs.

    Remedy: Its conversation is parked. Project the log into an empty database, or go back to the other release.
    """

    def __init__(self, frame: Unfolded, step: Step) -> None:
        super().__init__(
            f"version {step.state.version} was {_said(frame.outcome, frame.reason)} when it was folded first, and is "
            f"{_said(step.outcome, step.reason)} to this release"
        )


def _said(outcome: str, reason: str | None) -> str:
    return outcome if reason is None else f"{outcome} ({reason})"


def park(head: Head, error: str) -> None:
    """From the next frame on, frames are stored and not folded. Nothing happens if it is parked already."""
    if head.parked_version is None:
        head.park(error.replace("\x00", ""), datetime.now(UTC))
