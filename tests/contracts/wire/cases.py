"""The failures that a provider's protocol can cause, and the result of each that the inference service promises.

Both protocols can cause all of them. The first token of an answer, if there is one, is `"Hello"`.
"""

from dataclasses import dataclass

from frameledger_services.bench.inference.answers import (
    Answer,
    Arguments,
    Call,
    Cut,
    EndEarly,
    Failure,
    Garbage,
    Hang,
    Reply,
    StreamError,
    Text,
)
from frameledger_services.providers import errors


@dataclass(frozen=True)
class Case:
    reply: Reply
    error: type[errors.ProviderError] | None = None
    text: str = ""
    """The text of the answer, also of one that ends with an error."""
    finish_reason: str | None = None
    retry_after: float | None = None


HELLO = (Text("Hello"), Text(" there"))
CALLING = (Call(0, "call_0", "get_weather"), Arguments(0, '{"city"'))

CASES = {
    "streaming": Case(Answer((*HELLO, Text("."))), text="Hello there.", finish_reason="stop"),
    "paced": Case(Answer(HELLO, pace=200), text="Hello there", finish_reason="stop"),
    "slow first byte": Case(Answer(HELLO, first_byte_secs=0.3), text="Hello there", finish_reason="stop"),
    "empty answer": Case(Answer(), finish_reason="stop"),
    "length": Case(Answer(HELLO, finish="length"), text="Hello there", finish_reason="length"),
    "filtered": Case(
        Answer(HELLO, finish="content_filter"), text="Hello there", finish_reason="content_filter"
    ),
    "400": Case(Failure(400), errors.RefusedContextError),
    "401": Case(Failure(401), errors.ProviderRefusedError),
    "403": Case(Failure(403), errors.ProviderRefusedError),
    "404": Case(Failure(404), errors.ProviderRefusedError),
    "413": Case(Failure(413), errors.RefusedContextError),
    "429 with retry-after": Case(
        Failure(429, retry_after="2"), errors.ProviderUnavailableError, retry_after=2.0
    ),
    "429": Case(Failure(429), errors.ProviderUnavailableError),
    "500": Case(Failure(500), errors.ProviderUnavailableError),
    "529": Case(Failure(529), errors.ProviderUnavailableError),
    "error in the stream": Case(
        Answer((*HELLO, StreamError())), errors.ProviderUnavailableError, "Hello there"
    ),
    "garbage in the stream": Case(
        Answer((*HELLO, Garbage())), errors.ProviderUnavailableError, "Hello there"
    ),
    "refusal in the stream": Case(
        Answer((*HELLO, StreamError("invalid_request_error", "no"))),
        errors.RefusedContextError,
        "Hello there",
    ),
    "cut at once": Case(Answer((Cut(),)), errors.ConnectionLostError),
    "cut in the middle": Case(Answer((*HELLO, Cut())), errors.ConnectionLostError, "Hello there"),
    "ended in the middle": Case(Answer((*HELLO, EndEarly())), errors.ConnectionLostError, "Hello there"),
    "half a call": Case(Answer((*HELLO, *CALLING, EndEarly())), errors.ConnectionLostError, "Hello there"),
    "half a call at the limit": Case(
        Answer((*HELLO, *CALLING), finish="length"), errors.IncompleteCallError, "Hello there"
    ),
    "cut in a call": Case(Answer((*HELLO, *CALLING, Cut())), errors.ConnectionLostError, "Hello there"),
    "silent from the start": Case(Answer((Hang(),)), errors.CompletionTimeoutError),
    "silent in the middle": Case(Answer((*HELLO, Hang())), errors.CompletionTimeoutError, "Hello there"),
    "silent before the status": Case(Answer(HELLO, first_byte_secs=3600), errors.CompletionTimeoutError),
}
