"""What a model server can be told to say, in no wire's terms: pieces in order, and the troubles between them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Text:
    """A token of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A token of a thought."""

    text: str


@dataclass(frozen=True, slots=True)
class Signature:
    """Signs the thought before it and ends it. Only Anthropic's wire has it."""

    signature: str


@dataclass(frozen=True, slots=True)
class RedactedThought:
    """A thought that only the provider can read. Only Anthropic's wire has it."""

    data: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A token of a refusal. OpenAI's wire has a field for it; Anthropic's says it as text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call begins: its place among the calls of this answer, its id and its function."""

    at: int
    tool_call_id: str
    function_name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the JSON text of a call's arguments. Pieces of several calls may interleave."""

    at: int
    piece: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence, in seconds."""

    secs: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed in the middle of the stream."""


@dataclass(frozen=True, slots=True)
class EndEarly:
    """The response ends as HTTP wants it, but without saying why the model stopped."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more is sent until the client leaves."""


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that the provider tells inside a stream that began well."""

    kind: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An event that is no JSON, where a stream that began well ends."""


Piece = (
    Text
    | Thought
    | Signature
    | RedactedThought
    | Refused
    | Call
    | Arguments
    | Pause
    | Cut
    | EndEarly
    | Hang
    | StreamError
    | Garbage
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the server says it has used."""

    read: int = 11
    written: int = 7
    from_cache: int = 0
    to_cache: int = 0
    thought: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `finish` is one of ours (stop, tool_calls, length, content_filter) or a wire's own word.

    `pace` is in pieces a second; null sends all at once. `first_byte_secs` passes before even the status line.
    """

    pieces: tuple[Piece, ...] = ()
    finish: str = "stop"
    tokens: Tokens = Tokens()
    pace: float | None = None
    first_byte_secs: float = 0

    ending: Literal["whole", "cut", "hang"] = "whole"
    """`cut`: the connection is closed once the reason of the end is told. `hang`: the response itself never ends."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error instead of an answer. `retry_after` is sent as it is: seconds or a date."""

    status: int
    message: str = "told to fail"
    retry_after: str | None = None
    first_byte_secs: float = 0


Reply = Answer | Failure


def words(count: int, *, pace: float | None = None, first_byte_secs: float = 0) -> Answer:
    """An answer of so many tokens, for benches."""
    pieces = tuple(Text(f" token{at}") for at in range(count))
    return Answer(pieces, tokens=Tokens(written=count), pace=pace, first_byte_secs=first_byte_secs)


def say(*tokens: str) -> Answer:
    """An answer of these tokens, all at once."""
    return Answer(tuple(Text(token) for token in tokens))
