"""Calls: announced, committed, dispatched, and forgotten if they may not start any more (R3.1, RA5.commit). For their
starts see `call_starts`, for their ends `results`.

A call is fenced by itself and not by its run, which is closed by the time it runs. A start always writes a pair: the
assistant message with the call and its tool message are appended in one step, so the context is valid for a provider
after every frame.
"""

from __future__ import annotations

from frameledger.evolve import call_messages, capacity, groups, limits, open_calls, results
from frameledger.evolve.changes import CallAnnounced, CallInterrupted, CallStarted, CallWaiting
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import refusal
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Announced, Call, Running
from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame
from frameledger.ids import Attempt, RunId, ToolCallId, Version
from frameledger.values import replace

WAITS_FOR_CLIENT = "the client"
"""`Waiting.for_` of a call that a client answers."""


def announced(draft: Draft, frame: FunctionCallsStartedFrame) -> Reason | None:
    """Register the announced calls: the end of their run dispatches them; without a run id they are never dispatched
    (RA5.commit)."""
    if frame.run_id is not None:
        reason = refusal(draft, frame)
        if reason is not None:
            return reason
    by = Announced(
        None if frame.run_id is None else RunId(frame.run_id),
        Attempt(frame.attempt or 1),
        _announcing_response(draft, frame),
        groups.id_of(frame),
        sequential=not frame.run_in_parallel,
        alone=not frame.group_parallel_tools,
    )
    reason = limits.announcement(draft, frame, by)
    if reason is not None:
        return reason
    shared: str | None = None
    skipped = 0
    for ordinal, one in enumerate(frame.function_calls):
        tool_call_id = ToolCallId(one.tool_call_id)
        if tool_call_id in draft.calls.open:
            skipped += 1
            continue
        if by.alone:
            group = groups.find_or_add(draft, f"{draft.version}.{ordinal}", None)
        else:
            group = shared = shared or groups.find_or_add(draft, f"{draft.version}", by.group_id)
        call = Call(tool_call_id, one.function_name, draft.version, ordinal, group, "announced", by)
        if _is_of_client(draft, by, one):
            call = replace(call, by_client=True, arguments=one.arguments)
        open_calls.put(draft, call)
        open_calls.remove_tombstone(draft, tool_call_id)
        draft.changes.append(
            CallAnnounced(
                open_calls.key(call),
                tool_call_id,
                one.function_name,
                one.arguments,
                by.run_id,
                by.group_id,
                one.builtin,
            )
        )
    return "call_open_already" if skipped and skipped == len(frame.function_calls) else None


def commit(draft: Draft, run_id: RunId, attempt: Attempt) -> None:
    """Dispatch the calls of the run's attempt at its end, sequential ones in turn (RA5.commit)."""
    for call in open_calls.unstarted(draft):
        by = call.announced
        if by is not None and by.run_id == run_id and by.attempt == attempt:
            if by.sequential:
                open_calls.put(draft, call.in_stage("queued"))
            else:
                _dispatch(draft, call)


def dispatch_next(draft: Draft) -> None:
    """Dispatch the next call of the context's sequential queue, which spans batches: a call is dispatched when the
    previous one has settled or waits (RA5.sequential). A call that a client answers waits at once, so the call after it
    is dispatched too."""
    queued = [call for call in draft.calls.open.values() if call.stage == "queued"]
    if not queued or any(_holds_the_queue(call) for call in draft.calls.open.values()):
        return
    for call in sorted(queued, key=open_calls.place):
        _dispatch(draft, call)
        dispatched = draft.calls.open.get(call.tool_call_id)
        if dispatched is not None and _holds_the_queue(dispatched):
            return


def interrupted(draft: Draft) -> set[str]:
    """Forget calls that have not started, and mark running synchronous ones as to be cancelled (R5.7). Returns the
    groups that lost a call.
    """
    touched = set()
    for call in open_calls.unstarted(draft):
        touched.add(call.group)
        open_calls.forget(draft, call)
    for call in tuple(draft.calls.open.values()):
        if call.running is not None and call.running.synchronous and not call.running.interrupted:
            touched.add(call.group)
            open_calls.put(draft, replace(call, running=replace(call.running, interrupted=True)))
            draft.changes.append(CallInterrupted(open_calls.key(call), call.tool_call_id))
    return touched


def end(draft: Draft) -> None:
    """At the end of the context, settle running calls as cancelled in the order in which they started, and forget the
    others (R1.6)."""
    started = [(call, call.running) for call in draft.calls.open.values() if call.running is not None]
    for call, running in sorted(started, key=lambda pair: pair[1].since):
        results.settle_cancelled(draft, call, running)
    for call in open_calls.unstarted(draft):
        open_calls.forget(draft, call)


def forget_announced(draft: Draft, run_id: RunId | None, response: Version | None = None) -> None:
    """Forget the calls that this run or response announced and can no longer commit. Results stop waiting for them
    (R3.7)."""
    if not draft.calls.open:
        return
    touched: dict[str, None] = {}
    for call in open_calls.unstarted(draft):
        if call.stage == "announced" and call.announced is not None:
            of_run = run_id is not None and call.announced.run_id == run_id
            if of_run or (response is not None and call.announced.response == response):
                touched[call.group] = None
                open_calls.forget(draft, call)
    groups.wait_no_longer(draft, touched)


def _is_of_client(draft: Draft, by: Announced, call: FunctionCallFromLLM) -> bool:
    """Whether a client answers a call, according to the tools that the run's model was offered, not the current ones
    (RA5.client)."""
    run = draft.runs.open
    if run is None or by.run_id != run.run_id or call.builtin:
        return False
    return call.function_name in run.client_functions


def _dispatch(draft: Draft, call: Call) -> None:
    """Let a worker start the call, or let it wait for the client that answers it."""
    open_calls.dispatch(draft, call)
    if call.by_client:
        _wait_for_client(draft, call)


def _wait_for_client(draft: Draft, call: Call) -> None:
    """Start a call that no worker starts: it is synchronous, and waits (RA5.client)."""
    if capacity.is_limited(draft) and not capacity.fits(draft, capacity.of_start(call, call)):
        open_calls.forget(draft, call)
        groups.wait_no_longer(draft, (call.group,))
        return
    key = open_calls.key(call)
    draft.append_text(call_messages.call(call.tool_call_id, call.function_name, call.arguments))
    position = draft.append_text(call_messages.started(call.tool_call_id, synchronous=True))
    running = Running(draft.version, True, draft.place.era, position, waiting=True)
    open_calls.put(draft, replace(call, stage="running", running=running, arguments=None))
    started = CallStarted(
        key, call.tool_call_id, call.function_name, call.arguments, None, None, None, synchronous=True
    )
    draft.changes.append(started)
    draft.changes.append(CallWaiting(key, call.tool_call_id, WAITS_FOR_CLIENT))


def _announcing_response(draft: Draft, frame: FunctionCallsStartedFrame) -> Version | None:
    response = draft.speech.response
    if response is None or (response.fenced and frame.run_id is None):
        return None
    return response.opened_version


def _holds_the_queue(call: Call) -> bool:
    if call.announced is None or not call.announced.sequential:
        return False
    return call.stage == "dispatched" or (call.running is not None and not call.running.waiting)
