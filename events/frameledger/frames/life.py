"""Frames about the life of a conversation, and the metadata of services."""

from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from frameledger.frames.base import ControlFrame, OfMirror, SystemFrame, UninterruptibleFrame


class StartFrame(SystemFrame):
    """A pipeline starts.

    Says: frames may follow.
    Published by: programs that mirror a pipeline.
    Effect: stored; changes nothing. A context opens with its first frame.
    """

    said_by = None
    carries_json = False

    type: Literal["StartFrame"] = "StartFrame"


class EndFrame(ControlFrame, OfMirror, UninterruptibleFrame):
    """The conversation ends.

    Says: nothing more is expected.
    Published by: clients.
    Effect: writes what was being said and heard, settles the calls in progress as cancelled, forgets
    announced ones, closes the open run and runs nothing. A new turn, append, update, context or run opens
    the context again.
    """

    said_by = None
    carries_json = False

    type: Literal["EndFrame"] = "EndFrame"


class CancelFrame(SystemFrame, OfMirror):
    """The conversation is broken off.

    Says: stop at once.
    Published by: clients.
    Effect: as `EndFrame`.
    """

    said_by = None
    carries_json = False

    type: Literal["CancelFrame"] = "CancelFrame"


class LLMServiceMetadataFrame(SystemFrame):
    """Metadata of a service.

    Says: whether the service is a realtime one, and how it wants turns to be detected.
    Published by: services on request; not sent at start.
    Effect: stored; changes nothing.
    """

    said_by = None

    type: Literal["LLMServiceMetadataFrame"] = "LLMServiceMetadataFrame"

    is_realtime_service: bool = False
    """True for a service that processes speech itself."""

    user_turn_strategies: Any = None
    """How the service wants the user's turns to begin and end."""


class LLMContextEraseFrame(SystemFrame, UninterruptibleFrame):
    """Erases the conversation.

    Says: delete everything before this frame, and why.
    Published by: `frameledger erase`, `Client.erase`, or any program that has to erase.
    Effect: ends the life of the context: its frames, messages, settings, runs and calls are deleted from the
    tables, even if the log still has older records, its open work is cancelled, and a receipt remains. A later
    frame starts a new life, whose versions continue from this frame's. Later frames for a run or a call of the
    life before are skipped.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMContextEraseFrame"] = "LLMContextEraseFrame"

    why: Annotated[str, StringConstraints(min_length=1)]
    """The reason. The receipt keeps it, so it must not contain a secret."""

    requested_by: str | None = None
    """The person or program that requested it. The receipt keeps it too."""


LifeFrames = StartFrame | EndFrame | CancelFrame | LLMServiceMetadataFrame | LLMContextEraseFrame
