"""Types and fields of frames that are not known and one edit from one that is: typing errors, most likely.

They cause a warning and are published all the same: what this release does not know, another one may.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

from frameledger.frames import FRAME_TYPES, AnyFrame, UnknownFrame


class MisspelledWarning(UserWarning):
    """A frame has a type or a field that is not known, and one edit away from one that is."""


def warn_of_misspelled(frame: AnyFrame) -> None:
    """Warn, by Python's `warnings`, of what in the frame is probably misspelled."""
    # Nearly every frame ends here. `model_extra` would cost more.
    if isinstance(frame, UnknownFrame) or frame.__pydantic_extra__:
        for sentence in misspelled(frame):
            warnings.warn(sentence, MisspelledWarning, stacklevel=2)


def misspelled(frame: AnyFrame) -> Iterator[str]:
    """Yields a sentence for each type and field of the frame that is probably misspelled."""
    if isinstance(frame, UnknownFrame):
        # A newer version of a type that we know is no typing error.
        if (meant := meant_type(frame.type)) is not None:
            yield f"{frame.type} is no type of frame that this release knows: did you mean {meant}?"
        return
    known = [field.alias or name for name, field in type(frame).model_fields.items()]
    for name in frame.__pydantic_extra__ or ():
        if (meant := _meant(name, known)) is not None:
            yield f"{frame.type} has no field {name!r}: did you mean {meant!r}?"


def meant_type(name: str) -> str | None:
    """Returns the type of frame that is one edit from this name; None if it is one itself, or there is none."""
    return None if name in FRAME_TYPES else _meant(name, FRAME_TYPES)


def _meant(name: str, known: Iterable[str]) -> str | None:
    return next((one for one in known if is_one_edit(name, one)), None)


def is_one_edit(word: str, other: str) -> bool:
    """Returns whether two words differ by one letter inserted, deleted or replaced, by two adjacent letters swapped
    (Damerau-Levenshtein distance 1), or by capitals only."""
    if word.lower() == other.lower():
        return word != other
    at = next(
        (at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other))
    )
    left, right = word[at:], other[at:]
    swapped = left[1:2] + left[:1] == right[:2] and left[2:] == right[2:]
    return left[1:] == right or left == right[1:] or left[1:] == right[1:] or swapped
