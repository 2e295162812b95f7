"""Scripts of the provider `scripted`: its answers and their conditions, as a Python value or a JSON file.

{"pace": 60,
 "replies": [
   {"when": {"user": "weather"},
    "say": [{"thought": "I need to look.", "signature": "c2ln"}, {"text": "Let me see. "},
            {"call": "get_weather", "arguments": {"city": "Oslo"}}]},
   {"when": {"result_of": "get_weather"}, "say": [{"text": "It rains."}]},
   {"when": {"user": "again"}, "times": 1, "say": [{"fail": "overloaded"}]},
   {"say": [{"delay": 0.5}, {"text": "I did not get that."}], "usage": {"input_tokens": 7}}]}

The model gives the first reply whose conditions in `when` all hold. A reply without `when` answers any user message.
Only a reply that names the function (`result_of`) answers a result, which prevents endless calls. If no reply matches,
the model repeats the message.
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
    """Text, streamed in pieces of about one token."""

    text: str


class Thought(_Part):
    """A thought, streamed like text."""

    thought: str
    signature: Any = None
    keep: bool = True
    """Whether the thought is stored in the context."""


class Call(_Part):
    """A function call. All calls of a reply are announced together at its end, in their order."""

    call: str
    arguments: Any = Field(default_factory=dict)
    """An object, or JSON text that is passed on as text."""

    id: str | None = None
    """The id of the call. None: a unique id is derived from the request."""


class Delay(_Part):
    """A pause, in seconds."""

    delay: Seconds


class Fail(_Part):
    """Ends the answer with an error of this kind. `cut` is a stream that ends without an end frame."""

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
        custom_error_message="a step needs one of the keys text, thought, call, delay, fail",
    ),
]


class When(_Part):
    """Conditions of a reply. None is not checked. A pattern may match anywhere in the text, ignoring case."""

    user: str | None = None
    """A pattern for the last user message, which must be the last message of the request."""

    turn: Annotated[int, Field(ge=1)] | None = None
    """The number of user messages."""

    result_of: str | None = None
    """The function whose result is the last message of the request."""

    result: str | None = None
    """A pattern for the text of that result."""

    @field_validator("user", "result")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid regular expression: {error}") from None
        return pattern


class Reply(_Part):
    """One answer."""

    say: Annotated[tuple[ScriptStep, ...], Field(strict=False)] = ()
    when: When = When()
    times: Annotated[int, Field(ge=1)] | None = None
    """How often this process gives this reply to the same request. After that, later replies are tried."""

    finish_reason: FinishReason | None = None
    """None: `tool_calls` with calls, else `stop`."""

    usage: Usage | None = None
    """None: the tokens are counted."""


class Script(_Part):
    """All answers of a scripted model."""

    replies: Annotated[tuple[Reply, ...], Field(strict=False)] = ()
    pace: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Pieces of text and thoughts per second; None: no pauses."""


class ScriptError(RefusedError):
    """A script file of the scripted provider cannot be read or is not valid.

    Remedy: Fix the file at the place that the message names.
    """


def read(path: Path) -> Script:
    """Returns the script in a JSON file. Raises `ScriptError`."""
    try:
        return Script.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ScriptError(f"The script {path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ScriptError(f"{path} is not a valid script: {where}: {first['msg']}.") from None
