"""What `publish` is given, as frames: frames, mappings, JSON texts, and lists of these."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from frameledger.frames import AnyFrame, Frame
from frameledger.frames.base import wire_form
from frameledger.record import DecodeError, decode
from frameledger.values import value
from frameledger_services.event_log.frame_defaults import with_defaults

FrameLike = AnyFrame | Mapping[str, Any] | str | bytes
"""One frame: an object of ours, its JSON as a mapping, or as text."""

Given = FrameLike | Sequence[FrameLike]

MOST_UNSURE = 1_000


@value
class Taken:
    """One frame that was given: the object, the frame that it is, and the same with an id and a time."""

    given: object
    frame: AnyFrame
    complete: AnyFrame


class Taking:
    """Takes what `publish` is given, for one client.

    A frame object is completed once for as long as it lives. Mappings and texts have no life of their own: a literal in
    a program is one object each time that its line runs. Of those it is remembered only what was not published for
    sure, until it is: the same object with the same content, given again, is the same frame.
    """

    def __init__(self) -> None:
        # By conversation and object, which is kept alive here: its number is still its own.
        self._unsure: OrderedDict[tuple[str, int], list[Taken]] = OrderedDict()

    def take(self, context_id: str, given: Iterable[Given]) -> list[Taken]:
        """Raises TypeError for what is no frame by its type, and ValueError for what is none by its content."""
        before = {key: list(taken) for key, taken in self._unsure.items()} if self._unsure else {}
        return [_taken(one, before.get((context_id, id(one)), [])) for one in _flat(given)]

    def note_unsure(self, context_id: str, taken: Sequence[Taken]) -> None:
        """It is not sure that these were published; the newest `MOST_UNSURE` objects are remembered."""
        self.note_published(context_id, taken)
        for one in taken:
            if not isinstance(one.given, Frame):
                self._unsure.setdefault((context_id, id(one.given)), []).append(one)
        while len(self._unsure) > MOST_UNSURE:
            self._unsure.popitem(last=False)

    def note_published(self, context_id: str, taken: Sequence[Taken]) -> None:
        """These are done with: given again, each is another frame, unless it is a frame object."""
        if self._unsure:
            for one in taken:
                self._unsure.pop((context_id, id(one.given)), None)


def _taken(given: object, before: list[Taken]) -> Taken:
    """`before`: as what this object was taken when it was not published for sure, once for each time it was given."""
    if isinstance(given, Frame):
        frame: Any = given
        return Taken(given, frame, with_defaults(frame))
    frame = _decoded(given)
    # A mapping may have been changed since.
    if before and before[0].frame == frame:
        return before.pop(0)
    return Taken(given, frame, with_defaults(frame))


def _flat(given: Iterable[Given]) -> Iterator[object]:
    for one in given:
        if isinstance(one, Sequence) and not isinstance(one, str | bytes):
            yield from one
        else:
            yield one


def _decoded(given: object) -> AnyFrame:
    try:
        match given:
            case bytes():
                return decode(given)
            case str():
                return decode(given.encode("utf-8", "surrogatepass"))
            case Mapping():
                return decode(_as_json(given))
    except DecodeError as error:
        raise ValueError(f"{error.detail} ({error.reason})") from None
    raise TypeError(_no_frame(given))


def _as_json(given: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(given, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The mapping of a frame cannot be written as JSON: {error}.") from error


def _plain(inside: Any) -> Any:
    plain = wire_form(inside)
    if plain is inside:
        if not isinstance(inside, Mapping):
            raise TypeError(f"{type(inside).__name__} is not JSON")
        plain = dict(inside)
    return plain


def _no_frame(given: object) -> str:
    if isinstance(given, type) and issubclass(given, Frame):
        return f"publish() was given the class {given.__name__} and not a frame of it: {given.__name__}(...)."
    return (
        f"publish() takes frames, mappings, JSON texts and lists of these, and was given {_kind(given)}: write "
        'LLMRunFrame(), {"type": "LLMRunFrame"} or \'{"type": "LLMRunFrame"}\'.'
    )


def _kind(given: object) -> str:
    return "None" if given is None else f"an object of type {type(given).__name__}"
