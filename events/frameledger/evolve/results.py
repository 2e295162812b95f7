"""How calls end: results, in between or final, and cancels; what they write and whether they ask (R3.4, R3.5, R3.7)."""

from __future__ import annotations

from typing import Any

from frameledger.evolve import call_messages, groups, open_calls
from frameledger.evolve.changes import CallProgressed
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Call, Running
from frameledger.frames import FunctionCallCancelFrame, FunctionCallResultFrame
from frameledger.ids import ToolCallId


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
    open_calls.settle(draft, call, "done", frame.result)
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
        return (
            "target_over"
            if frame.opened_version is not None
            else open_calls.no_such_call(draft, tool_call_id)
        )
    if frame.opened_version is not None and frame.opened_version != call.requested_version:
        return "target_over"
    if call.running is None:
        open_calls.bar(draft, call)
        open_calls.settle(draft, call, "cancelled")
        if frame.run_llm:
            groups.released(draft, call)
        return None
    running = call.running
    if _is_superseded(running, frame.call_attempt):
        return "attempt_superseded"
    settle_cancelled(draft, call, running)
    if running.synchronous and running.era != draft.place.era:
        return "place_replaced"
    if frame.run_llm:
        groups.answered(draft, call, word=None, has_result=True, synchronous=running.synchronous)
        groups.had_result(draft, call)
    return None


def settle_cancelled(draft: Draft, call: Call, running: Running) -> None:
    """Settle a running call and say so where it was made; where the history was replaced there is no such place."""
    open_calls.settle(draft, call, "cancelled")
    if not running.synchronous:
        draft.append(call_messages.later_cancelled(call.tool_call_id))
    elif running.era == draft.place.era:
        draft.rewrite(running.position, call_messages.cancelled(call.tool_call_id))


def _intermediate(draft: Draft, call: Call, running: Running, value: Any, word: bool | None) -> Reason | None:
    """A result in between: asynchronous calls only; it settles nothing and asks like a final one (R3.4, R3.6)."""
    if running.synchronous:
        return "intermediate_of_synchronous"
    if value is None:
        return "nothing_said"
    draft.append(call_messages.intermediate_result(call.tool_call_id, value))
    draft.changes.append(CallProgressed(open_calls.key(call), call.tool_call_id, value))
    groups.answered(draft, call, word=word, has_result=True, synchronous=False)
    return None


def _running(
    draft: Draft, tool_call_id: ToolCallId, call_attempt: int | None
) -> tuple[Call, Running] | Reason:
    call = draft.calls.open.get(tool_call_id)
    if call is None or call.running is None:
        return open_calls.no_such_call(draft, tool_call_id)
    if _is_superseded(call.running, call_attempt):
        return "attempt_superseded"
    return call, call.running


def _is_superseded(running: Running, call_attempt: int | None) -> bool:
    return call_attempt is not None and call_attempt < (running.call_attempt or 0)
