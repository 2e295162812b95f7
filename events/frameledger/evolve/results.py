"""How calls end: intermediate and final results, and cancels; what they write and whether they request a run (R3.4,
R3.5, R3.7).

An ambiguous call has a second end: a person reports its outcome (R3.8).
"""

from __future__ import annotations

from frameledger.evolve import call_messages, capacity, groups, open_calls, runs
from frameledger.evolve.changes import CallEnd, CallKey, CallProgressed, CallResolved, Message
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import is_anothers
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Ambiguous, Call, Running
from frameledger.frames import FunctionCallCancelFrame, FunctionCallResultFrame
from frameledger.ids import ToolCallId
from frameledger.values import replace


def result(draft: Draft, frame: FunctionCallResultFrame) -> Reason | None:
    """Write a final or intermediate result where its call was made (R3.4, R3.5); R3.7 decides whether it requests a
    run."""
    if frame.settled_as == "resolved":
        return _resolve(draft, frame)
    found = _running(draft, frame)
    if isinstance(found, str):
        return found
    call, running = found
    properties, value = frame.properties, frame.result
    if properties is not None and not properties.is_final:
        return _intermediate(draft, call, running, frame)
    has_room = not capacity.is_limited(draft) or capacity.fits(draft, capacity.of_result(frame))
    open_calls.settle(draft, call, _end(frame), value)
    if not has_room:
        groups.wait_no_longer(draft, (call.group,))
        return "context_full"
    if running.synchronous:
        if _has_no_place(draft, running):
            if _run_llm(frame) is not False:
                groups.lost_a_place(draft, call)
            return "place_replaced"
        _write(draft, running, call_messages.result(call.tool_call_id, value))
    else:
        draft.append_text(call_messages.later_result(call.tool_call_id, value))
    if running.interrupted and frame.call_attempt is not None:
        groups.request_only_for_waiting(draft, call)
    else:
        groups.answered(
            draft,
            call,
            run_llm=_run_llm(frame),
            has_result=value is not None,
            synchronous=running.synchronous,
        )
    if value is not None:
        groups.had_result(draft, call)
    return None


def cancel(draft: Draft, frame: FunctionCallCancelFrame) -> Reason | None:
    """Settle a call as cancelled. A call that has not started writes nothing and may not start any more (R3.4)."""
    call = _named_call(draft, frame)
    if isinstance(call, str):
        return call
    if call.running is None:
        open_calls.tombstone(draft, call)
        open_calls.settle(draft, call, "cancelled")
        if frame.run_llm:
            groups.released(draft, call)
        return None
    running = call.running
    if _is_superseded(running, frame):
        return "attempt_superseded"
    settle_cancelled(draft, call, running)
    if running.synchronous and _has_no_place(draft, running):
        if frame.run_llm:
            groups.lost_a_place(draft, call)
        return "place_replaced"
    if frame.run_llm:
        if running.interrupted and frame.call_attempt is not None:
            groups.request_only_for_waiting(draft, call)
        else:
            groups.answered(draft, call, run_llm=None, has_result=True, synchronous=running.synchronous)
        groups.had_result(draft, call)
    return None


def settle_cancelled(draft: Draft, call: Call, running: Running) -> None:
    """Settle a running call as cancelled, and write that where it was made, unless the history was replaced."""
    open_calls.settle(draft, call, "cancelled")
    if not running.synchronous:
        draft.append_text(call_messages.later_cancelled(call.tool_call_id))
    elif not _has_no_place(draft, running):
        _write(draft, running, call_messages.cancelled(call.tool_call_id))


def _has_no_place(draft: Draft, running: Running) -> bool:
    """Whether the history no longer has the tool message of a synchronous call. Always false in a mirror, whose
    messages another program writes."""
    if draft.terms.mirror is not None:
        return False
    return running.position is None or running.era != draft.place.era


def _write(draft: Draft, running: Running, message: Message) -> None:
    if running.position is not None:
        draft.rewrite(running.position, message)


def _resolve(draft: Draft, frame: FunctionCallResultFrame) -> Reason | None:
    """Accept a person's result of an ambiguous call, once: append it as a message, and request a run as for a result
    that waits for no other call (R3.8)."""
    tool_call_id = ToolCallId(frame.tool_call_id)
    if tool_call_id in draft.calls.open:
        return "call_open_already"
    one = _newest_ambiguous(draft, tool_call_id, frame.opened_version)
    if one is None:
        return _reason_without_call(draft, tool_call_id, frame.opened_version)
    others = tuple(other for other in draft.calls.ambiguous if other is not one)
    draft.calls = replace(draft.calls, ambiguous=others)
    draft.append_text(call_messages.later_result(tool_call_id, frame.result))
    key = CallKey(one.requested_version, one.ordinal)
    draft.changes.append(CallResolved(key, tool_call_id, frame.result))
    run_llm = _run_llm(frame)
    if run_llm or (run_llm is None and frame.result is not None):
        runs.request_for_result(draft)
    return None


def _newest_ambiguous(draft: Draft, tool_call_id: ToolCallId, opened_version: int | None) -> Ambiguous | None:
    for one in reversed(draft.calls.ambiguous):
        if one.tool_call_id == tool_call_id and opened_version in (None, one.requested_version):
            return one
    return None


def _intermediate(
    draft: Draft, call: Call, running: Running, frame: FunctionCallResultFrame
) -> Reason | None:
    """Append an intermediate result of an asynchronous call: it settles nothing and requests a run like a final one
    (R3.4, R3.6)."""
    if running.synchronous:
        return "intermediate_of_synchronous"
    if frame.result is None:
        return "nothing_said"
    draft.append_text(call_messages.intermediate_result(call.tool_call_id, frame.result))
    draft.changes.append(CallProgressed(open_calls.key(call), call.tool_call_id, frame.result))
    groups.answered(draft, call, run_llm=_run_llm(frame), has_result=True, synchronous=False)
    return None


def _end(frame: FunctionCallResultFrame) -> CallEnd:
    settled_as = frame.settled_as
    return settled_as if settled_as in ("failed", "ambiguous") else "done"


def _run_llm(frame: FunctionCallResultFrame) -> bool | None:
    """The explicit `run_llm`, or None: that of the properties outranks the frame's."""
    if frame.properties is not None and frame.properties.run_llm is not None:
        return frame.properties.run_llm
    return frame.run_llm


def _running(draft: Draft, frame: FunctionCallResultFrame) -> tuple[Call, Running] | Reason:
    call = _named_call(draft, frame)
    if isinstance(call, str):
        return call
    if call.running is None:
        return open_calls.no_such_call(draft, call.tool_call_id)
    if _is_superseded(call.running, frame):
        return "attempt_superseded"
    return call, call.running


def _named_call(draft: Draft, frame: FunctionCallResultFrame | FunctionCallCancelFrame) -> Call | Reason:
    """The open call that the frame names, or why there is none; `opened_version` distinguishes it from later calls with
    its id."""
    tool_call_id = ToolCallId(frame.tool_call_id)
    call = draft.calls.open.get(tool_call_id)
    if call is None:
        return _reason_without_call(draft, tool_call_id, frame.opened_version)
    if frame.opened_version is not None and frame.opened_version != call.requested_version:
        return "target_over"
    return call


def _reason_without_call(draft: Draft, tool_call_id: ToolCallId, opened_version: int | None) -> Reason:
    return "target_over" if opened_version is not None else open_calls.no_such_call(draft, tool_call_id)


def _is_superseded(running: Running, frame: FunctionCallResultFrame | FunctionCallCancelFrame) -> bool:
    """Whether the frame comes from an earlier attempt than the latest start, or from another claim."""
    if frame.call_attempt is not None and frame.call_attempt < (running.call_attempt or 0):
        return True
    return is_anothers(frame.claim, running.claim)
