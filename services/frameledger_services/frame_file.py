"""A file with one frame as JSON on each line, folded as one conversation, with the outcome of each line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from frameledger.evolve.changes import Change, RunRequested
from frameledger.fold import Folding
from frameledger.frames import AnyFrame
from frameledger.ids import Version
from frameledger.record import MAX_VALUE_BYTES, DecodeError, decode

Outcome = Literal["applied", "ignored", "unknown", "duplicate", "rejected"]
"""The fold's outcomes, and two for lines that are not folded: a frame with the id of an earlier one, and an invalid
frame."""


@dataclass(frozen=True, slots=True)
class Line:
    """The outcome of a line. `number` counts from 1, including empty lines.

    `version` is None for a duplicate and for a rejected line, `frame` for the latter. `reason` is the fold's for an
    ignored frame and the decoder's for a rejected line; `detail` describes the latter for people.
    """

    number: int
    outcome: Outcome
    reason: str | None = None
    detail: str | None = None
    version: Version | None = None
    frame: AnyFrame | None = None
    changes: tuple[Change, ...] = ()

    @property
    def requests_run(self) -> bool:
        """Whether the frame requested an inference."""
        return any(isinstance(change, RunRequested) for change in self.changes)


def fold_lines(file: BinaryIO, folding: Folding, at: int | None = None) -> Iterator[Line]:
    """Fold the frames of a file, line by line as they are read, up to the first `at` frames.

    A line that is not a frame is rejected and changes nothing, like a dead letter on a log; it does not count as one of
    the `at` frames, while a duplicate does. Empty lines are skipped. Nothing of the file is kept in memory.
    """
    frames = 0
    lines = _lines(file)
    while frames != at:
        number, value = next(lines, (0, b""))
        if not number:
            return
        line = _fold(number, value, folding)
        frames += line.frame is not None
        yield line


def _fold(number: int, value: bytes, folding: Folding) -> Line:
    try:
        frame = decode(value)
    except DecodeError as error:
        return Line(number, "rejected", error.reason, error.detail)
    step = folding.step(frame)
    if step is None:
        return Line(number, "duplicate", frame=frame)
    if step.outcome == "parked":
        raise AssertionError("the fold parks nothing; only a store does")
    return Line(
        number, step.outcome, step.reason, version=step.state.version, frame=frame, changes=step.changes
    )


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yields each line that is not empty, with its number. Of a line that is too long for a frame, only the beginning:
    enough for the decoder to report that."""
    number = 0
    longest = MAX_VALUE_BYTES + 2  # with the end of a line as Windows writes it
    while line := file.readline(longest):
        number += 1
        rest = line
        while len(rest) == longest and not rest.endswith(b"\n"):
            rest = file.readline(longest)
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        if value.strip():
            yield number, value
