"""The bench of the core: the cost of decoding and folding, and its independence of the conversation's length.

- *decode*: `record.decode` against pydantic's `validate_json` on the bare union of the same models. Measures the cost
  of validating untrusted bytes on top of the parser.
- *decode, fold and apply*: bytes to a context's messages, for a mixed stream, against `json.loads` of the same bytes.
- *late in a conversation*: folding the same kind of frames at message 10,000 against message 10.

Works in one thread, on data in memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame, KnownFrame
from frameledger.record import decode
from frameledger_services.bench.report import Figure
from frameledger_services.bench.talk import talking
from frameledger_services.bench.timing import Work, compare

EARLY, LATE = 10, 10_000
"""Numbers of messages after which the cost of a frame is measured."""

WINDOW = 400
"""Number of frames folded at each."""


@dataclass(frozen=True, slots=True)
class History:
    """A recorded conversation: the id of its context and the bytes of each frame."""

    context_id: str
    values: tuple[bytes, ...]


def histories(folder: Path) -> list[History]:
    """Returns the non-empty files `NAME.jsonl` of a folder, with a frame per line; NAME is the context's id."""
    read = (
        History(path.stem, tuple(line for line in path.read_bytes().splitlines() if line.strip()))
        for path in sorted(folder.glob("*.jsonl"))
    )
    return [history for history in read if history.values]


def measure(stream: Sequence[History], rounds: int) -> list[Figure]:
    """Returns all figures over this many rounds. Raises `DecodeError` if a line is not a valid frame."""
    return [decoding(stream, rounds), folding(stream, rounds), lateness(rounds)]


def decoding(stream: Sequence[History], rounds: int) -> Figure:
    """Returns frames decoded per second. The bare union knows no old names and no unknown types, so these are left
    out."""
    bare: TypeAdapter[KnownFrame] = TypeAdapter(Annotated[KnownFrame, Field(discriminator="type")])
    validate_json = bare.validate_json
    values = [value for history in stream for value in history.values if _is_read_by(bare, value)]

    def ours() -> None:
        for value in values:
            decode(value)

    def yardstick() -> None:
        for value in values:
            validate_json(value)

    return _throughput("decode / bare pydantic", len(values), ours, yardstick, rounds, goal=0.7)


def folding(stream: Sequence[History], rounds: int) -> Figure:
    """Returns frames per second from bytes to the messages of their context, each history in its own context."""
    values = [value for history in stream for value in history.values]

    def ours() -> None:
        for history in stream:
            _fold(history)

    def yardstick() -> None:
        for value in values:
            json.loads(value)

    name = "decode, fold, apply / json.loads"
    return _throughput(name, len(values), ours, yardstick, rounds, goal=0.27)


def lateness(rounds: int) -> Figure:
    """Returns the microseconds to fold a frame into a long conversation, compared with a short one."""
    early, late = window_after(EARLY), window_after(LATE)
    compared = compare(late.prepare, early.prepare, rounds)
    return Figure(
        name=f"fold, apply at message {LATE:,} / {EARLY}",
        value=compared.ours / WINDOW * 1e6,
        unit="us/frame",
        yardstick=compared.yardstick / WINDOW * 1e6,
        ratio=compared.ratio,
        goal=1.1,
        bound="at most",
    )


@dataclass(frozen=True, slots=True)
class Window:
    """A conversation, and the frames that follow next."""

    conversation: Conversation
    frames: tuple[AnyFrame, ...]

    def prepare(self) -> Work:
        folding = Folding(self.conversation)

        def work() -> None:
            for frame in self.frames:
                folding.step(frame)

        return work


def window_after(messages: int) -> Window:
    """Returns a conversation of at least this many messages, and the `WINDOW` frames after them."""
    folding = Folding(Conversation.new("a-long-talk"))
    talk = talking(folding)
    while len(folding.messages) < messages:
        next(talk)
    conversation = folding.conversation()
    return Window(conversation, tuple(next(talk) for _ in range(WINDOW)))


def _fold(history: History) -> None:
    """Decode all frames and then fold them, like a projector does with a batch."""
    folding = Folding(Conversation.new(history.context_id))
    for frame in [decode(value) for value in history.values]:
        folding.step(frame)


def _is_read_by(bare: TypeAdapter[KnownFrame], value: bytes) -> bool:
    try:
        bare.validate_json(value)
    except ValidationError:
        return False
    return True


def _throughput(name: str, count: int, ours: Work, yardstick: Work, rounds: int, goal: float) -> Figure:
    compared = compare(lambda: ours, lambda: yardstick, rounds)
    return Figure(
        name=name,
        value=count / compared.ours,
        unit="frames/s",
        yardstick=count / compared.yardstick,
        ratio=1 / compared.ratio,
        goal=goal,
        bound="at least",
    )
