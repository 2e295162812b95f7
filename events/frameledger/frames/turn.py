"""Frames about speech: the user's turns and words, the bot's speech, and its interruption."""

from typing import Literal

from frameledger.frames.base import OfMirror, SecondInput, SystemFrame, VersionNumber
from frameledger.frames.response import TextFrame


class UserStartedSpeakingFrame(SystemFrame):
    """The user begins to speak.

    Says: a turn of the user begins.
    Published by: speech services.
    Effect: opens a turn; a turn that still waited for its words is closed with its words so far.
    """

    said_by = "user"
    carries_json = False

    type: Literal["UserStartedSpeakingFrame"] = "UserStartedSpeakingFrame"

    second_input: SecondInput | None = None
    """What this turn does if a run is open: `reject` refuses it and its words as it begins; `interrupt` and `coalesce`
    act when it closes with words. Null: as the setting `second_input` of the conversation says, else `enqueue`."""


class UserStoppedSpeakingFrame(SystemFrame):
    """The user stops speaking.

    Says: the turn of the user is over.
    Published by: speech services, and the timekeeper if the stop or the final words do not arrive.
    Effect: closes the turn if its words are final: one user message, one run. With an interim transcription
    pending the turn waits for the final one, or for a second stop.
    """

    said_by = "user"
    carries_json = False

    type: Literal["UserStoppedSpeakingFrame"] = "UserStoppedSpeakingFrame"

    opened_version: VersionNumber | None = None
    """The version that opened the turn which this closes. Ignored once that turn has ended."""


class HeardFrame(TextFrame):
    """Words of the user, as a transcription service hears them.

    A `TextFrame` by class, so that code for text also handles it. The inherited fields of answers have no effect: a
    user's words belong to no run and always reach the context.
    """

    said_by = "user"

    append_to_context: bool = True
    """Inherited from `TextFrame`; no rule reads it here."""

    skip_tts: bool | None = None
    """Inherited from `TextFrame`; no rule reads it here."""

    text: str
    """The words."""

    includes_inter_frame_spaces: bool = False
    """True if the words contain their own spaces, so that they are joined unchanged."""

    user_id: str = "user"
    """The id of the speaker."""

    timestamp: str | None = None
    """When the words were spoken, as written by the publisher."""

    language: str | None = None
    """The language that was heard."""


class TranscriptionFrame(HeardFrame):
    """Final words of the user.

    Says: the user said this.
    Published by: transcription services.
    Effect: joined to the open turn; closes a turn that waited for its words; outside any turn it is a turn
    of its own, written and run at once. Only whitespace changes nothing.
    """

    type: Literal["TranscriptionFrame"] = "TranscriptionFrame"  # type: ignore[assignment]  # own tag

    second_input: SecondInput | None = None
    """What these words do if they are a turn of their own and a run is open; inside a turn its start says that. Null:
    `reject` if the start of their turn said so and was refused, else as the setting `second_input` of the conversation
    says, else `enqueue`."""


class InterimTranscriptionFrame(HeardFrame):
    """Words of the user that may still change.

    Says: final words are on their way.
    Published by: transcription services.
    Effect: never reaches the context; lets the open turn wait for the final words.
    """

    type: Literal["InterimTranscriptionFrame"] = "InterimTranscriptionFrame"  # type: ignore[assignment]  # own tag


class TranslationFrame(HeardFrame):
    """Words of the user in another language.

    Says: what the user said, translated.
    Published by: translation services.
    Effect: stored; changes nothing.
    """

    type: Literal["TranslationFrame"] = "TranslationFrame"  # type: ignore[assignment]  # own tag


class InterruptionFrame(SystemFrame, OfMirror):
    """The user cuts in.

    Says: stop answering.
    Published by: speech services, or a client with a stop button.
    Effect: writes what was said so far, drops an open thought, closes the run, forgets announced calls, and
    cancels the calls that were started with `cancel_on_interruption`. The user's words stay.
    """

    said_by = None
    carries_json = False

    type: Literal["InterruptionFrame"] = "InterruptionFrame"

    heard_text: str | None = None
    """What the user heard of the answer. Replaces the text of the last response, whatever it is (empty
    removes the message), unless the user spoke or the history was replaced since. Null leaves the text."""


class BotStartedSpeakingFrame(SystemFrame):
    """The bot begins to speak.

    Says: speech of an answer begins.
    Published by: speech services.
    Effect: a run that a result requests from now on is deferred to the bot's stop.
    """

    said_by = "voice"
    carries_json = False

    type: Literal["BotStartedSpeakingFrame"] = "BotStartedSpeakingFrame"


class BotStoppedSpeakingFrame(SystemFrame):
    """The bot stops speaking.

    Says: speech of an answer is over.
    Published by: speech services, and the timekeeper if the stop does not arrive.
    Effect: a run that was deferred is requested, once; if the user is speaking, at the end of that turn.
    """

    said_by = "voice"
    carries_json = False

    type: Literal["BotStoppedSpeakingFrame"] = "BotStoppedSpeakingFrame"

    opened_version: VersionNumber | None = None
    """The version at which the speech that this ends began. Ignored once that speech has ended."""


TurnFrames = (
    UserStartedSpeakingFrame
    | UserStoppedSpeakingFrame
    | TranscriptionFrame
    | InterimTranscriptionFrame
    | TranslationFrame
    | InterruptionFrame
    | BotStartedSpeakingFrame
    | BotStoppedSpeakingFrame
)
