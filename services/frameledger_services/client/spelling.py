"""Unknown types and fields of frames that are one edit away from a known one, and so most likely typing errors.

They cause a warning and are published nevertheless: another release may know them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice

from frameledger.frames import FRAME_TYPES, AnyFrame, UnknownFrame

MAX_GUESSED = 100
"""The number of unknown names of one publication that are checked. Each is compared with all known names, and a frame
may have hundreds of thousands."""


class MisspelledWarning(UserWarning):
    """A frame has an unknown type or field that is one edit away from a known one."""


def warn_of_misspelled(frames: Iterable[AnyFrame]) -> None:
    """Warn, with Python's `warnings`, about probably misspelled names among the first `MAX_GUESSED` unknown names of
    the frames."""
    for sentence in islice(_misspelled(frames), MAX_GUESSED):
        if sentence is not None:
            warnings.warn(sentence, MisspelledWarning, stacklevel=2)


def _misspelled(frames: Iterable[AnyFrame]) -> Iterator[str | None]:
    """Yields a sentence for each unknown type and field that is probably misspelled, and None for all others."""
    for frame in frames:
        if isinstance(frame, UnknownFrame):
            # A newer version of a known type is not a typing error.
            yield _of_type(frame.type)
        # Nearly every frame has none; `model_extra` would be slower.
        elif frame.__pydantic_extra__:
            known = [field.alias or name for name, field in type(frame).model_fields.items()]
            for name in frame.__pydantic_extra__:
                yield _of_field(frame.type, name, known)


def _of_type(name: str) -> str | None:
    closest = closest_type(name)
    return (
        None
        if closest is None
        else f"{name} is not a type of frame that this release knows: did you mean {closest}?"
    )


def _of_field(frame_type: str, name: str, known: Iterable[str]) -> str | None:
    closest = _closest(name, known)
    return None if closest is None else f"{frame_type} has no field {name!r}: did you mean {closest!r}?"


def closest_type(name: str) -> str | None:
    """Returns the type of frame that is one edit away from this name; None if the name is a type itself, or there is
    none."""
    return None if name in FRAME_TYPES else _closest(name, FRAME_TYPES)


def _closest(name: str, known: Iterable[str]) -> str | None:
    return next((one for one in known if is_one_edit(name, one)), None)


def is_one_edit(word: str, other: str) -> bool:
    """Returns whether two words differ by one letter inserted, deleted or replaced, by two adjacent letters swapped
    (Damerau-Levenshtein distance 1), or only by capitals."""
    if abs(len(word) - len(other)) > 1:
        # First, because a word may have megabytes.
        return False
    if word.lower() == other.lower():
        return word != other
    at = next(
        (at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other))
    )
    left, right = word[at:], other[at:]
    swapped = left[1:2] + left[:1] == right[:2] and left[2:] == right[2:]
    return left[1:] == right or left == right[1:] or left[1:] == right[1:] or swapped
