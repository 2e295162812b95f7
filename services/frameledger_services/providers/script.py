"""Scripts: the answers of the provider `scripted`, and when it gives them. A value in Python, or a JSON file.

{"pace": 60,
 "replies": [
   {"when": {"user": "weather"},
    "say": [{"thought": "I need to look.", "signature": "c2ln"}, {"text": "Let me see. "},
            {"call": "get_weather", "arguments": {"city": "Oslo"}}]},
   {"when": {"result_of": "get_weather"}, "say": [{"text": "It rains."}]},
   {"when": {"user": "again"}, "times": 1, "say": [{"fail": "overloaded"}]},
   {"say": [{"delay": 0.5}, {"text": "I did not get that."}], "usage": {"input_tokens": 7}}]}

The first reply whose conditions in `when` all hold is given. A reply without `when` answers any user message; the
result of a function is only answered by a reply that names it (`result_of`), so that no reply calls for ever. If none
fits, the model repeats what it heard.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator

from frameledger.errors import RefusedError
from frameledger.frames import FinishReason, Usage

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
FailureKind = Literal[
    "overloaded",
    "rate_limited",
    "connection_lost",
    "cut",
    "refused_context",
    "refused",
    "timeout",
    "incomplete_call",
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Text(_Part):
    """Words, in pieces of about a token each."""

    text: str


class Thought(_Part):
    """A thought, in pieces like text."""

    thought: str
    signature: Any = None
    keep: bool = True
    """Whether it shall be stored in the context."""


class Call(_Part):
    """A function call. Calls are announced together, at the end, in the order in which they stand."""

    call: str
    arguments: Any = Field(default_factory=dict)
    """An object, or JSON text that is kept as that text."""

    id: str | None = None
    """Not given: one that is unique in the world."""


class Delay(_Part):
    """Silence, in seconds."""

    delay: Seconds


class Fail(_Part):
    """The answer ends here, with an error of this kind. `cut` is a stream without an end."""

    fail: FailureKind
    message: str = ""
    retry_after: Seconds | None = None


def _kind(step: object) -> str | None:
    names = step if isinstance(step, dict) else type(step).model_fields if isinstance(step, _Part) else ()
    return next((name for name in ("text", "thought", "call", "delay", "fail") if name in names), None)


ScriptStep = Annotated[
    Annotated[Text, Tag("text")]
    | Annotated[Thought, Tag("thought")]
    | Annotated[Call, Tag("call")]
    | Annotated[Delay, Tag("delay")]
    | Annotated[Fail, Tag("fail")],
    Discriminator(
        _kind,
        custom_error_type="no_step",
        custom_error_message="a step has one of the keys text, thought, call, delay, fail",
    ),
]


class When(_Part):
    """Conditions of a reply; those that are None are not checked. Patterns are searched for, ignoring case."""

    user: str | None = None
    """A pattern in the text of the last user message, which must be the last message of the request."""

    turn: Annotated[int, Field(ge=1)] | None = None
    """How many user messages there are."""

    result_of: str | None = None
    """The function whose result is the last message of the request."""

    result: str | None = None
    """A pattern in the text of that result."""

    @field_validator("user", "result")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return pattern


class Reply(_Part):
    """One answer."""

    say: Annotated[tuple[ScriptStep, ...], Field(strict=False)] = ()
    when: When = When()
    times: Annotated[int, Field(ge=1)] | None = None
    """How often this process gives this reply to one and the same request; afterwards later replies are looked at."""

    finish_reason: FinishReason | None = None
    """None: `tool_calls` with calls, else `stop`."""

    usage: Usage | None = None
    """None: counted."""


class Script(_Part):
    """Everything a scripted model says."""

    replies: Annotated[tuple[Reply, ...], Field(strict=False)] = ()
    pace: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Pieces a second, of text and thoughts; None: without pauses."""


class ScriptError(RefusedError):
    """A script file of the scripted provider cannot be read, or is no script.

    Remedy: Mend the file at the place that the message names.
    """


def read(path: Path) -> Script:
    """The script in a JSON file. Raises `ScriptError`."""
    try:
        return Script.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ScriptError(f"The script {path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ScriptError(f"{path} is no script: {where}: {first['msg']}.") from None
