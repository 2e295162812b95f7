"""Groups of calls: which results request one run together, and which of them still wait (R3.6, R3.7)."""

from __future__ import annotations

from collections.abc import Iterable

from frameledger.evolve import runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.state import Call, Calls, Group
from frameledger.frames import FunctionCallInProgressFrame, FunctionCallsStartedFrame
from frameledger.ids import GroupId, ToolCallId
from frameledger.values import replace


def id_of(frame: FunctionCallsStartedFrame | FunctionCallInProgressFrame) -> GroupId | None:
    """Returns the group id that a frame gives its calls, if any."""
    return None if frame.group_id is None else GroupId(frame.group_id)


def find_or_add(draft: Draft, key: str, group_id: GroupId | None) -> str:
    """Returns the key of the group with this `group_id`; without a `group_id`, `key`, under which a new group is
    added."""
    if group_id is not None:
        for known, group in draft.calls.groups.items():
            if group_id in group.names:
                return known
    names = () if group_id is None else (group_id,)
    _put(draft, key, Group(names))
    return key


def join(draft: Draft, call: Call, group_id: GroupId | None) -> Call:
    """Returns the call, moved to the group with this `group_id`.

    Calls that were announced together and calls that share a group id are one group, so a call that belongs to both
    unites them, unless its announcement made it a group of its own.
    """
    alone = call.announced is not None and call.announced.alone
    own = draft.calls.groups[call.group]
    if group_id is None or alone or group_id in own.names:
        return call
    for key, other in draft.calls.groups.items():
        if group_id in other.names:
            _unite(draft, into=key, key=call.group)
            return replace(call, group=key)
    _put(draft, call.group, replace(own, names=(*own.names, group_id)))
    return call


def synchronous_pending(draft: Draft, key: str) -> bool:
    """Whether a synchronous call of the group is open; one that has not started counts as synchronous."""
    return any(call.running is None or call.running.synchronous for call in _members(draft, key))


def any_pending(draft: Draft, key: str, besides: ToolCallId | None = None) -> bool:
    """Whether a call of the group is open, other than this one."""
    return any(call.tool_call_id != besides for call in _members(draft, key))


def answered(draft: Draft, call: Call, *, run_llm: bool | None, has_result: bool, synchronous: bool) -> None:
    """Decide about the run that answers a result of `call`, or a deadline that counts as one (R3.7).

    `call` is no longer open if this settled it, as every synchronous result does. An explicit `run_llm` takes effect at
    once. Without one, the run is requested when nothing is pending that the result waits for; otherwise the group
    waits.
    """
    group = draft.calls.groups[call.group]
    if run_llm is not None:
        if run_llm:
            _request(draft, call.group)
    elif has_result or group.answered or group.waits:
        if synchronous:
            pending = synchronous_pending(draft, call.group)
        else:
            pending = any_pending(draft, call.group, besides=call.tool_call_id)
        if not pending:
            _request(draft, call.group)
        elif synchronous:
            _put(draft, call.group, replace(group, waits_for_synchronous=True, waits_in=draft.place.era))
        else:
            _put(draft, call.group, replace(group, waits_for_all=True, waits_in=draft.place.era))


def had_result(draft: Draft, call: Call) -> None:
    """Record that a call of the group settled with a result, as long as another one is open."""
    group = draft.calls.groups[call.group]
    if not group.answered and any_pending(draft, call.group):
        _put(draft, call.group, replace(group, answered=True))


def released(draft: Draft, call: Call) -> None:
    """Handle that `call` was cancelled before it started: request a run only for an earlier result of its group
    (R3.4)."""
    group = draft.calls.groups[call.group]
    answered_before = group.answered and not group.waits
    if _is_due(draft, call.group) or (answered_before and not synchronous_pending(draft, call.group)):
        _request(draft, call.group)


def request_only_for_waiting(draft: Draft, call: Call) -> None:
    """Handle the late result, or deadline, of an interrupted call, which requests no run of its own (R3.7)."""
    wait_no_longer(draft, (call.group,))


def wait_no_longer(draft: Draft, keys: Iterable[str]) -> None:
    """Request the runs of earlier results in these groups that waited only for calls that ended without a result."""
    for key in keys:
        if _is_due(draft, key):
            _request(draft, key)


def lost_a_place(draft: Draft, call: Call) -> None:
    """The result of `call` has no place in the history: request the run of earlier results that waited only for it, if
    the history still has them (R3.5)."""
    if draft.calls.groups[call.group].waits_in == draft.place.era:
        wait_no_longer(draft, (call.group,))


def turned_out_asynchronous(draft: Draft, call: Call) -> None:
    """Handle that the starting call is asynchronous: synchronous results no longer wait for it (R3.7)."""
    group = draft.calls.groups[call.group]
    if group.waits_for_synchronous and not synchronous_pending(draft, call.group):
        _request(draft, call.group)


def stop_waiting(draft: Draft, keys: Iterable[str]) -> bool:
    """Clear the waits of these groups. Returns whether there was one."""
    waited = False
    for key in keys:
        group = draft.calls.groups[key]
        if group.waits:
            waited = True
            _put(draft, key, replace(group, waits_for_synchronous=False, waits_for_all=False))
    return waited


def without_empty(draft: Draft) -> None:
    """Drop the groups that have no open call any more."""
    inhabited = {call.group for call in draft.calls.open.values()}
    if len(inhabited) != len(draft.calls.groups):
        calls = draft.calls
        groups = {key: group for key, group in calls.groups.items() if key in inhabited}
        draft.calls = Calls(calls.open, groups, calls.barred, calls.settled, calls.ambiguous)


def _is_due(draft: Draft, key: str) -> bool:
    """Whether a result of the group no longer waits for anything."""
    group = draft.calls.groups[key]
    if group.waits_for_all and not any_pending(draft, key):
        return True
    return group.waits_for_synchronous and not synchronous_pending(draft, key)


def _request(draft: Draft, key: str) -> None:
    stop_waiting(draft, (key,))
    runs.request_for_result(draft)


def _members(draft: Draft, key: str) -> list[Call]:
    return [call for call in draft.calls.open.values() if call.group == key]


def _unite(draft: Draft, *, into: str, key: str) -> None:
    one, other = draft.calls.groups[into], draft.calls.groups[key]
    united = Group(
        one.names + other.names,
        one.answered or other.answered,
        one.waits_for_synchronous or other.waits_for_synchronous,
        one.waits_for_all or other.waits_for_all,
        max(one.waits_in, other.waits_in),
    )
    groups = {name: group for name, group in draft.calls.groups.items() if name != key}
    calls = {
        tool_call_id: replace(call, group=into) if call.group == key else call
        for tool_call_id, call in draft.calls.open.items()
    }
    draft.calls = replace(draft.calls, open=calls, groups={**groups, into: united})


def _put(draft: Draft, key: str, group: Group) -> None:
    calls, own = draft.calls, draft.own_groups
    if own is None or calls.groups is not own:
        own = draft.own_groups = {**calls.groups}
        draft.calls = Calls(calls.open, own, calls.barred, calls.settled, calls.ambiguous)
    own[key] = group
