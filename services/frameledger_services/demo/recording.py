"""The recording: what people and their programs publish in the demo's conversation, and what each of it waits for.

`conversation.jsonl` has one line for each frame, in their order. What only the conversation itself can say stands in a
frame as an object with the key `$`, and is filled in when its turn comes:

    {"$": "model"}                    the model of this demo
    {"$": "tools", "of": [names]}     these functions as live workers offer them
    {"$": "run"}, {"$": "attempt"}    of the answer that is being given
    {"$": "call", "of": name}         the id of the open call of a function
    {"$": "heard", "words": 16}       the first words of the answer that is being spoken

A line that needs an answer or a call where there is none is left out, and so is one with `only` if what it waited for
did not happen: a model need not do what was expected of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from frameledger.frames import AnyFrame
from frameledger.record import decode

CONVERSATION = Path(__file__).with_name("conversation.jsonl")
FORGOTTEN = Path(__file__).with_name("forgotten.jsonl")
"""A second, short conversation, which is erased."""

SCRIPT = Path(__file__).with_name("script.json")
"""What the model `scripted` says in it."""


class When(BaseModel):
    """What a line waits for; for nothing if nothing is set. If all comes to rest before that, it waits no longer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quiet: bool = False
    """`Talk.quiet`."""

    words: int | None = Field(None, ge=1)
    """The answer that is being given or spoken has so many words."""

    reported: str | None = None
    """A call of this function has sent a result in between."""


NOTHING = When()


class Line(BaseModel):
    """One line of the recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: When = NOTHING

    after: float = Field(0.0, ge=0)
    """Seconds after that, or after the line before it."""

    only: bool = False
    """It is left out if what it, or the last line before it that waited, waited for did not happen."""

    by: str
    """The participant that publishes it."""

    note: str = ""
    """What happens here, printed above it."""

    frame: dict[str, Any]

    @property
    def source(self) -> str:
        return f"frameledger/demo/{self.by}"


class Conversation(Protocol):
    """What lines are filled in from. None where there is no such thing."""

    @property
    def run(self) -> str | None: ...
    @property
    def attempt(self) -> int | None: ...
    def call(self, function_name: str) -> str | None: ...
    def heard(self, words: int) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What the demo was started with."""

    model: str
    tools: Mapping[str, Mapping[str, Any]]
    """The tools on offer, by name."""


class _MissingError(Exception):
    """What a line needs is not there."""


@cache
def lines(recorded: Path = CONVERSATION) -> tuple[Line, ...]:
    """A recording as it lies in its file."""
    return tuple(Line.model_validate_json(line) for line in recorded.read_bytes().splitlines())


def frame_of(line: Line, stage: Stage, conversation: Conversation) -> AnyFrame | None:
    """Returns the frame of a line, with an id; None if it is to be left out."""
    try:
        value = _filled(line.frame, stage, conversation)
    except _MissingError:
        return None
    return decode(json.dumps({"id": str(uuid4())} | value).encode())


def _filled(value: Any, stage: Stage, conversation: Conversation) -> Any:
    match value:
        case {"$": "model"}:
            return stage.model
        case {"$": "tools", "of": names}:
            return [stage.tools[name] for name in names]
        case {"$": "run"}:
            return _there(conversation.run)
        case {"$": "attempt"}:
            return _there(conversation.attempt)
        case {"$": "call", "of": name}:
            return _there(conversation.call(name))
        case {"$": "heard", "words": words}:
            # An answer that is cut off before its first word has no heard text, and that is a value.
            return conversation.heard(words)
        case dict():
            return {key: _filled(one, stage, conversation) for key, one in value.items()}
        case list():
            return [_filled(one, stage, conversation) for one in value]
        case _:
            return value


def _there(value: Any) -> Any:
    if value is None:
        raise _MissingError
    return value
