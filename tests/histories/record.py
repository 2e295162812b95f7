"""What a recorded history folds to, and how a new one is recorded.

    python -m tests.histories.record NAME

reads `NAME.jsonl` beside this file, one frame a line, and writes `NAME.expected.json`. It never overwrites: histories
are added, never edited. The context id of a history is its name, and its run ids are those that the fold derives.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from frameledger import effects
from frameledger.evolve import State, Step
from frameledger.evolve.changes import (
    Change,
    EraBegan,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
    RunRequested,
)
from frameledger.evolve.state import Call
from frameledger.fold import Conversation, Folding
from frameledger.react import react
from frameledger.record import decode

HISTORIES = Path(__file__).resolve().parent


def names() -> list[str]:
    """All histories, by name."""
    return sorted(path.stem for path in HISTORIES.glob("*.jsonl"))


def values(name: str) -> list[bytes]:
    """The frames of a history as the bytes that lie on the log, in order."""
    return (HISTORIES / f"{name}.jsonl").read_bytes().splitlines()


def expected(name: str) -> dict[str, Any]:
    """What a history folded to when it was recorded."""
    recorded: dict[str, Any] = json.loads((HISTORIES / f"{name}.expected.json").read_text(encoding="utf-8"))
    return recorded


def outcome(name: str) -> dict[str, Any]:
    """What a history folds to now, in the form of its expected file.

    `frames` says of each line what became of it, whether it asked for a run, what it wrote (an era that began; a
    message at its position; null where a message ended) and its effects; what says nothing is left out. `open` is
    what the next frame would find.
    """
    folding = Folding(Conversation.new(name))
    frames = []
    for value in values(name):
        frame, before = decode(value), folding.state
        step = folding.step(frame)
        if step is None:
            frames.append({"type": frame.type, "outcome": "repetition"})
            continue
        fates = [effects.to_wire(effect) for effect in react(before, frame, step.state)]
        frames.append(_became(frame.type, step, fates))
    terms = folding.state.terms
    result = {
        "frames": frames,
        "messages": list(folding.messages),
        "tools": list(terms.tools),
        "tool_choice": terms.tool_choice,
        "settings": dict(terms.settings),
        "open": _open(folding.state),
    }
    as_json: dict[str, Any] = json.loads(json.dumps(result))
    return as_json


def _became(frame_type: str, step: Step, fates: list[dict[str, Any]]) -> dict[str, Any]:
    said = {
        "reason": step.reason,
        "asked": any(isinstance(change, RunRequested) for change in step.changes),
        "wrote": list(_written(step.changes)),
        "effects": fates,
    }
    stands = {"version": step.state.version, "type": frame_type, "outcome": step.outcome}
    return stands | {name: value for name, value in said.items() if value}


def _written(changes: Iterable[Change]) -> Iterable[dict[str, Any]]:
    for change in changes:
        match change:
            case EraBegan():
                yield {"era": change.era}
            case MessageAppended() | MessageReplaced():
                yield {"at": change.position, "message": change.message}
            case MessageEnded():
                yield {"at": change.position, "message": None}


def _open(state: State) -> dict[str, Any]:
    ambiguous = [[one.tool_call_id, one.requested_version, one.ordinal] for one in state.calls.ambiguous]
    turn, response, run, wanted = state.turn, state.speech.response, state.runs.open, state.runs.wanted
    thought = state.speech.thought
    return {
        "version": state.version,
        "era": state.place.era,
        "next_position": state.place.next_position,
        "turn": turn
        and {
            "since": turn.opened_version,
            "speaking": turn.speaking,
            "words": turn.words and turn.words.joined(),
            "interim_pending": turn.interim_pending,
        },
        "response": response
        and {
            "since": response.opened_version,
            "run_id": response.run_id,
            "text": response.text and response.text.joined(),
        },
        "thought": thought and {"llm": thought.llm, "text": thought.text and thought.text.joined()},
        "bot_speaks_since": state.speech.bot_since,
        "run": run
        and {
            "run_id": run.run_id,
            "asked": run.asked_version,
            "opened": run.opened_version,
            "attempt": run.attempt,
            "adopted": run.adopted,
        },
        "remembered_run": wanted and wanted.run_id,
        "owed_to_turn": state.runs.owed_to_turn,
        "owed_to_bot": state.runs.owed_to_bot,
        "calls": {tool_call_id: _call(call) for tool_call_id, call in state.calls.open.items()},
        "barred": list(state.calls.barred),
        "prompt_caching": state.terms.prompt_caching,
        "skip_tts": state.terms.skip_tts,
        "recording": state.terms.recording,
        "ended": state.terms.ended,
        # The older histories have none, and their files stay as they are.
        **({"ambiguous": ambiguous} if ambiguous else {}),
        **({"limits": dict(state.terms.limits)} if state.terms.limits else {}),
        **({"rounds": state.pace.rounds} if state.pace.rounds and state.terms.limits else {}),
        **({"held": list(wanted.held)} if wanted is not None and wanted.held else {}),
        **({"mirror": state.terms.mirror} if state.terms.mirror is not None else {}),
    }


def _call(call: Call) -> dict[str, Any]:
    known = {"requested": [call.requested_version, call.ordinal], "stage": call.stage}
    running = call.running
    if running is None:
        return known
    return known | {
        "started": running.since,
        "synchronous": running.synchronous,
        "call_attempt": running.call_attempt,
        "waiting": running.waiting,
        "interrupted": running.interrupted,
    }


def as_text(result: dict[str, Any]) -> str:
    """The expected file: one line a frame and one a message, so that people can read it."""
    parts = []
    for key, value in result.items():
        if key in ("frames", "messages"):
            lines = ",\n".join(f"  {_line(one)}" for one in value)
            parts.append(f'"{key}": [\n{lines}\n]' if value else f'"{key}": []')
        else:
            parts.append(f'"{key}": {_line(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main(arguments: list[str]) -> int:
    """Record each history named; say why not otherwise. Returns the exit status."""
    if not arguments:
        print("usage: python -m tests.histories.record NAME...", file=sys.stderr)
        return 2
    for name in arguments:
        target = HISTORIES / f"{name}.expected.json"
        if name not in names():
            print(f"there is no {name}.jsonl in {HISTORIES}", file=sys.stderr)
            return 1
        if target.exists():
            print(
                f"{target.name} exists: a history is added, never edited; choose another name",
                file=sys.stderr,
            )
            return 1
        text = as_text(outcome(name))
        target.write_text(text, encoding="utf-8", newline="\n")
        print(f"recorded {target.name}: read it against events/rules.md before you keep it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
