"""Starts of calls: the first start that is folded is applied, and a later one may take over a call that is safe to
retry (R3.1, RA5.start)."""

from __future__ import annotations

from frameledger.evolve import call_messages, capacity, groups, open_calls
from frameledger.evolve.changes import CallStarted, CallWaiting
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import is_anothers, supersedes
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Call, Running
from frameledger.frames import FunctionCallInProgressFrame
from frameledger.ids import Attempt, ToolCallId
from frameledger.values import replace


def in_progress(draft: Draft, frame: FunctionCallInProgressFrame) -> Reason | None:
    """Start a call: the first start that is folded is applied (R3.1, RA5.start)."""
    tool_call_id = ToolCallId(frame.tool_call_id)
    call = draft.calls.open.get(tool_call_id)
    if _names_another_call(call, frame):
        return "call_forgotten" if call is None and tool_call_id in draft.calls.barred else "target_over"
    if call is None:
        if tool_call_id in draft.calls.barred:
            return "call_forgotten"
        if frame.call_attempt is not None:
            return open_calls.no_such_call(draft, tool_call_id)
        if _exceeds_capacity(draft, frame, None):
            return "context_full"
        group = groups.find_or_add(draft, f"{draft.version}", groups.id_of(frame))
        call = Call(tool_call_id, frame.function_name, draft.version, 0, group, "dispatched")
    elif call.running is not None:
        return _started_again(draft, call, call.running, frame)
    elif not _may_start(call, by_a_worker=frame.call_attempt is not None):
        return "call_unknown"
    elif _exceeds_capacity(draft, frame, call):
        # It cannot be written, so it must not run, and no result waits for it.
        open_calls.forget(draft, call)
        groups.wait_no_longer(draft, (call.group,))
        return "context_full"
    _start(draft, call, frame)
    return None


def _exceeds_capacity(draft: Draft, frame: FunctionCallInProgressFrame, call: Call | None) -> bool:
    return capacity.is_limited(draft) and not capacity.fits(draft, capacity.of_start(frame, call))


def _names_another_call(call: Call | None, frame: FunctionCallInProgressFrame) -> bool:
    """Whether the frame names, by `opened_version`, another call than the open one of its id. Several programs may have
    the function: without this check, a late start by one of them, after the call of another has ended, would be a new
    call (R3.1)."""
    return frame.opened_version is not None and (
        call is None or call.requested_version != frame.opened_version
    )


def _may_start(call: Call, *, by_a_worker: bool) -> bool:
    """Whether this call may start: it was dispatched, or announced without a run id by a program that runs it itself. A
    worker, which names its attempt, starts only calls that were dispatched to it (RA5.start)."""
    if call.stage == "dispatched":
        return True
    if by_a_worker or call.stage != "announced":
        return False
    return call.announced is None or call.announced.run_id is None


def _start(draft: Draft, call: Call, frame: FunctionCallInProgressFrame) -> None:
    call = groups.join(draft, call, groups.id_of(frame))
    draft.append_text(call_messages.call(call.tool_call_id, frame.function_name, frame.arguments))
    synchronous = frame.cancel_on_interruption
    position = draft.append_text(call_messages.started(call.tool_call_id, synchronous))
    running = Running(
        draft.version,
        synchronous,
        draft.place.era,
        position,
        None if frame.call_attempt is None else Attempt(frame.call_attempt),
        frame.worker,
        frame.safe_to_retry,
        frame.waiting is not None,
        claim=frame.claim,
    )
    open_calls.put(draft, call.in_stage("running", running))
    draft.changes.append(_started_change(call, frame, running))
    _note_waiting(draft, call, frame)
    if not synchronous:
        groups.turned_out_asynchronous(draft, call)


def _started_again(
    draft: Draft, call: Call, running: Running, frame: FunctionCallInProgressFrame
) -> Reason | None:
    """Apply the start of a running call: its worker may report that it waits, and a call that is safe to retry may be
    taken over by a later attempt, or under another claim of the same attempt, which fences the previous one
    (RA5.start)."""
    if (
        frame.waiting is not None
        and frame.call_attempt == running.call_attempt
        and frame.worker == running.worker
        and not is_anothers(frame.claim, running.claim)
    ):
        open_calls.put(draft, replace(call, running=replace(running, waiting=True)))
        _note_waiting(draft, call, frame)
        return None
    attempt = frame.call_attempt
    if (
        running.safe_to_retry
        and attempt is not None
        and supersedes(attempt, frame.claim, running.call_attempt or 0, running.claim)
    ):
        taken_over = replace(
            running,
            call_attempt=Attempt(attempt),
            worker=frame.worker,
            waiting=frame.waiting is not None,
            claim=frame.claim,
        )
        open_calls.put(draft, replace(call, running=taken_over))
        draft.changes.append(_started_change(call, frame, taken_over, again=True))
        _note_waiting(draft, call, frame)
        return None
    return "call_started"


def _note_waiting(draft: Draft, call: Call, frame: FunctionCallInProgressFrame) -> None:
    waiting = frame.waiting
    if waiting is not None:
        key = open_calls.key(call)
        draft.changes.append(CallWaiting(key, call.tool_call_id, waiting.for_, waiting.deadline))


def _started_change(
    call: Call, frame: FunctionCallInProgressFrame, running: Running, *, again: bool = False
) -> CallStarted:
    return CallStarted(
        open_calls.key(call),
        call.tool_call_id,
        frame.function_name,
        frame.arguments,
        groups.id_of(frame),
        running.call_attempt,
        running.worker,
        running.synchronous,
        running.safe_to_retry,
        None if again else frame.timeout_secs,
        again,
        running.claim,
    )
