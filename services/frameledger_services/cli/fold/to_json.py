"""A folded file as one JSON object: the context, its open work, and every line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from frameledger.evolve.changes import Change
from frameledger.evolve.state import Call, State
from frameledger.evolve.text import trimmed
from frameledger.fold import Folding
from frameledger_services.frame_file import Line


def to_json(lines: Iterable[Line], folding: Folding) -> str:
    """Returns the object in ASCII on one line. It always has the same keys; inapplicable ones are null."""
    frames = [
        _line(line) for line in lines
    ]  # consumes the lines, so that the state below is the one after the last
    state, terms = folding.state, folding.state.terms
    values = {
        "context_id": state.context_id,
        "version": state.version,
        "messages": list(folding.messages),
        "tools": terms.tools,
        "tool_choice": terms.tool_choice,
        "settings": terms.settings,
        "prompt_caching": terms.prompt_caching,
        "skip_tts": terms.skip_tts,
        "recording": terms.recording,
        "ended": terms.ended,
        "limits": terms.limits,
        "mirror": terms.mirror,
        "open": open_parts(state),
        "frames": frames,
    }
    return json.dumps(values, allow_nan=False)


def open_parts(state: State) -> dict[str, Any]:
    """Returns the open work of the context: the user's turn, the model's response, the runs and the calls."""
    turn, speech, runs = state.turn, state.speech, state.runs
    response, thought, run, remembered = speech.response, speech.thought, runs.open, runs.wanted
    return {
        "turn": turn
        and {
            "opened_version": turn.opened_version,
            "speaking": turn.speaking,
            "words": trimmed(turn.words),
            "interim_pending": turn.interim_pending,
        },
        "response": response
        and {
            "opened_version": response.opened_version,
            "run_id": response.run_id,
            "text": trimmed(response.text),
        },
        "thought": thought and {"llm": thought.llm, "run_id": thought.run_id, "text": trimmed(thought.text)},
        "bot_speaking_since": speech.bot_since,
        "run": run
        and {
            "run_id": run.run_id,
            "asked_version": run.asked_version,
            "opened_version": run.opened_version,
            "attempt": run.attempt,
            "adopted": run.adopted,
        },
        "remembered_run": remembered
        and {"run_id": remembered.run_id, "asked_version": remembered.asked_version},
        "owed_to_turn": runs.owed_to_turn,
        "owed_to_bot": runs.owed_to_bot,
        "calls": [_call(call) for call in state.calls.open.values()],
        "ambiguous_calls": [_plain(one) for one in state.calls.ambiguous],
    }


def _call(call: Call) -> dict[str, Any]:
    running = call.running
    return {
        "tool_call_id": call.tool_call_id,
        "function_name": call.function_name,
        "requested_version": call.requested_version,
        "ordinal": call.ordinal,
        "stage": call.stage,
        "synchronous": running and running.synchronous,
        "call_attempt": running and running.call_attempt,
        "worker": running and running.worker,
        "waiting": running is not None and running.waiting,
        "owed_a_cancel": running is not None and running.interrupted,
    }


def _line(line: Line) -> dict[str, Any]:
    frame = line.frame
    return {
        "line": line.number,
        "version": line.version,
        "id": frame and frame.id,
        "type": frame and frame.type,
        "outcome": line.outcome,
        "reason": line.reason,
        "detail": line.detail,
        "asked": line.requests_run,
        "changes": [_change(change) for change in line.changes],
    }


def _change(change: Change) -> dict[str, Any]:
    return {"change": type(change).__name__, **_plain(change)}


def _plain(value: Any) -> Any:
    """Returns a value with nested dataclasses as JSON objects. JSON values are returned unchanged."""
    if is_dataclass(value) and not isinstance(value, type | Mapping):
        # `for_` stands for `for`, a keyword of Python.
        return {field.name.rstrip("_"): _plain(getattr(value, field.name)) for field in fields(value)}
    return value
