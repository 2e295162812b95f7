"""What `publish` raises once frames were sent: always with the frames, so that they can be published again."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.errors import FrameledgerError, RefusedError, TransientError
from frameledger.frames import AnyFrame
from frameledger.record import Place


class NotPublishedError(FrameledgerError):
    """Some frames are not known to be on the log. `frames` are those, complete with their ids, in their order.

    They may still arrive. To publish them again is safe: a frame that comes twice counts once.

    Remedy: `FramesUnacknowledgedError`: publish them again. `FramesRefusedError`: mend them.
    """

    def __init__(self, sentence: str, frames: Sequence[AnyFrame]) -> None:
        super().__init__(sentence)
        self.frames = tuple(frames)


class FramesUnacknowledgedError(NotPublishedError, TransientError):
    """The broker did not acknowledge these frames in time.

    Remedy: Publish `frames` again.
    """


class FramesRefusedError(NotPublishedError, RefusedError):
    """The broker refuses one of these frames, as too large or for a right that is missing: the message says which.

    Remedy: Mend or leave out the one, and publish the others again.
    """


class NotVisibleError(TransientError):
    """The frames are on the log, at `places`, but within the time given they were not seen in the tables.

    `frames` are all of them, as they were sent, with ids and times. To publish them again is needless, and safe: a
    frame that comes twice counts once.

    Remedy: See with `frameledger status` whether a projector runs. The frames will be in the tables, or be
    rejected, once it has come so far.
    """

    def __init__(self, sentence: str, places: Sequence[Place], frames: Sequence[AnyFrame] = ()) -> None:
        super().__init__(sentence)
        self.places = tuple(places)
        self.frames = tuple(frames)
