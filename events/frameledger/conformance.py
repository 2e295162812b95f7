"""Plays conformance scenarios: reads them from standard input, and writes the results of the fold to standard output.

    python -m frameledger.conformance < scenarios.json > outcomes.json

Input is a list of `{name, frames, initial, config}`, output `{name: outcome}` with an outcome of `{messages, tools,
tool_choice, runs_after}`, or `{contexts: {label: outcome}}` if frames have a `context` label. Each frame passes through
the same steps as a real record: bytes, decode, upcast, fold. `runs_after` has the indexes of the frames that requested
an inference, including those while one was open. A scenario that cannot be played has no outcome; standard error has
the reason. A single scenario instead of a list results in its outcome alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from frameledger.evolve.changes import RunRequested
from frameledger.evolve.state import RequestParameters
from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger.record import DecodeError, decode

_KEYS_OF_THE_PLAYER = ("at", "queued")
"""Keys of a scenario's frame that are for the player and not part of the frame. `context` is one of them if it is text;
as an object it is the context that an `LLMContextFrame` opens."""


def play(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outcome of one scenario."""
    frames = scenario["frames"]
    labels = dict.fromkeys(label for frame in frames if (label := _label(frame)) is not None)
    if not labels:
        return _play_one(scenario, frames, label=None)
    return {"contexts": {label: _play_one(scenario, frames, label) for label in labels}}


def _play_one(scenario: Mapping[str, Any], frames: list[dict[str, Any]], label: str | None) -> dict[str, Any]:
    folding = Folding(_initial(scenario, label))
    runs_after = []
    for index, written in enumerate(frames):
        if _label(written) != label:
            continue
        frame = _decoded(written)
        step = None if frame is None else folding.step(frame)
        if step is not None and any(isinstance(change, RunRequested) for change in step.changes):
            runs_after.append(index)
    terms = folding.state.terms
    return {
        "messages": list(folding.messages),
        "tools": list(terms.tools) or None,
        "tool_choice": terms.tool_choice,
        "runs_after": runs_after,
    }


def _initial(scenario: Mapping[str, Any], label: str | None) -> Conversation:
    """Returns the context before the first frame, which announces and requests nothing."""
    initial, config = scenario.get("initial") or {}, scenario.get("config") or {}
    terms = RequestParameters(
        tools=tuple(initial.get("tools") or ()),
        tool_choice=initial.get("tool_choice"),
        settings={**(initial.get("settings") or {}), **config},
    )
    return Conversation.starting(ContextId(label or scenario["name"]), terms, initial.get("messages") or ())


def _label(written: Mapping[str, Any]) -> str | None:
    """Returns the conversation of a frame, if a scenario has several."""
    label = written.get("context")
    return label if isinstance(label, str) else None


def _decoded(written: Mapping[str, Any]) -> AnyFrame | None:
    """Returns the frame that a record with these bytes would contain; None for bytes that are not a frame, and for
    silence (`Elapse`)."""
    if written.get("type") == "Elapse":
        return None
    frame = {key: value for key, value in written.items() if key not in _KEYS_OF_THE_PLAYER}
    if _label(frame) is not None:
        del frame["context"]
    try:
        return decode(json.dumps(frame).encode())
    except DecodeError:
        return None


def main() -> None:
    # As bytes, because JSON is UTF-8 whatever the locale says.
    given = json.loads(sys.stdin.buffer.read())
    if isinstance(given, dict):
        json.dump(play(given), sys.stdout)
        return
    outcomes = []
    for scenario in given:
        try:
            outcomes.append(json.dumps({scenario["name"]: play(scenario)})[1:-1])
        except Exception as error:  # Only this scenario fails: the others keep their outcomes.
            name = scenario.get("name") if isinstance(scenario, dict) else scenario
            print(f"scenario {name!r} has no outcome: {error!r}", file=sys.stderr)
    sys.stdout.write(f"{{{', '.join(outcomes)}}}")


if __name__ == "__main__":
    main()
