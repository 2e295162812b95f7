"""The recording: the frames that people and their programs publish in the demo, and the condition of each.

`conversation.jsonl` has one line for each frame, in order. Values that are known only during the conversation are
objects with the key `$`, which are replaced when the line is published:

    {"$": "model"}                    the model of this demo
    {"$": "tools", "of": [names]}     these functions as live workers offer them
    {"$": "run"}, {"$": "attempt"}    of the current answer
    {"$": "call", "of": name}         the id of the open call of a function
    {"$": "heard", "words": 16}       the first words of the answer that is being spoken

A line that needs an answer or a call that does not exist is left out, and so is a line with `only` if its condition was
not met: a real model may behave differently from the recording.
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
"""The second, short conversation, which is erased."""

SCRIPT = Path(__file__).with_name("script.json")
"""The script of the provider `scripted`."""


class When(BaseModel):
    """The condition of a line; none if no field is set. A line stops waiting when nothing is active."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quiet: bool = False
    """`Talk.quiet`."""

    words: int | None = Field(None, ge=1)
    """The current answer has at least this many words."""

    reported: str | None = None
    """A call of this function has reported an intermediate result."""


NOTHING = When()


class Line(BaseModel):
    """A line of the recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: When = NOTHING

    after: float = Field(0.0, ge=0)
    """Seconds to wait after the condition is met, or after the previous line."""

    only: bool = False
    """Leave the line out if its condition, or that of the last line before it that has one, was not met."""

    by: str
    """The participant that publishes it."""

    note: str = ""
    """A remark, printed above the frame."""

    frame: dict[str, Any]

    @property
    def source(self) -> str:
        return f"frameledger/demo/{self.by}"


class Conversation(Protocol):
    """The source of values for `$` objects. Methods return None for a missing value."""

    @property
    def run(self) -> str | None: ...
    @property
    def attempt(self) -> int | None: ...
    def call(self, function_name: str) -> str | None: ...
    def heard(self, words: int) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """The fixed values of a demo."""

    model: str
    tools: Mapping[str, Mapping[str, Any]]
    """The available tools, by name."""


class _MissingError(Exception):
    """A value that a line needs does not exist."""


@cache
def lines(recorded: Path = CONVERSATION) -> tuple[Line, ...]:
    """Returns the lines of a recording."""
    return tuple(Line.model_validate_json(line) for line in recorded.read_bytes().splitlines())


def frame_of(line: Line, stage: Stage, conversation: Conversation) -> AnyFrame | None:
    """Returns the frame of a line with an id, or None if the line is left out."""
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
            # The heard text of an answer that is cut off before its first word is None, which is a valid value.
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
