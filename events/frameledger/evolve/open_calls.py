"""The open calls of a context: adding and removing one, and tombstones for ids that may not start (RA5.barred)."""

from __future__ import annotations

from typing import Any

from frameledger.evolve.changes import CallDispatched, CallEnd, CallKey, CallSettled
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Ambiguous, Call, Calls
from frameledger.ids import Position, ToolCallId
from frameledger.values import replace

TOMBSTONES_KEPT = 256
"""Number of remembered ids of calls that were forgotten or cancelled before they started, and may not start."""

SETTLED_REMEMBERED = 32
"""Number of remembered ids of settled calls, which only distinguish `call_settled` from `call_unknown`."""

AMBIGUOUS_REMEMBERED = 256
"""Number of remembered ambiguous calls, which a person may resolve."""


def put(draft: Draft, call: Call) -> None:
    """Open a call, or replace it by its next state."""
    _own(draft)[call.tool_call_id] = call


def dispatch(draft: Draft, call: Call) -> None:
    """Dispatch a call: a worker may start it."""
    put(draft, call.in_stage("dispatched"))
    draft.changes.append(CallDispatched(key(call), call.tool_call_id))


def settle(draft: Draft, call: Call, end: CallEnd, value: Any = None) -> None:
    """Close a call; a new one may use its id. Its group stays until the end of the step."""
    still_open = _own(draft)
    still_open.pop(call.tool_call_id, None)
    calls = draft.calls
    settled = (*calls.settled, call.tool_call_id)[-SETTLED_REMEMBERED:]
    ambiguous = calls.ambiguous
    if end == "ambiguous":
        one = Ambiguous(call.tool_call_id, call.requested_version, call.ordinal)
        ambiguous = (*ambiguous, one)[-AMBIGUOUS_REMEMBERED:]
    draft.calls = Calls(still_open, calls.groups, calls.barred, settled, ambiguous)
    draft.changes.append(CallSettled(key(call), call.tool_call_id, end, value))


def _own(draft: Draft) -> dict[ToolCallId, Call]:
    """Returns the open calls as the draft's own, copied from the state once however many calls its frame changes."""
    calls, own = draft.calls, draft.own_open
    if own is None or calls.open is not own:
        own = draft.own_open = {**calls.open}
        draft.calls = Calls(own, calls.groups, calls.barred, calls.settled, calls.ambiguous)
    return own


def forget(draft: Draft, call: Call) -> None:
    """Close a call that has not started, and bar its id from starting."""
    tombstone(draft, call)
    settle(draft, call, "forgotten")


def forget_position(draft: Draft, position: Position) -> None:
    """If the message that a client rewrote was the tool message of a running call, that call has no place any more."""
    for call in tuple(draft.calls.open.values()):
        running = call.running
        if running is not None and running.position == position and running.era == draft.place.era:
            put(draft, replace(call, running=replace(running, position=None)))


def tombstone(draft: Draft, call: Call) -> None:
    barred = (*draft.calls.barred, call.tool_call_id)[-TOMBSTONES_KEPT:]
    draft.calls = replace(draft.calls, barred=barred)


def remove_tombstone(draft: Draft, tool_call_id: ToolCallId) -> None:
    if tool_call_id in draft.calls.barred:
        barred = tuple(one for one in draft.calls.barred if one != tool_call_id)
        draft.calls = replace(draft.calls, barred=barred)


def unstarted(draft: Draft) -> list[Call]:
    """Returns open calls that have not started, in the order of their announcement."""
    waiting = [call for call in draft.calls.open.values() if call.running is None]
    return sorted(waiting, key=place) if len(waiting) > 1 else waiting


def place(call: Call) -> tuple[int, int]:
    """Returns the sort key of a call: the version that requested it, then its ordinal."""
    return call.requested_version, call.ordinal


def key(call: Call) -> CallKey:
    return CallKey(call.requested_version, call.ordinal)


def no_such_call(draft: Draft, tool_call_id: ToolCallId) -> Reason:
    """Why a frame about a call that is not open is ignored."""
    if tool_call_id in draft.calls.barred:
        return "call_forgotten"
    return "call_settled" if tool_call_id in draft.calls.settled else "call_unknown"
