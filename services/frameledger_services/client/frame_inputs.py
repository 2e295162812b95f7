"""The accepted inputs of `publish`: frame objects, mappings, JSON texts, encoded frames, and lists of these."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from frameledger.frames import FRAME_TYPES, AnyFrame, Frame, OfContext
from frameledger.frames.base import INT64_MAX, wire_form
from frameledger.record import DecodeError, decode
from frameledger.values import value
from frameledger_services.client.reading import whole
from frameledger_services.event_log.frame_defaults import with_defaults


@value
class EncodedFrame:
    """A frame with an id that is already encoded and is published byte for byte. Created by `of`."""

    frame: AnyFrame
    encoded: bytes

    @classmethod
    def of(cls, encoded: bytes) -> Self:
        """Returns the frame that these bytes encode. Raises `DecodeError` for bytes that are not a frame, and
        ValueError for a frame without an id, because a retry would publish another frame."""
        frame = decode(encoded)
        if frame.id is None:
            raise ValueError("the frame has no id, without which a repetition could not be recognized")
        return cls(frame, encoded)


FrameLike = AnyFrame | EncodedFrame | Mapping[str, Any] | str | bytes
"""One frame: a frame object, its JSON as a mapping, or as text, or an `EncodedFrame`."""

FrameInput = FrameLike | Sequence[FrameLike]

MAX_REMEMBERED = 1_000
MAX_REMEMBERED_BYTES = 64 * 1024 * 1024
"""Maximum number of mappings and texts that may not have been published and are kept, and of their bytes of JSON."""


@value
class PreparedFrame:
    """One frame to be published: the caller's object, the frame, and the frame with an id and a time."""

    original: object
    frame: AnyFrame
    complete: AnyFrame
    encoded: bytes | None = None
    """The bytes to publish, if they are given."""


@value
class _Unconfirmed:
    frame: PreparedFrame
    size: int


class FramePreparation:
    """Makes frames of the inputs of one client's `publish`, so that publishing again after an error repeats none.

    A frame object gets its id and time once, for as long as it lives. Mappings and texts cannot: a literal in a program
    is the same object each time its line runs. So only those that may not have been published are kept: the same object
    with the same content, passed again, is the same frame.
    """

    def __init__(self) -> None:
        # By conversation and id. The object is kept alive here, so that no other object gets its id.
        self._unconfirmed: OrderedDict[tuple[str, str | None], _Unconfirmed] = OrderedDict()
        self._bytes = 0

    def prepare(self, context_id: str, inputs: Iterable[FrameInput]) -> list[PreparedFrame]:
        """Returns the frames in order. Raises TypeError for a value of another type, and ValueError for a value whose
        content is not a frame."""
        if not self._unconfirmed:
            return [_prepared(one, []) for one in _flat(inputs)]
        before = defaultdict[int, list[PreparedFrame]](list)
        for (where, _), one in self._unconfirmed.items():
            if where == context_id:
                before[id(one.frame.original)].append(one.frame)
        return [_prepared(one, before[id(one)]) for one in _flat(inputs)]

    def note_unconfirmed(
        self, context_id: str, frames: Sequence[PreparedFrame], sizes: Sequence[int]
    ) -> None:
        """Record that these, each with its size in bytes, may not have been published. The newest are kept:
        `MAX_REMEMBERED`, within `MAX_REMEMBERED_BYTES`, and the last one whatever its size."""
        self.note_published(context_id, frames)
        for frame, size in zip(frames, sizes, strict=True):
            if not isinstance(frame.original, Frame | EncodedFrame):
                self._forget((context_id, frame.complete.id))
                self._unconfirmed[context_id, frame.complete.id] = _Unconfirmed(frame, size)
                self._bytes += size
        while len(self._unconfirmed) > MAX_REMEMBERED or (
            self._bytes > MAX_REMEMBERED_BYTES and len(self._unconfirmed) > 1
        ):
            self._forget(next(iter(self._unconfirmed)))

    def note_published(self, context_id: str, frames: Sequence[PreparedFrame]) -> None:
        """Record that these are published, even if an error contained them: passed again, their mappings and texts are
        new frames."""
        if not self._unconfirmed:
            return
        published = {frame.complete.id for frame in frames}
        objects = {id(frame.original) for frame in frames}
        for key, one in list(self._unconfirmed.items()):
            where, frame_id = key
            if where == context_id and (frame_id in published or id(one.frame.original) in objects):
                self._forget(key)

    def _forget(self, key: tuple[str, str | None]) -> None:
        if (one := self._unconfirmed.pop(key, None)) is not None:
            self._bytes -= one.size


def expecting(prepared: Sequence[PreparedFrame], version: int) -> list[PreparedFrame]:
    """Returns the one frame, expecting this version of the context. Raises ValueError for more than one, since the
    others would not depend on it, and for a frame that cannot expect a version or expects another one; TypeError for a
    version that is not an integer."""
    if isinstance(version, bool) or not 0 <= (version := whole(version)) <= INT64_MAX:
        raise ValueError(
            f"expected_version counts the frames of a conversation from 0, so it cannot be {version!r}."
        )
    if len(prepared) != 1:
        raise ValueError(
            f"expected_version applies to a single frame, and publish() was given {len(prepared)}: each one changes "
            "the conversation for the next. One append can add several messages and request a run."
        )
    prepared_frame = prepared[0]
    if not isinstance(prepared_frame.frame, OfContext):
        raise ValueError(
            f"{prepared_frame.frame.type} cannot expect a version. The types that can are "
            f"{', '.join(name for name, kind in FRAME_TYPES.items() if issubclass(kind, OfContext))}."
        )
    if prepared_frame.frame.expected_version not in (None, version):
        raise ValueError(
            f"The frame has expected_version {prepared_frame.frame.expected_version}, and publish() was given "
            f"{version}. Give only one of them."
        )
    complete = prepared_frame.complete.model_copy(update={"expected_version": version})
    return [PreparedFrame(prepared_frame.original, prepared_frame.frame, complete)]


def _prepared(original: object, before: list[PreparedFrame]) -> PreparedFrame:
    """Returns the prepared frame. `before` has one entry for each time that this object was passed and may not have
    been published."""
    if isinstance(original, Frame):
        frame: Any = original
        return PreparedFrame(original, frame, with_defaults(frame))
    if isinstance(original, EncodedFrame):
        return PreparedFrame(original, original.frame, original.frame, original.encoded)
    frame = _decoded(original)
    # The mapping may have been changed meanwhile.
    if before and before[0].frame == frame:
        return before.pop(0)
    return PreparedFrame(original, frame, with_defaults(frame))


def _flat(inputs: Iterable[FrameInput]) -> Iterator[object]:
    for item in inputs:
        if isinstance(item, Sequence) and not isinstance(item, str | bytes):
            yield from item
        else:
            yield item


def _decoded(original: object) -> AnyFrame:
    try:
        match original:
            case bytes():
                return decode(original)
            case str():
                return decode(original.encode("utf-8", "surrogatepass"))
            case Mapping():
                return decode(_as_json(original))
    except DecodeError as error:
        message = f"{error.detail} ({error.reason})"
        if error.reason == "not_json":
            message = (
                f"publish() takes the JSON of a frame, but got another text: {message}. A message is a frame: "
                "LLMMessagesAppendFrame(messages=[...])."
            )
        raise ValueError(message) from None
    raise TypeError(_not_a_frame(original))


def _as_json(original: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(original, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The mapping of a frame cannot be encoded as JSON: {error}.") from error


def _plain(inside: Any) -> Any:
    plain = wire_form(inside)
    if plain is inside:
        if not isinstance(inside, Mapping):
            raise TypeError(f"{type(inside).__name__} is not JSON")
        plain = dict(inside)
    return plain


def _not_a_frame(original: object) -> str:
    if isinstance(original, type) and issubclass(original, Frame):
        name = original.__name__
        return f"publish() got the class {name} instead of a frame: write {name}(...)."
    kind = "None" if original is None else f"an object of type {type(original).__name__}"
    return (
        f"publish() takes frames, mappings, JSON texts and lists of these, but got {kind}: write "
        'LLMRunFrame(), {"type": "LLMRunFrame"} or \'{"type": "LLMRunFrame"}\'.'
    )
