"""Frames of any type with arbitrary content, and the material of generated conversations."""

from random import Random
from typing import Any

from frameledger.frames import (
    FRAME_TYPES,
    AnyFrame,
    ContextSnapshot,
    ForkedFrom,
    Frame,
    FunctionCallFromLLM,
    FunctionCallResultProperties,
    LLMMessageRewriteFrame,
    Usage,
    Waiting,
    encode_frame,
)
from frameledger.record import decode
from frameledger.tools import of_client

HIGH_HALF, LOW_HALF = "\ud83d", "\ude00"
CALL_IDS = tuple(f"c{n}" for n in range(9))  # few, so that ids are used again
RESULTS: tuple[Any, ...] = (None, 0, False, "", [], {}, "sunny", {"degrees": 21.5}, ["a", None])
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
OTHER_TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
CLIENT_TOOL = of_client(TOOL)
# Messages of clients: whole histories, and also halves of calls that nobody will complete.
BROUGHT: tuple[dict[str, Any], ...] = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "brought"},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}]},
    {"role": "tool", "tool_call_id": "c2", "content": "7"},
    {"llm": "anthropic", "message": {"type": "thought", "text": "hm", "signature": "s"}},
)

# The values of an arbitrary frame by field name. Every field of every frame is listed here.
FIELD_VALUES: dict[str, tuple[Any, ...]] = {
    "v": (1,),
    "pts": (None, 0, -5, 2**40),
    "metadata": ({}, {"why": ["because"]}),
    "produced_at": (None, "2025-01-01T00:00:00Z"),
    "run_id": (None, "nobody"),
    "attempt": (None, 1, 2, 7),
    "claim": (None, "1f2e3d4c", "0a9b8c7d"),
    "messages": ((), BROUGHT[:2], BROUGHT[2:], BROUGHT[1:2]),
    "run_llm": (False, True),
    "tools": ((), (TOOL,), (TOOL, OTHER_TOOL), ({"google_search": {}},), (CLIENT_TOOL, OTHER_TOOL)),
    "tool_choice": ("auto", "none", {"type": "function", "function": {"name": "weather"}}),
    "settings": (
        {},
        {"temperature": 0.5},
        {"temperature": None},
        {"add_tool_change_messages": True},
        {"second_input": None},
        {"answered_elsewhere": True},
        {"answered_elsewhere": None},
        *({"second_input": way} for way in ("enqueue", "interrupt", "reject", "coalesce", 1)),
    ),
    "second_input": (None, "enqueue", "interrupt", "reject", "coalesce"),
    "calls_per_run": (None, 1, 2),
    "context_messages": (None, None, 3, 30),
    "context_bytes": (None, None, 9_000, 90_000),
    # Depends on the log's time, which these frames do not have: see `test_limits`.
    "frames_per_second": (None,),
    "runs_per_minute": (None, 1),
    "tokens_per_day": (None, 1000),
    "cost_per_day": (None, 0, 2.5),
    "rounds": (None, 1, 1, 2),
    "enable": (True, False),
    "skip_tts": (True, False),
    "context": (
        ContextSnapshot(),
        ContextSnapshot(messages=BROUGHT, tools=[TOOL], tool_choice="auto", settings={"seed": 1}),
    ),
    "react": (True, False),
    "mirror": (None, None, "m1", "m2"),
    "position": (1, 2, 7),
    "provider": (None, "scripted"),
    "model": (None, "m1"),
    "context_version": (None, 0, 9),
    "worker": (None, "worker-1", "worker-2"),
    "request_sha256": (None, "ab" * 32),
    "finish_reason": (None, "stop", "tool_calls", "error"),
    "usage": (None, Usage(), Usage(input_tokens=10, output_tokens=2, cache_read_tokens=0)),
    "text": ("", " ", "said", " said ", HIGH_HALF, LOW_HALF, "é"),
    "append_to_context": (True, False),
    "includes_inter_frame_spaces": (True, False),
    "llm": ("anthropic", "openai"),
    "signature": (None, "sig", {"sig": "YWJj+/="}, ""),
    "timestamp": ("12:00",),
    "message": ("", "lost"),
    "fatal": (True, False),
    "code": (None, "timeout"),
    "opened_version": (None, 0, 1, 5),
    "expected_version": (None, None, 0, 5),
    "why": ("asked",),
    "requested_by": (None, "operator"),
    "forked_from": (None, ForkedFrom(context_id="older", version=3, chain="ab" * 32)),
    "user_id": ("user", "other"),
    "language": (None, "de"),
    "heard_text": (None, "", " ", "heard"),
    "function_calls": (
        (),
        (FunctionCallFromLLM(function_name="weather", tool_call_id="c1", arguments={"city": "Lyon"}),),
        tuple(
            FunctionCallFromLLM(function_name="clock", tool_call_id=one, arguments="{}", builtin=one == "c3")
            for one in ("c2", "c3", "c2")
        ),
    ),
    "group_id": (None, "g1", "g2"),
    "run_in_parallel": (True, False),
    "group_parallel_tools": (True, False),
    "function_name": ("weather", "clock"),
    "tool_call_id": CALL_IDS,
    "arguments": ({}, {"city": "Lyon"}, '{"city": "Ly', None, [1]),
    "cancel_on_interruption": (True, False),
    "call_attempt": (None, 1, 2),
    "safe_to_retry": (True, False),
    "timeout_secs": (None, 0.5, 30),
    "waiting": (None, Waiting(for_="approval"), Waiting(for_="approval", deadline="tomorrow")),
    "result": RESULTS,
    "properties": (
        None,
        FunctionCallResultProperties(),
        FunctionCallResultProperties(is_final=False),
        FunctionCallResultProperties(run_llm=True),
        FunctionCallResultProperties(run_llm=False, is_final=False),
    ),
    "settled_as": (None, "done", "failed", "ambiguous", "resolved"),
    "is_realtime_service": (True, False),
    "user_turn_strategies": (None, {"start": ["vad"]}),
}


_ORDINARY = tuple(frame_type for name, frame_type in FRAME_TYPES.items() if name != "LLMContextEraseFrame")


def arbitrary(rng: Random) -> Frame:
    """Returns a frame of any type with arbitrary content, except erasures, after which a property can show little."""
    frame_type = rng.choice(_ORDINARY)
    fields = {
        name: rng.choice(FIELD_VALUES[name])
        for name, field in frame_type.model_fields.items()
        if name in FIELD_VALUES and (field.is_required() or name == "llm" or rng.random() < 0.4)
    }
    if frame_type is LLMMessageRewriteFrame:
        fields["message"] = rng.choice((None, *BROUGHT))
    return frame_type(**fields)


def as_from_a_record(frame: Frame) -> AnyFrame:
    return decode(encode_frame(frame))
