"""Errors of the client. Those of `publish` carry the frames, so that they can be published again."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.errors import ConfigurationError, FrameledgerError, RefusedError, TransientError
from frameledger.frames import AnyFrame
from frameledger.record import LogPosition
from frameledger_services.client.outcomes import PublishedFrame


class NotPublishedError(FrameledgerError):
    """Some frames may not be on the log. `frames` has them in order, complete with their ids.

    They may still arrive. Publishing them again is safe: a frame that is published twice counts once.

    Remedy: `FramesUnacknowledgedError`: publish them again. `FramesRefusedError`: correct them.
    """

    def __init__(self, sentence: str, frames: Sequence[AnyFrame]) -> None:
        super().__init__(sentence)
        self.frames = tuple(frames)


class FramesUnacknowledgedError(NotPublishedError, TransientError):
    """The broker did not acknowledge these frames in time, or the response says nothing about the frames, for
    instance because the gateway failed.

    Remedy: Publish `frames` again.
    """


class FramesRefusedError(NotPublishedError, RefusedError):
    """The broker or the gateway rejects one of these frames: it is too large, it is invalid, or a permission is
    missing. The message says which frame and why.

    Remedy: Correct or omit that frame, and publish the others again.
    """


class ContextChangedError(RefusedError):
    """Messages, tools or settings of the conversation changed after the expected version, so the frame was not applied.
    It is stored with the outcome `ignored` (`context_changed`), as version `newest`.

    Remedy: Read the context again (`restore`) and publish a new frame.
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


class ConversationParkedError(RefusedError):
    """The conversation is parked: its newest frames are stored but not folded, so its newest context is unknown. The
    message says whether a frame of the caller is among them; that frame counts once the conversation is unparked.

    Remedy: Fix the cause (`frameledger parked` shows the error), and run `frameledger unpark`. Then read the context
    again; do not publish stored frames again.
    """

    def __init__(self, context_id: str, stored: str | None = None) -> None:
        """`stored` is the type of a frame of the caller that is also stored but not folded."""
        also = "" if stored is None else f" This {stored} is one of them; it counts once it is folded."
        super().__init__(
            f"{context_id!r} is parked (frameledger parked): its newest frames are stored and not folded, so its "
            f"newest context is not known.{also} Fix the cause, then run frameledger unpark."
        )
        self.context_id = context_id
        self.stored = stored


class FrameRejectedError(RefusedError):
    """A frame is on the log but in no conversation: the projector rejected it, for the reason in the message.

    Remedy: For `context_erased` use another id, or run the projectors with `FRAMELEDGER_ERASED_IDS=reuse`. For other
    reasons see `frameledger dlq list`.
    """

    def __init__(self, context_id: str, published: PublishedFrame) -> None:
        super().__init__(
            f"{published.type} {published.frame_id} of {context_id!r} was rejected ({published.reason}): it is in "
            "rejected_frames, and in no conversation."
        )
        self.context_id = context_id
        self.published = published


class NotVisibleError(TransientError):
    """The frames are on the log, at `places`, but were not stored in the tables in time.

    `frames` has all of them as they were sent, with ids and times. Publishing them again is not necessary, but safe: a
    frame that is published twice counts once.

    Remedy: Check with `frameledger status` that a projector runs. It stores or rejects the frames when it reaches them.
    """

    def __init__(self, sentence: str, places: Sequence[LogPosition], frames: Sequence[AnyFrame] = ()) -> None:
        super().__init__(sentence)
        self.places = tuple(places)
        self.frames = tuple(frames)


class GatewayUnavailableError(TransientError):
    """The gateway is unreachable, is stopping, limits the rate, or its Kafka or PostgreSQL is down; the message says
    which. `retry_after` is the number of seconds to wait; 0 if the gateway did not specify it.

    Remedy: Try again after `retry_after` seconds; if the error persists, check `/readyz` of the gateway.
    """

    def __init__(self, sentence: str, retry_after: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class NotPermittedError(ConfigurationError):
    """The gateway does not know the token, or the token lacks a permission.

    Remedy: Set `FRAMELEDGER_TOKEN` to a token with the scope that the message names: `frameledger token new`.
    """


class GatewayAnswerError(ConfigurationError):
    """The response does not come from a gateway of this release, or the gateway failed. The message quotes the
    response.

    Remedy: Check `FRAMELEDGER_URL`, upgrade client or gateway, or read the gateway's log.
    """

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
