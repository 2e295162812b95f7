"""Frames of an answer: the response, its text, the thoughts around it, and the error that ends it."""

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from frameledger.frames.base import (
    ControlFrame,
    DataFrame,
    Id,
    OfRun,
    SystemFrame,
    TokenCount,
    Value,
    VersionNumber,
)

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]


class LLMFullResponseStartFrame(ControlFrame, OfRun):
    """Opens a response.

    Says: an answer begins; with a run id, that an attempt of that run begins.
    Published by: inference services, or the program that runs the model.
    Effect: opens the response. The next attempt of the open run undoes what earlier attempts of it wrote;
    any other start closes the response before it and writes what that one had said.
    """

    carries_json = False
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "run_id", "worker")

    type: Literal["LLMFullResponseStartFrame"] = "LLMFullResponseStartFrame"

    skip_tts: bool | None = None
    """Whether this response is not to be spoken. Stored; the text reaches the context either way."""

    provider: str | None = None
    """The provider of the model, such as `openai`."""

    model: str | None = None
    """The model that answers, by the provider's name for it."""

    context_version: VersionNumber | None = None
    """The version of the context that the model sees."""

    worker: Id | None = None
    """The process that runs the inference."""

    request_sha256: str | None = None
    """Hash of the request as it was sent, in hexadecimal, so that a rebuilt request can be compared."""


class Usage(Value):
    """The tokens that an inference used; null if the provider does not report them."""

    input_tokens: TokenCount | None = None
    """Tokens read, including those that are read from or written to the cache."""

    output_tokens: TokenCount | None = None
    """Output tokens, including those of thoughts."""

    cache_read_tokens: TokenCount | None = None
    """Tokens read from the provider's cache."""

    cache_write_tokens: TokenCount | None = None
    """Tokens written to the provider's cache."""

    reasoning_tokens: TokenCount | None = None
    """Tokens of thoughts."""


class LLMFullResponseEndFrame(ControlFrame, OfRun):
    """Closes a response: the commit of its run.

    Says: the answer is complete, why it ended and what it used.
    Published by: inference services, or the program that runs the model.
    Effect: writes the text as one assistant message (none if there was only whitespace), dispatches the
    calls that its attempt announced, and closes the run; the pending run may start.
    """

    type: Literal["LLMFullResponseEndFrame"] = "LLMFullResponseEndFrame"

    skip_tts: bool | None = None
    """Whether this response is not to be spoken. Stored; the text reaches the context either way."""

    finish_reason: FinishReason | None = None
    """Why the model stopped."""

    usage: Usage | None = None
    """What the inference used; with the finish reason `error`, as far as known."""


class TextFrame(DataFrame, OfRun):
    """A plain chunk of text.

    Says: the next chunk of the answer.
    Published by: programs that answer in words or sentences, not in tokens of a model.
    Effect: joined to the open response, with one space at a seam where neither side has whitespace; outside a
    response it changes nothing.
    """

    carries_json = False

    type: Literal["TextFrame"] = "TextFrame"

    text: str
    """The chunk."""

    append_to_context: bool = True
    """False keeps the chunk on the log and out of the context."""

    includes_inter_frame_spaces: bool = False
    """True if the chunk contains its own spaces, so that it is joined to others of its kind unchanged."""

    skip_tts: bool | None = None
    """Whether this chunk is not to be spoken. Stored; no rule reads it."""


class LLMTextFrame(TextFrame):
    """A piece of text as the model streams it.

    Says: the next tokens of the answer.
    Published by: inference services; tokens of a few tens of milliseconds may share a frame.
    Effect: joined to the open response exactly as it is; outside a response, or from an attempt that is not
    the latest of the open run, it changes nothing.
    """

    type: Literal["LLMTextFrame"] = "LLMTextFrame"  # type: ignore[assignment]  # each type has its own tag

    includes_inter_frame_spaces: bool = True
    """True because tokens contain their own spaces; no rule reads it, since the frame's type implies it."""

    usage: Usage | None = None
    """What the inference has used so far, if the provider reports it before the end. It counts if there is no end."""


class VisionFullResponseStartFrame(LLMFullResponseStartFrame):
    """Opens a response about an image.

    Says: an answer of a vision model begins.
    Published by: vision services.
    Effect: as `LLMFullResponseStartFrame`.
    """

    type: Literal["VisionFullResponseStartFrame"] = "VisionFullResponseStartFrame"  # type: ignore[assignment]  # own tag


class VisionFullResponseEndFrame(LLMFullResponseEndFrame):
    """Closes a response about an image.

    Says: the answer of a vision model is complete.
    Published by: vision services.
    Effect: as `LLMFullResponseEndFrame`.
    """

    type: Literal["VisionFullResponseEndFrame"] = "VisionFullResponseEndFrame"  # type: ignore[assignment]  # own tag


class VisionTextFrame(LLMTextFrame):
    """A piece of text as a vision model streams it.

    Says: the next tokens of the answer of a vision model.
    Published by: vision services.
    Effect: as `LLMTextFrame`.
    """

    type: Literal["VisionTextFrame"] = "VisionTextFrame"  # type: ignore[assignment]  # each type has its own tag


class LLMThoughtStartFrame(ControlFrame, OfRun):
    """Opens a thought.

    Says: the model begins to think, and whether the thought shall be kept.
    Published by: inference services.
    Effect: opens a thought in place of one that never ended; writes nothing yet. One that appends and names no llm is
    malformed and opens nothing: what follows joins an earlier thought, if one never ended.
    """

    carries_json = False

    type: Literal["LLMThoughtStartFrame"] = "LLMThoughtStartFrame"

    append_to_context: bool = False
    """True stores the thought in the context when it ends."""

    llm: str | None = None
    """The provider that can read the thought later. Required if `append_to_context` is true."""

    @model_validator(mode="after")
    def _kept_thoughts_name_their_llm(self) -> Self:
        if self.append_to_context and self.llm is None:
            raise ValueError("a thought that is appended to the context must name its llm")
        return self


class LLMThoughtTextFrame(DataFrame, OfRun):
    """A piece of a thought; not a `TextFrame`, so that nothing speaks it.

    Says: the next piece of the thought.
    Published by: inference services.
    Effect: joined to the open thought exactly as it is; without an open thought it changes nothing.
    """

    carries_json = False

    type: Literal["LLMThoughtTextFrame"] = "LLMThoughtTextFrame"

    text: str
    """The piece of the thought."""

    includes_inter_frame_spaces: bool = True
    """Whether the piece contains its own spaces. Stored; thoughts are joined unchanged in any case."""


class LLMThoughtEndFrame(ControlFrame, OfRun):
    """Closes a thought.

    Says: the thought is complete, and how the provider signed it.
    Published by: inference services.
    Effect: appends the thought as a message that only its provider reads, if its start asked for that and
    it has text or a signature.
    """

    type: Literal["LLMThoughtEndFrame"] = "LLMThoughtEndFrame"

    signature: Any = None
    """What the provider needs to accept the thought again; kept unchanged."""


class LLMContextAssistantTimestampFrame(DataFrame, OfRun):
    """Says when an answer was given.

    Says: the time of the assistant's message.
    Published by: programs that answer and keep a time of their own.
    Effect: stored with the other frames; changes no message. The times that are shown are the broker's.
    """

    carries_json = False

    type: Literal["LLMContextAssistantTimestampFrame"] = "LLMContextAssistantTimestampFrame"

    timestamp: str
    """The time, as written by the publisher."""


class LLMAssistantPushAggregationFrame(ControlFrame, OfRun):
    """Writes what has been said so far.

    Says: do not wait for the end of the response.
    Published by: programs that answer and do not want to wait for the end.
    Effect: writes the text of the open response as a message and leaves the response open.
    """

    carries_json = False

    type: Literal["LLMAssistantPushAggregationFrame"] = "LLMAssistantPushAggregationFrame"


class ErrorFrame(SystemFrame, OfRun):
    """Something failed.

    Says: what went wrong, and whether the run is over because of it.
    Published by: inference services, and the timekeeper for a run that no worker claimed or whose worker is silent.
    Effect: a fatal error of the open run keeps its text so far, forgets the calls it announced and closes it; any other
    error is only recorded.
    """

    said_by = None
    carries_json = False
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "run_id", "tool_call_id")

    type: Literal["ErrorFrame"] = "ErrorFrame"

    message: str = ""
    """What happened, for people. Must not contain a secret."""

    fatal: bool = False
    """True if the run cannot continue."""

    code: str | None = None
    """What happened, for programs."""

    tool_call_id: Id | None = None
    """The call that the error is about, if any."""


ResponseFrames = (
    LLMFullResponseStartFrame
    | LLMTextFrame
    | TextFrame
    | LLMFullResponseEndFrame
    | VisionFullResponseStartFrame
    | VisionTextFrame
    | VisionFullResponseEndFrame
    | LLMThoughtStartFrame
    | LLMThoughtTextFrame
    | LLMThoughtEndFrame
    | LLMContextAssistantTimestampFrame
    | LLMAssistantPushAggregationFrame
    | ErrorFrame
)
