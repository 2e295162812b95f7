"""The default id and production time of frames, chosen once per frame object."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

from frameledger.frames import AnyFrame


def with_defaults(frame: AnyFrame) -> AnyFrame:
    """Returns the frame with an id and a production time: its own, or new ones.

    Called again with the same object, for instance to publish it again, it returns the same id and time. A copy
    (`model_copy`) is another object. Thread-safe.
    """
    if frame.id is not None and frame.produced_at is not None:
        return frame
    known = _known.get(id(frame))
    if known is None:
        # Two threads may get here with one object: the first completion counts.
        known = _known.setdefault(id(frame), _Completion(frame, _forget))
    return known.complete


def note_published(frame: AnyFrame, context_id: str) -> None:
    """Record that this object was published in this conversation, and that its publisher knows that."""
    if (known := _known.get(id(frame))) is not None:
        known.published_in = context_id


def was_published(frame: AnyFrame, context_id: str) -> bool:
    """Returns whether `note_published` was last called with this object and conversation. Objects with an id and a time
    of their own are not recorded."""
    known = _known.get(id(frame))
    return known is not None and known.published_in == context_id


class _Completion(weakref.ref[AnyFrame]):
    """The completed frame of a frame object, for as long as the object lives.

    Frames are compared by value and have no hash, so a `WeakKeyDictionary` cannot have them as keys, and an attribute
    of the object would be copied with it.
    """

    __slots__ = ("complete", "key", "published_in")

    def __init__(self, frame: AnyFrame, _: Callable[[weakref.ref[AnyFrame]], None]) -> None:
        self.key = id(frame)
        self.complete = _complete(frame)
        self.published_in: str | None = None


_known: dict[int, _Completion] = {}


def _forget(completion: weakref.ref[AnyFrame]) -> None:
    # Another object gets this id only after this entry was removed.
    assert isinstance(completion, _Completion)
    _known.pop(completion.key, None)


def _complete(frame: AnyFrame) -> AnyFrame:
    missing: dict[str, str] = {}
    if frame.id is None:
        missing["id"] = str(uuid4())
    if frame.produced_at is None:
        missing["produced_at"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    return frame.model_copy(update=missing)
