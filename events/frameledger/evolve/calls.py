"""Calls: announced, committed, started once, settled once (R3, RA5.calls).

A call is fenced by itself, not by its run, which is closed by the time it runs. What a start writes is always a pair:
the assistant message with the call and its tool message are appended in one step, so the context is valid for a
provider after every frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frameledger.evolve import call_messages, groups
from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallEnd,
    CallKey,
    CallProgressed,
    CallSettled,
    CallStarted,
    CallWaiting,
)
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import refusal
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Announced, Call, Calls, Running
from frameledger.frames import (
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
)
from frameledger.ids import Attempt, GroupId, RunId, ToolCallId, Version
from frameledger.values import replace

BARRED_REMEMBERED = 256
"""A call forgotten or cancelled before it started may not start: the newest of these ids are remembered."""

SETTLED_REMEMBERED = 32
"""Ids that settled lately are remembered only to tell an auditor `call_settled` from `call_unknown`."""


def announced(draft: Draft, frame: FunctionCallsStartedFrame) -> Reason | None:
    """Set the calls of a batch aside: the end of their run dispatches them, those without a run id never are
    (RA5.commit)."""
    if frame.run_id is not None:
        reason = refusal(draft, frame)
        if reason is not None:
            return reason
    by = Announced(
        None if frame.run_id is None else RunId(frame.run_id),
        Attempt(frame.attempt or 1),
        _announcing_response(draft, frame),
        _group_id(frame),
        sequential=not frame.run_in_parallel,
        alone=not frame.group_parallel_tools,
    )
    shared: str | None = None
    skipped = 0
    for ordinal, one in enumerate(frame.function_calls):
        tool_call_id = ToolCallId(one.tool_call_id)
        if tool_call_id in draft.calls.open:
            skipped += 1
            continue
        if by.alone:
            group = groups.found(draft, f"{draft.version}.{ordinal}", None)
        else:
            group = shared = shared or groups.found(draft, f"{draft.version}", by.group_id)
        call = Call(tool_call_id, one.function_name, draft.version, ordinal, group, "announced", by)
        _put(draft, call)
        _unbar(draft, tool_call_id)
        draft.changes.append(
            CallAnnounced(_key(call), tool_call_id, one.function_name, one.arguments, by.run_id, by.group_id)
        )
    return "call_open_already" if skipped and skipped == len(frame.function_calls) else None


def commit(draft: Draft, run_id: RunId, attempt: Attempt) -> None:
    """The run ended well: its attempt's calls may run, the sequential ones in turn (RA5.commit)."""
    for call in _unstarted(draft):
        by = call.announced
        if by is not None and by.run_id == run_id and by.attempt == attempt:
            if by.sequential:
                _put(draft, replace(call, stage="queued"))
            else:
                _dispatch(draft, call)


def dispatch_next(draft: Draft) -> None:
    """One sequential queue per context, across batches: the next call is dispatched when the one before it has
    settled or waits for a person (RA5.sequential)."""
    queued = [call for call in draft.calls.open.values() if call.stage == "queued"]
    if queued and not any(_holds_the_queue(call) for call in draft.calls.open.values()):
        _dispatch(draft, min(queued, key=_place))


def in_progress(draft: Draft, frame: FunctionCallInProgressFrame) -> Reason | None:
    """A call starts: the first start that is folded is applied (R3.1, RA5.start)."""
    tool_call_id = ToolCallId(frame.tool_call_id)
    call = draft.calls.open.get(tool_call_id)
    if call is None:
        if tool_call_id in draft.calls.barred:
            return "call_forgotten"
        if frame.call_attempt is not None:
            return _no_such_call(draft, tool_call_id)
        group = groups.found(draft, f"{draft.version}", _group_id(frame))
        call = Call(tool_call_id, frame.function_name, draft.version, 0, group, "dispatched")
    elif call.running is not None:
        return _started_again(draft, call, call.running, frame)
    elif not _may_start(call, by_a_worker=frame.call_attempt is not None):
        return "call_unknown"
    _start(draft, call, frame)
    return None


def result(draft: Draft, frame: FunctionCallResultFrame) -> Reason | None:
    """A result, final or in between, goes where its call was made (R3.4, R3.5); R3.7 says whether it asks."""
    found = _running(draft, ToolCallId(frame.tool_call_id), frame.call_attempt)
    if isinstance(found, str):
        return found
    call, running = found
    word = frame.run_llm
    if frame.properties is not None:
        if frame.properties.run_llm is not None:
            word = frame.properties.run_llm
        if not frame.properties.is_final:
            return _intermediate(draft, call, running, frame.result, word)
    _settle(draft, call, "done", frame.result)
    if running.synchronous:
        if running.era != draft.place.era:
            return "place_replaced"
        draft.rewrite(running.position, call_messages.result(call.tool_call_id, frame.result))
    else:
        draft.append(call_messages.later_result(call.tool_call_id, frame.result))
    if running.interrupted and frame.call_attempt is not None:
        groups.asks_only_for_who_waited(draft, call)
    else:
        has_result = frame.result is not None
        groups.answered(draft, call, word=word, has_result=has_result, synchronous=running.synchronous)
    if frame.result is not None:
        groups.had_result(draft, call)
    return None


def cancel(draft: Draft, frame: FunctionCallCancelFrame) -> Reason | None:
    """Settle a call as cancelled. One that has not started writes nothing and may not start any more (R3.4)."""
    tool_call_id = ToolCallId(frame.tool_call_id)
    call = draft.calls.open.get(tool_call_id)
    if call is None:
        return "target_over" if frame.opened_version is not None else _no_such_call(draft, tool_call_id)
    if frame.opened_version is not None and frame.opened_version != call.requested_version:
        return "target_over"
    if call.running is None:
        _bar(draft, call)
        _settle(draft, call, "cancelled")
        if frame.run_llm:
            groups.released(draft, call)
        return None
    running = call.running
    if _is_superseded(running, frame.call_attempt):
        return "attempt_superseded"
    _settle(draft, call, "cancelled")
    if running.synchronous:
        if running.era != draft.place.era:
            return "place_replaced"
        draft.rewrite(running.position, call_messages.cancelled(tool_call_id))
    else:
        draft.append(call_messages.later_cancelled(tool_call_id))
    if frame.run_llm:
        groups.answered(draft, call, word=None, has_result=True, synchronous=running.synchronous)
        groups.had_result(draft, call)
    return None


def interrupted(draft: Draft) -> set[str]:
    """Forget what has not started; what runs and can be cancelled is owed a cancel by its worker (R5.7).

    Returns the groups that lost a call by it.
    """
    touched = set()
    for call in _unstarted(draft):
        touched.add(call.group)
        _forget(draft, call)
    for call in tuple(draft.calls.open.values()):
        if call.running is not None and call.running.synchronous and not call.running.interrupted:
            touched.add(call.group)
            _put(draft, replace(call, running=replace(call.running, interrupted=True)))
    return touched


def end(draft: Draft) -> None:
    """The context ends: calls in progress are settled as cancelled in the order in which they started, announced ones
    are forgotten (R1.6)."""
    running = [(call.running.since, call) for call in draft.calls.open.values() if call.running is not None]
    for _, call in sorted(running, key=lambda pair: pair[0]):
        _settle_cancelled(draft, call)
    for call in _unstarted(draft):
        _forget(draft, call)


def forget_announced(draft: Draft, by: Callable[[Announced], bool]) -> None:
    """Forget the calls that were announced so and not committed: their run will not speak for them any more. A result
    that waited for them waits no longer (R3.7)."""
    if not draft.calls.open:
        return
    touched = []
    for call in _unstarted(draft):
        if call.stage == "announced" and call.announced is not None and by(call.announced):
            touched.append(call.group)
            _forget(draft, call)
    groups.wait_no_longer(draft, touched)


def _announcing_response(draft: Draft, frame: FunctionCallsStartedFrame) -> Version | None:
    response = draft.speech.response
    if response is None or (response.fenced and frame.run_id is None):
        return None
    return response.opened_version


def _may_start(call: Call, *, by_a_worker: bool) -> bool:
    """Whether this call is there to be started: it was dispatched, or announced without a run id by somebody who runs
    it himself. A worker, which names its attempt, starts only what was dispatched to it (RA5.start)."""
    if call.stage == "dispatched":
        return True
    if by_a_worker or call.stage != "announced":
        return False
    return call.announced is None or call.announced.run_id is None


def _start(draft: Draft, call: Call, frame: FunctionCallInProgressFrame) -> None:
    call = groups.joined(draft, call, _group_id(frame))
    draft.append(call_messages.call(call.tool_call_id, frame.function_name, frame.arguments))
    synchronous = frame.cancel_on_interruption
    position = draft.append(call_messages.started(call.tool_call_id, synchronous))
    running = Running(
        draft.version,
        synchronous,
        draft.place.era,
        position,
        None if frame.call_attempt is None else Attempt(frame.call_attempt),
        frame.worker,
        frame.safe_to_retry,
        frame.waiting is not None,
    )
    _put(draft, replace(call, stage="running", running=running))
    draft.changes.append(_started_change(call, frame, synchronous))
    if frame.waiting is not None:
        draft.changes.append(CallWaiting(_key(call), call.tool_call_id))
    if not synchronous:
        groups.turned_out_asynchronous(draft, call)


def _started_again(
    draft: Draft, call: Call, running: Running, frame: FunctionCallInProgressFrame
) -> Reason | None:
    """A start of a running call is the same call: its worker may say that it waits, and a call that is safe to retry
    may be taken over by a later attempt, which fences the one before (RA5.start)."""
    if (
        frame.waiting is not None
        and frame.call_attempt == running.call_attempt
        and frame.worker == running.worker
    ):
        _put(draft, replace(call, running=replace(running, waiting=True)))
        draft.changes.append(CallWaiting(_key(call), call.tool_call_id))
        return None
    if (
        running.safe_to_retry
        and frame.call_attempt is not None
        and frame.call_attempt > (running.call_attempt or 0)
    ):
        taken_over = replace(
            running,
            call_attempt=Attempt(frame.call_attempt),
            worker=frame.worker,
            waiting=frame.waiting is not None,
        )
        _put(draft, replace(call, running=taken_over))
        draft.changes.append(_started_change(call, frame, running.synchronous, again=True))
        return None
    return "call_started"


def _intermediate(draft: Draft, call: Call, running: Running, value: Any, word: bool | None) -> Reason | None:
    """A result in between: asynchronous calls only; it settles nothing and asks like a final one (R3.4, R3.6)."""
    if running.synchronous:
        return "intermediate_of_synchronous"
    if value is None:
        return "nothing_said"
    draft.append(call_messages.intermediate_result(call.tool_call_id, value))
    draft.changes.append(CallProgressed(_key(call), call.tool_call_id, value))
    groups.answered(draft, call, word=word, has_result=True, synchronous=False)
    return None


def _settle_cancelled(draft: Draft, call: Call) -> None:
    running = call.running
    assert running is not None
    _settle(draft, call, "cancelled")
    if not running.synchronous:
        draft.append(call_messages.later_cancelled(call.tool_call_id))
    elif running.era == draft.place.era:
        draft.rewrite(running.position, call_messages.cancelled(call.tool_call_id))


def _running(
    draft: Draft, tool_call_id: ToolCallId, call_attempt: int | None
) -> tuple[Call, Running] | Reason:
    call = draft.calls.open.get(tool_call_id)
    if call is None or call.running is None:
        return _no_such_call(draft, tool_call_id)
    if _is_superseded(call.running, call_attempt):
        return "attempt_superseded"
    return call, call.running


def _is_superseded(running: Running, call_attempt: int | None) -> bool:
    return call_attempt is not None and call_attempt < (running.call_attempt or 0)


def _no_such_call(draft: Draft, tool_call_id: ToolCallId) -> Reason:
    if tool_call_id in draft.calls.barred:
        return "call_forgotten"
    return "call_settled" if tool_call_id in draft.calls.settled else "call_unknown"


def _holds_the_queue(call: Call) -> bool:
    if call.announced is None or not call.announced.sequential:
        return False
    return call.stage == "dispatched" or (call.running is not None and not call.running.waiting)


def _unstarted(draft: Draft) -> list[Call]:
    """Open calls that have not started, in the order of their announcement."""
    unstarted = [call for call in draft.calls.open.values() if call.running is None]
    return sorted(unstarted, key=_place) if len(unstarted) > 1 else unstarted


def _place(call: Call) -> tuple[int, int]:
    return call.requested_version, call.ordinal


def _dispatch(draft: Draft, call: Call) -> None:
    _put(draft, replace(call, stage="dispatched"))
    draft.changes.append(CallDispatched(_key(call), call.tool_call_id))


def _forget(draft: Draft, call: Call) -> None:
    _bar(draft, call)
    _settle(draft, call, "forgotten")


def _settle(draft: Draft, call: Call, end: CallEnd, value: Any = None) -> None:
    calls = draft.calls
    still_open = {key: one for key, one in calls.open.items() if key != call.tool_call_id}
    settled = (*calls.settled, call.tool_call_id)[-SETTLED_REMEMBERED:]
    draft.calls = Calls(still_open, calls.groups, calls.barred, settled)
    draft.changes.append(CallSettled(_key(call), call.tool_call_id, end, value))


def _bar(draft: Draft, call: Call) -> None:
    barred = (*draft.calls.barred, call.tool_call_id)[-BARRED_REMEMBERED:]
    draft.calls = replace(draft.calls, barred=barred)


def _unbar(draft: Draft, tool_call_id: ToolCallId) -> None:
    if tool_call_id in draft.calls.barred:
        barred = tuple(one for one in draft.calls.barred if one != tool_call_id)
        draft.calls = replace(draft.calls, barred=barred)


def _put(draft: Draft, call: Call) -> None:
    calls = draft.calls
    draft.calls = Calls({**calls.open, call.tool_call_id: call}, calls.groups, calls.barred, calls.settled)


def _group_id(frame: FunctionCallsStartedFrame | FunctionCallInProgressFrame) -> GroupId | None:
    return None if frame.group_id is None else GroupId(frame.group_id)


def _key(call: Call) -> CallKey:
    return CallKey(call.requested_version, call.ordinal)


def _started_change(
    call: Call, frame: FunctionCallInProgressFrame, synchronous: bool, *, again: bool = False
) -> CallStarted:
    return CallStarted(
        _key(call),
        call.tool_call_id,
        frame.function_name,
        frame.arguments,
        _group_id(frame),
        None if frame.call_attempt is None else Attempt(frame.call_attempt),
        frame.worker,
        synchronous,
        again,
    )
