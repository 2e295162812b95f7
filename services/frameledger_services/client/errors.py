"""What `publish` raises once frames were sent: always with the frames, so that they can be published again."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.frames import AnyFrame
from frameledger.record import Place


class NotPublishedError(Exception):
    """Some frames are not known to be on the log. `frames` are those, complete with their ids, in their order.

    They may still arrive. To publish them again is safe: a frame that comes twice counts once.
    """

    def __init__(self, sentence: str, frames: Sequence[AnyFrame]) -> None:
        super().__init__(sentence)
        self.frames = tuple(frames)


class NotVisibleError(Exception):
    """The frames are on the log, at `places`, and it is not known yet that the tables have them. They will, or be
    rejected.

    `frames` are all of them, as they were sent, with ids and times. To publish them again is needless, and safe: a
    frame that comes twice counts once.
    """

    def __init__(self, sentence: str, places: Sequence[Place], frames: Sequence[AnyFrame] = ()) -> None:
        super().__init__(sentence)
        self.places = tuple(places)
        self.frames = tuple(frames)
