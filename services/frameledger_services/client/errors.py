"""What `publish` raises once frames were sent: always with the frames, so that they can be published again."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.errors import ConfigurationError, FrameledgerError, RefusedError, TransientError
from frameledger.frames import AnyFrame
from frameledger.record import LogPosition
from frameledger_services.client.outcomes import PublishedFrame


class NotPublishedError(FrameledgerError):
    """Some frames are not known to be on the log. `frames` are those, complete with their ids, in their order.

    They may still arrive. To publish them again is safe: a frame that comes twice counts once.

    Remedy: `FramesUnacknowledgedError`: publish them again. `FramesRefusedError`: mend them.
    """

    def __init__(self, sentence: str, frames: Sequence[AnyFrame]) -> None:
        super().__init__(sentence)
        self.frames = tuple(frames)


class FramesUnacknowledgedError(NotPublishedError, TransientError):
    """The broker did not acknowledge these frames in time, or something else than a gateway answered.

    Remedy: Publish `frames` again.
    """


class FramesRefusedError(NotPublishedError, RefusedError):
    """The broker or the gateway refuses one of these frames, as too large, unreadable or for a right that is missing:
    the message says which.

    Remedy: Mend or leave out the one, and publish the others again.
    """


class ContextChangedError(RefusedError):
    """The conversation is not what it was at the expected version: messages, tools or settings changed meanwhile, and
    the frame changed nothing. It is stored as ignored (`context_changed`), as the version `newest`.

    Remedy: Read the context again (`restore`), and say what is to be said of it in a new frame.
    """

    def __init__(self, context_id: str, expected: int, published: PublishedFrame) -> None:
        super().__init__(
            f"{published.type} {published.frame_id} was ignored: {context_id!r} has changed since version {expected}, "
            f"and is now at version {published.version}."
        )
        self.context_id = context_id
        self.expected = expected
        self.newest = published.version
        self.published = published


class NotVisibleError(TransientError):
    """The frames are on the log, at `places`, but within the time given they were not seen in the tables.

    `frames` are all of them, as they were sent, with ids and times. To publish them again is needless, and safe: a
    frame that comes twice counts once.

    Remedy: See with `frameledger status` whether a projector runs. The frames will be in the tables, or be
    rejected, once it has come so far.
    """

    def __init__(self, sentence: str, places: Sequence[LogPosition], frames: Sequence[AnyFrame] = ()) -> None:
        super().__init__(sentence)
        self.places = tuple(places)
        self.frames = tuple(frames)


class GatewayUnavailableError(TransientError):
    """The gateway is not reached, is stopping, has had too many requests, or its servers do not answer. The message
    says which. `retry_after` are the seconds that it asks to wait; 0 if it says nothing.

    Remedy: Try again, not before `retry_after` seconds; if it stays so, look at `/readyz` of the gateway.
    """

    def __init__(self, sentence: str, retry_after: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class NotPermittedError(ConfigurationError):
    """The gateway does not know the token, or the token may not do that.

    Remedy: Set `FRAMELEDGER_TOKEN` to a token with the scope that the message names: `frameledger token new`.
    """


class GatewayAnswerError(ConfigurationError):
    """Something else answers than a gateway of this release, or the gateway failed. The message has what it said.

    Remedy: Check `FRAMELEDGER_URL`, upgrade the older of the two, or look into the gateway's log.
    """

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
