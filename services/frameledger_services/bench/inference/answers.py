"""What a model server can be told to say, independent of the wire format: pieces in order, and failures between
them."""

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
    """Signs and ends the thought before it. Only in Anthropic's format."""

    signature: str


@dataclass(frozen=True, slots=True)
class RedactedThought:
    """A thought that only the provider can read. Only in Anthropic's format."""

    data: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A token of a refusal. OpenAI's format has a field for it; in Anthropic's it is text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """The start of a call: its position among the calls of this answer, its id and its function."""

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
    """A pause in seconds."""

    secs: float


@dataclass(frozen=True, slots=True)
class Ping:
    """A sign that the connection is alive, which is no piece of the answer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed in the middle of the stream."""


@dataclass(frozen=True, slots=True)
class EndEarly:
    """The response ends correctly for HTTP, but without the reason why the model stopped."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more is sent until the client disconnects."""


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that the provider reports inside a stream that has started."""

    kind: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An event that is not JSON; the stream ends there."""


Piece = (
    Text
    | Thought
    | Signature
    | RedactedThought
    | Refused
    | Call
    | Arguments
    | Pause
    | Ping
    | Cut
    | EndEarly
    | Hang
    | StreamError
    | Garbage
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token usage that the server reports."""

    read: int = 11
    written: int = 7
    from_cache: int = 0
    to_cache: int = 0
    thought: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `finish` is one of ours (stop, tool_calls, length, content_filter) or a value of the wire format.

    `pace` is in pieces per second; null sends all at once. `first_byte_secs` passes before even the status line.
    """

    pieces: tuple[Piece, ...] = ()
    finish: str = "stop"
    tokens: Tokens = Tokens()
    pace: float | None = None
    first_byte_secs: float = 0

    ending: Literal["whole", "cut", "silent", "hang"] = "whole"
    """`cut`: the connection is closed after the finish reason is sent. `silent`: after finish reason and usage nothing
    more is sent. `hang`: the last event is sent, and the response never ends."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error instead of an answer. `retry_after` is sent unchanged: seconds or a date."""

    status: int
    message: str = "told to fail"
    retry_after: str | None = None
    first_byte_secs: float = 0


Reply = Answer | Failure


def words(count: int, *, pace: float | None = None, first_byte_secs: float = 0) -> Answer:
    """Returns an answer of this many tokens, for benches."""
    pieces = tuple(Text(f" token{at}") for at in range(count))
    return Answer(pieces, tokens=Tokens(written=count), pace=pace, first_byte_secs=first_byte_secs)


def say(*tokens: str) -> Answer:
    """Returns an answer of these tokens, all sent at once."""
    return Answer(tuple(Text(token) for token in tokens))
