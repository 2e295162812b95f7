"""Plays an answer in the format of any API: its pieces at their pace, the failures between them, and its end."""

from collections.abc import Iterator
from typing import Protocol

from frameledger_services.bench.inference.answers import (
    Answer,
    Arguments,
    Call,
    Cut,
    EndEarly,
    Garbage,
    Hang,
    Pause,
    Ping,
    RedactedThought,
    Refused,
    Signature,
    StreamError,
    Text,
    Thought,
)
from frameledger_services.bench.inference.http_wire import At, Step

Said = Text | Thought | Signature | RedactedThought | Refused | Call | Arguments
"""A piece that the model says."""


class WireFormat(Protocol):
    """The format of one API, for one answer."""

    ping: bytes
    garbage: bytes
    last: bytes
    """The event after which nothing follows."""

    def begin(self) -> Iterator[bytes]:
        """Yields the events before the first piece."""
        ...

    def piece(self, piece: Said) -> bytes | None:
        """Returns the events of a piece; None if this format has no such piece."""
        ...

    def error(self, kind: str, message: str) -> bytes: ...

    def finish(self) -> bytes:
        """Returns the events that say why the model stopped."""
        ...

    def usage(self) -> bytes:
        """Returns the event with the usage, if it is one of its own."""
        ...


def play(answer: Answer, wire: WireFormat) -> Iterator[Step]:
    """Yields the steps of an answer."""
    at = answer.first_byte_secs
    yield At(at)
    yield from wire.begin()
    for piece in answer.pieces:
        match piece:
            case Pause(secs):
                at += secs
                yield At(at)
                continue
            case Ping():
                yield wire.ping
            case Cut():
                yield "cut"
                return
            case Hang():
                yield "hang"
                return
            case EndEarly():
                return
            case StreamError(kind, message):
                yield wire.error(kind, message)
                return
            case Garbage():
                yield wire.garbage
                return
            case _:
                written = wire.piece(piece)
                if written is None:
                    continue
                yield written
        if answer.pace is not None:
            at += 1 / answer.pace
            yield At(at)
    yield wire.finish()
    if answer.ending == "cut":
        yield "cut"
        return
    if usage := wire.usage():
        yield usage
    if answer.ending != "silent":
        yield wire.last
    if answer.ending in ("silent", "hang"):
        yield "hang"
