"""Erasing (RA5.erase, RA5.lives): an erasure ends one life of a context, and the next frame begins another.

The new life continues from the erasure's version and does not start at 1. Ids of runs and effects, idempotency keys of
calls, and `opened_version` and `expected_version` of frames derive from versions: counted from 1 again, those of the
new life would equal those of the earlier life, whose claims and payments still exist. A reader that follows a context
by version continues too, and so does the hash chain, from the link in the receipt.

Frames that still arrive for the earlier life, such as text of a worker that has not read the erasure yet, name a run, a
call or a version of it, or the mirror whose process publishes them. They are skipped before the fold
(`is_of_an_earlier_life`): folded, they would be stored and start a life.
"""

from __future__ import annotations

from frameledger.evolve.changes import ContextErased
from frameledger.evolve.draft import Draft
from frameledger.evolve.state import (
    Calls,
    Erased,
    MessageCursor,
    Pace,
    RequestParameters,
    Runs,
    Speech,
    State,
)
from frameledger.frames import (
    AnyFrame,
    FunctionCallInProgressFrame,
    LLMContextEraseFrame,
    LLMMirrorFrame,
    OfContext,
    UnknownFrame,
)
from frameledger.ids import ContextId, Version
from frameledger.values import replace

KNOWN_RUNS = 64
"""Number of closed runs that a life after an erasure remembers. Frames of older runs are skipped, like those of an
erased life."""

KNOWN_MIRRORS = 64
"""The same for the mirrors that kept its history."""


def beginning(context_id: ContextId, version: Version) -> State:
    """Returns the state in which the life after an erasure at this version begins."""
    return State(context_id, version, erased=Erased(version), changed_version=version)


def erased(draft: Draft) -> None:
    """Forget everything except the number of frames."""
    draft.place = MessageCursor()
    draft.terms = RequestParameters()
    draft.turn = None
    draft.speech = Speech()
    draft.calls = Calls()
    draft.runs = Runs()
    draft.erased = Erased(draft.version)
    draft.pace = Pace()
    draft.rejected_turn = None
    draft.changed_version = draft.version
    draft.changes.append(ContextErased(draft.version))


def note_closed_run(draft: Draft, before: State) -> None:
    """In a life after an erasure, record the run that this frame closed as one of this life."""
    run, now = before.runs.open, draft.runs.open
    if draft.erased is None or run is None or (now is not None and now.run_id == run.run_id):
        return
    if draft.erased.version != draft.version:
        runs = (*draft.erased.runs, run.run_id)[-KNOWN_RUNS:]
        draft.erased = replace(draft.erased, runs=runs)


def note_mirror(draft: Draft, mirror: str) -> None:
    """In a life after an erasure: remember the mirror that keeps its history, as one of this life."""
    if draft.erased is not None and mirror not in draft.erased.mirrors[-1:]:
        mirrors = (*draft.erased.mirrors, mirror)[-KNOWN_MIRRORS:]
        draft.erased = replace(draft.erased, mirrors=mirrors)


def is_of_an_earlier_life(state: State, frame: AnyFrame) -> bool:
    """Whether a frame belongs to an erased life (RA5.lives). It must not be folded, and gets no version."""
    erased = state.erased
    if erased is None:
        return False
    if names_an_erased_version(state, frame):
        return True
    mirror = _named(frame, "mirror")
    if mirror is not None and not isinstance(frame, LLMMirrorFrame | LLMContextEraseFrame):
        return mirror not in erased.mirrors
    run_id = _named(frame, "run_id")
    if run_id is not None:
        return not _knows_run(state, erased, run_id)
    call_id = _named(frame, "tool_call_id")
    if call_id is None:
        return False
    if isinstance(frame, FunctionCallInProgressFrame) and frame.call_attempt is None:
        # It may start a call that was not announced.
        return False
    return not _knows_call(state.calls, call_id)


def names_an_erased_version(state: State, frame: AnyFrame) -> bool:
    """Whether a frame names a version of a life that was erased. Unlike the rest of RA5.lives this needs no state after
    the erasure, so it is known even if the latest frames of the conversation are not folded."""
    erased = state.erased
    if erased is None:
        return False
    opened_version = getattr(frame, "opened_version", None)
    # On a type without this field it is an unknown field, which may have any value.
    if isinstance(opened_version, int | float) and opened_version <= erased.version:
        return True
    if not isinstance(frame, OfContext):
        return False
    expected_version = frame.expected_version
    return expected_version is not None and 0 < expected_version < erased.version


def _named(frame: AnyFrame, name: str) -> str | None:
    """Returns the id in this field; for a type unknown to this release, whatever text the field has."""
    if name in frame.id_fields:
        id_: str | None = getattr(frame, name)
        return id_
    found = getattr(frame, name, None) if isinstance(frame, UnknownFrame) else None
    return found if isinstance(found, str) else None


def _knows_run(state: State, erased: Erased, run_id: str) -> bool:
    runs = state.runs
    return (
        (runs.open is not None and runs.open.run_id == run_id)
        or (runs.wanted is not None and runs.wanted.run_id == run_id)
        or run_id in erased.runs
    )


def _knows_call(calls: Calls, call_id: str) -> bool:
    return (
        call_id in calls.open
        or call_id in calls.settled
        or call_id in calls.barred
        or any(one.tool_call_id == call_id for one in calls.ambiguous)
    )
