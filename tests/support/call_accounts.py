"""Calls of simulated models, and the invariants of their frames, rows and effects at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.support.answerers import frame, rows
from tests.support.killable_tools import Effects
from tests.support.pipeline import Pipeline, Raw

from frameledger import derived
from frameledger.ids import ContextId, Version

STARTED, RESULT, CANCEL = "FunctionCallInProgressFrame", "FunctionCallResultFrame", "FunctionCallCancelFrame"
SETTLED = ("done", "failed", "ambiguous", "cancelled", "forgotten")


def call_of(context_id: str, number: int = 0) -> str:
    """Returns the id of a conversation's call of that number."""
    return f"{context_id}-{number}"


def asked(context_id: str, *functions: str, run_in_parallel: bool = True) -> list[Raw]:
    """Returns the frames of a new conversation whose model calls these functions."""
    run = {"run_id": derived.run_id(ContextId(context_id), Version(1)), "attempt": 1}
    calls = [
        {"tool_call_id": call_of(context_id, number), "function_name": name, "arguments": {}}
        for number, name in enumerate(functions)
    ]
    # A call of a function that is not among the tools is answered by any worker, as missing.
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}}}
        for name in dict.fromkeys(functions)
    ]
    message = {"role": "user", "content": "Please."}
    return [
        Raw(context_id.encode(), one)
        for one in (
            frame("LLMMessagesAppendFrame", messages=[message], run_llm=True),
            frame("LLMSetToolsFrame", tools=tools),
            frame("LLMFullResponseStartFrame", **run),
            frame("FunctionCallsStartedFrame", function_calls=calls, run_in_parallel=run_in_parallel, **run),
            frame("LLMFullResponseEndFrame", finish_reason="tool_calls", **run),
        )
    ]


def ask_for(pipeline: Pipeline, context_id: str, *functions: str, **batch: Any) -> list[str]:
    """Publish the conversation that `asked` returns. Returns the ids of the calls."""
    pipeline.publish(asked(context_id, *functions, **batch))
    return [call_of(context_id, number) for number in range(len(functions))]


def interrupt(pipeline: Pipeline, *context_ids: str) -> None:
    pipeline.publish([Raw(one.encode(), frame("InterruptionFrame")) for one in context_ids])


def status(pipeline: Pipeline, call: str) -> str | None:
    found = rows(pipeline, "SELECT status FROM tool_calls WHERE tool_call_id = %s", call)
    return found[0][0] if found else None


def until(pipeline: Pipeline, calls: Iterable[str], *statuses: str) -> None:
    """Wait until each of these calls is in one of these states; by default, until it has ended."""
    wanted = list(calls)
    pipeline.until(
        "SELECT count(*) = %s FROM tool_calls WHERE tool_call_id = ANY (%s) AND status = ANY (%s)",
        len(wanted),
        wanted,
        list(statuses or SETTLED),
    )


def until_at_rest(pipeline: Pipeline, calls: Iterable[str]) -> None:
    """Wait until these calls have ended and their claims are finished."""
    wanted = list(calls)
    until(pipeline, wanted)
    pipeline.until(
        "SELECT count(*) = 0 FROM claims WHERE tool_call_id = ANY (%s) AND finished_at IS NULL", wanted
    )


def check(
    pipeline: Pipeline,
    effects: Effects,
    calls: Iterable[str],
    *,
    safe: bool,
    interrupted: bool | None = False,
) -> None:
    """Assert the invariants of each of these calls after any fault; each has its own conversation. `interrupted` is
    None for an interruption that may have come before its end or after it."""
    for call in calls:
        said = f"{call}: {log_of(pipeline, call)}, effects {effects.of(call)}"
        [(how, attempt, result)] = rows(
            pipeline, "SELECT status, attempt, result FROM tool_calls WHERE tool_call_id = %s", call
        )
        starts = _applied(pipeline, call, STARTED)
        ends = _applied(pipeline, call, RESULT, CANCEL)
        done = effects.of(call)
        assert how in SETTLED, said
        assert len(ends) == (0 if how == "forgotten" else 1), said
        assert (len(starts) >= 1) == (how != "forgotten"), said
        assert len({key for _, key in done}) <= 1, said
        if not safe:
            assert len(done) <= 1, said
            assert len(starts) <= 1, said
            assert how != "forgotten" or not done, said
        if how == "done":
            # The effect that the result names happened, in the attempt that the tables have.
            assert result == {"attempt": attempt}, said
            assert attempt in [one for one, _ in done], said
        # Its end requested a run, unless it was interrupted.
        runs = rows(pipeline, "SELECT status FROM runs WHERE context_id = %s", call.rpartition("-")[0])
        assert len(runs) in {None: (1, 2), True: (1,), False: (2,)}[interrupted], (said, runs)


def log_of(pipeline: Pipeline, call: str) -> list[tuple[str, str, str | None, Any]]:
    """Returns type, outcome, reason and attempt of every frame of a call."""
    found: list[tuple[str, str, str | None, Any]] = rows(
        pipeline,
        "SELECT type, outcome, reason, (payload ->> 'call_attempt')::int FROM frames "
        "WHERE tool_call_id = %s ORDER BY version",
        call,
    )
    return found


def _applied(pipeline: Pipeline, call: str, *types: str) -> list[dict[str, Any]]:
    found = rows(
        pipeline,
        "SELECT payload::text FROM frames "
        "WHERE tool_call_id = %s AND type = ANY (%s) AND outcome = 'applied' ORDER BY version",
        call,
        list(types),
    )
    return [json.loads(payload) for (payload,) in found]
