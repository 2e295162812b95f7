"""Loads heads of conversations that are not in the cache from the database."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from frameledger import stored
from frameledger.decoding import decode
from frameledger.errors import RefusedError
from frameledger.evolve import Step, evolve
from frameledger.evolve.state import State
from frameledger.ids import ContextId, Version
from frameledger.values import replace
from frameledger_services.database_types import Connection
from frameledger_services.projector.head import Counters, FoldedBy, Head
from frameledger_services.projector.row_values import is_storable
from frameledger_services.store import erasures, extreme_times
from frameledger_services.store import heads as statements
from frameledger_services.store.erasures import Beginning
from frameledger_services.store.heads import StoredHead, Unfolded


async def load(
    connection: Connection,
    context_ids: Sequence[ContextId],
    rebuild: Callable[[ContextId], Awaitable[None]] | None = None,
    *,
    max_frames: int = 0,
) -> dict[str, Head]:
    """Returns the heads of these conversations, read in one query, and new heads for those that are not stored.

    Conversations that an older release folded, and that have at most `max_frames`, are rebuilt first. A conversation
    whose head is damaged, or cannot be brought up to date, is parked, and the others continue. Raises `NewerHeadError`.
    """
    return await extreme_times.read(connection, _load, context_ids, rebuild, max_frames)


async def _load(
    connection: Connection,
    context_ids: Sequence[ContextId],
    rebuild: Callable[[ContextId], Awaitable[None]] | None,
    max_frames: int,
) -> dict[str, Head]:
    loaded = await statements.load(connection, context_ids)
    if rebuild is not None:
        loaded = await _with_older_rebuilt(connection, loaded, rebuild, max_frames)
    heads: dict[str, Head] = {}
    damaged: dict[str, stored.StoredStateError] = {}
    for context_id, stored_head in loaded.items():
        try:
            heads[context_id] = loaded_head(ContextId(context_id), stored_head)
        except RefoldError as behind:
            park(behind.head, str(behind))
            heads[context_id] = behind.head
        except NewerHeadError:
            raise
        except stored.StoredStateError as error:
            damaged[context_id] = error
    others = [one for one in context_ids if one not in heads]
    beginnings = await erasures.beginnings(connection, others)
    for context_id in others:
        head = head_after(context_id, beginnings.get(context_id))
        if (why := damaged.get(context_id)) is not None:
            head = _without_state(loaded[context_id].row, head)
            park(head, f"{why}, then unpark it")
        heads[context_id] = head
    anew = [one for one in loaded if heads[one].state.erased is not None]
    for begins in (await erasures.beginnings(connection, anew)).values():
        heads[begins.context_id].erased_at = begins.at
    return heads


async def beginning(connection: Connection, context_id: ContextId) -> Head:
    """Returns the head at the beginning of a conversation's current life: a new one, or that after its latest erasure.
    Folding the stored frames in order leads to the current head."""
    return head_after(context_id, (await erasures.beginnings(connection, [context_id])).get(context_id))


def head_after(context_id: ContextId, begins: Beginning | None) -> Head:
    """Returns the head of a conversation without frames: a new one, or that after an erasure."""
    return Head.new(context_id) if begins is None else Head.after_erasure(begins)


async def _with_older_rebuilt(
    connection: Connection,
    loaded: dict[str, StoredHead],
    rebuild: Callable[[ContextId], Awaitable[None]],
    max_frames: int,
) -> dict[str, StoredHead]:
    """Rebuild the conversations that an older release folded. Returns all heads as they are afterwards."""
    older = [ContextId(one) for one, head in loaded.items() if _is_to_rebuild(head.row, max_frames)]
    for context_id in older:
        await rebuild(context_id)
    # A rebuild may honour an erasure, after which nothing of the conversation is left.
    others = {one: head for one, head in loaded.items() if one not in older}
    return others | await statements.load(connection, older)


def _is_to_rebuild(row: Mapping[str, Any], max_frames: int) -> bool:
    return (
        row["fold_version"] < stored.FOLD_VERSION
        and row["version"] <= max_frames
        and row["parked_version"] is None
    )


class RefoldError(RefusedError):
    """Stored frames cannot be folded again: the fold of this release has a bug that another release did not have.
    `head` is that of the last frame that could be folded.

    Remedy: Its conversation is parked. With a release that folds it, use `frameledger unpark`.
    """

    def __init__(self, head: Head, error: Exception) -> None:
        super().__init__(
            f"after version {head.state.version}, which was stored already: {type(error).__name__}: {error}"
        )
        self.head = head


def loaded_head(context_id: ContextId, stored_head: StoredHead) -> Head:
    """Returns a head with its stored state, and with later frames folded in.

    Raises `RefoldError` if a fold fails, `NewerHeadError`, and `StoredStateError` for a state that cannot be read.
    """
    row = stored_head.row
    try:
        state = stored.load(row["state"].encode())
    except stored.StoredStateError as error:
        if row["fold_version"] > stored.FOLD_VERSION:
            raise NewerHeadError(context_id, row["fold_version"]) from error
        raise
    head = _head(row, state)
    head.folded_by = _folded_by(row, is_older=row["fold_version"] < stored.FOLD_VERSION)
    if row["fold_version"] != stored.FOLD_VERSION and head.parked_version is None:
        # An older release must not continue from a state that does not include the frames of this one. A column that
        # merely contradicts its state is written again.
        head.saved_version = None
    try:
        refold(head, stored_head.unfolded)
    except Exception as error:
        # It is parked: its rows stay as they were left by the release that could fold it.
        head.saved_version = row["state_version"]
        raise RefoldError(head, error) from error
    head.unsaved_bytes = sum(len(one.payload) for one in stored_head.unfolded)
    run = head.state.runs.open
    if run is not None and row["open_run_has_text"]:
        head.first_text_of = (run.run_id, int(run.attempt))
    return head


def _without_state(row: Mapping[str, Any], beginning: Head) -> Head:
    """Returns a head whose stored state cannot be read and is not replaced. Its state has only the beginning of the
    life."""
    return _head(row, replace(beginning.state, version=Version(row["state_version"])))


def _head(row: Mapping[str, Any], state: State) -> Head:
    counters: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for column, path in statements.ATTRIBUTES.items():
        of_counters, _, name = path.rpartition(".")
        (counters if of_counters else attributes)[name] = row[column]
    for name in ("started_at", "last_at"):
        if not is_storable(attributes[name]):
            # Written by hand. The next frame has its own time, and `frameledger rebuild` corrects both.
            attributes[name] = None
    return Head(
        ContextId(row["context_id"]),
        state,
        **attributes,
        counters=Counters(**counters),
        parked_version=row["parked_version"],
        parked_error=row["parked_error"],
        stored=True,
        rebuilt=row["rebuilt"],
        saved_version=row["state_version"],
        state_bytes=len(row["state"]),
    )


def _folded_by(row: Mapping[str, Any], *, is_older: bool) -> FoldedBy | None:
    ranges = _ranges(row["folded_by"])
    if not is_older:
        return ranges
    # This release folds the frames after the stored state again.
    first = row["state_version"] + 1
    before = ranges or ((1, row["fold_version"]),)
    return (*(one for one in before if one[0] < first), (first, stored.FOLD_VERSION))


def _ranges(folded_by: object) -> FoldedBy | None:
    """Returns the value of the column `folded_by`, or None if it is empty or, after a manual change, unreadable."""
    if not isinstance(folded_by, str):
        return None
    try:
        return tuple((int(first), int(fold)) for first, fold in json.loads(folded_by))
    except (RecursionError, TypeError, ValueError):
        return None


class NewerHeadError(stored.StoredStateError):
    """A conversation was folded by a newer release, whose rules this one does not know.

    Remedy: Upgrade this process. A projector leaves the partition of the conversation to the newer release.
    """

    def __init__(self, context_id: ContextId, fold_version: int) -> None:
        super().__init__(
            f"the conversation {context_id} was folded by fold version {fold_version}, this release knows "
            f"{stored.FOLD_VERSION}: upgrade the release"
        )
        self.context_id = context_id
        self.fold_version = fold_version


def refold(head: Head, frames: Iterable[Unfolded]) -> None:
    """Advance a loaded state to its head's version, without effects: they were published when the frames were stored.

    Raises `OutcomeChangedError` if a frame has another outcome in this release than the stored one.
    """
    for unfolded in frames:
        frame = UNKNOWN if unfolded.outcome == "unknown" else decode(unfolded.payload)
        step = evolve(head.state, frame, unfolded.logged_at)
        if (step.outcome, step.reason) != (unfolded.outcome, unfolded.reason):
            raise OutcomeChangedError(unfolded, step)
        head.state = step.state


UNKNOWN = decode(b'{"type":"unknown"}')
"""Folded in place of a frame that was unknown when it was first folded: it changed nothing then, and so changes nothing
now, even if its type is known."""


class OutcomeChangedError(RefusedError):
    """Another release folded a frame with another outcome, and stored its rows accordingly: they would not match a
    state of this release.

    Remedy: Its conversation is parked. `frameledger rebuild --context ... --apply` folds all of it with this release;
    then `frameledger unpark`.
    """

    def __init__(self, frame: Unfolded, step: Step) -> None:
        super().__init__(
            f"version {step.state.version} was {_in_words(frame.outcome, frame.reason)} when it was first folded, "
            f"and is {_in_words(step.outcome, step.reason)} in this release"
        )


def _in_words(outcome: str, reason: str | None) -> str:
    return outcome if reason is None else f"{outcome} ({reason})"


def park(head: Head, error: str) -> None:
    """Store frames from the next one on without folding them. Does nothing if the conversation is already parked."""
    if head.parked_version is None:
        head.park(error.replace("\x00", ""), datetime.now(UTC))
