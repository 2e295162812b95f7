"""Frames by which a client sets the content of a context: messages, tools, settings, and when to run."""

from typing import Annotated, Literal

from pydantic import Field

from frameledger.frames.base import (
    INT64_MAX,
    ControlFrame,
    Count,
    DataFrame,
    Frame,
    FromPython,
    Id,
    JsonObject,
    JsonObjects,
    SecondInput,
    VersionNumber,
    wire_form,
)
from frameledger.frames.snapshot import ContextSnapshot, ForkedFrom, ToolDefinitions


class OfContext(Frame):
    """A frame of a client about the context itself."""

    expected_version: VersionNumber | None = None
    """The version that the client knows. Ignored (`context_changed`) if messages, tools or settings changed after it; 0
    for a conversation that has none yet. Null: any version."""

    mirror: Id | None = None
    """The mirror that publishes this (`LLMMirrorFrame`). Ignored (`mirror_superseded`) if another mirror, or none,
    keeps the history now. Null: any."""


class LLMMessagesAppendFrame(DataFrame, OfContext):
    """Adds messages at the end of the history.

    Says: these messages were said, in this order.
    Published by: clients, for a user's words, a system message or other information for the model.
    Effect: appends the messages as they are, repeats included; an empty list changes nothing; requests a
    run at once if `run_llm` is true.
    """

    said_by = None

    type: Literal["LLMMessagesAppendFrame"] = "LLMMessagesAppendFrame"

    messages: JsonObjects
    """Messages in the OpenAI chat shape, or `{"llm": ..., "message": ...}` for one that only that provider reads."""

    run_llm: bool | None = None
    """True requests a run at once; null and false do not."""

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: the setting `second_input`
    of the conversation applies, else `enqueue`."""


class LLMMessagesUpdateFrame(DataFrame, OfContext):
    """Replaces the whole history.

    Says: from here on, the history is these messages.
    Published by: clients that summarise, trim, edit or restart a conversation.
    Effect: begins a new era with these messages; tools, tool choice, settings, open calls and an open
    response stay; the former history remains readable at its versions; requests a run at once if `run_llm`
    is true.
    """

    said_by = None

    type: Literal["LLMMessagesUpdateFrame"] = "LLMMessagesUpdateFrame"

    messages: JsonObjects
    """The new history; an empty list clears it. For messages see `LLMMessagesAppendFrame`."""

    run_llm: bool | None = None
    """True requests a run at once; null and false do not."""

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: the setting `second_input`
    of the conversation applies, else `enqueue`."""


class LLMMessageRewriteFrame(DataFrame, OfContext):
    """Replaces one message, or removes it.

    Says: from here on, the message at this position is this one, or is not there.
    Published by: clients that correct, redact or take back a message; those that mirror a conversation, for a
    message that changed where it is kept.
    Effect: the message changes in its place; positions never move; requests no run. What the fold would still
    have written there, such as the result of a running call, is not written. The former message remains readable
    at its versions. Ignored if nothing is there (`no_such_position`), or if the position lies before more than 256
    gaps (`position_fixed`).
    """

    said_by = None

    type: Literal["LLMMessageRewriteFrame"] = "LLMMessageRewriteFrame"

    position: Annotated[int, Field(ge=1, le=INT64_MAX)]
    """The position of the message in the current history: the first one after an update or a context frame is 1.
    `StoredContext.positions` and the table `messages` have it."""

    message: JsonObject | None
    """The message, as in `LLMMessagesAppendFrame`; null removes the one that is there."""


class LLMSetToolsFrame(DataFrame, OfContext):
    """Replaces the tools that the model may call.

    Says: these are the tools now.
    Published by: clients.
    Effect: replaces the list of tools and leaves the tool choice; requests no run. A developer message
    names the difference only if the setting `add_tool_change_messages` is on.
    """

    said_by = None

    type: Literal["LLMSetToolsFrame"] = "LLMSetToolsFrame"

    tools: ToolDefinitions | None
    """Tool definitions in the OpenAI shape. Null and an empty list both mean no tools. A function with `"served_by":
    "client"` beside `function` belongs to a client, which answers its calls."""


class LLMSetToolChoiceFrame(DataFrame, OfContext):
    """Says how the model shall choose among its tools.

    Says: from here on, use tools in this way.
    Published by: clients.
    Effect: stores the choice as given; requests no run.
    """

    said_by = None

    type: Literal["LLMSetToolChoiceFrame"] = "LLMSetToolChoiceFrame"

    tool_choice: str | JsonObject
    """`"auto"`, `"required"`, `"none"`, or an object that names one function."""


class LLMUpdateSettingsFrame(ControlFrame, OfContext):
    """Changes settings of the context, such as the temperature.

    Says: from here on, these settings hold for this conversation.
    Published by: clients.
    Effect: merged by key into the settings; a key that is null is removed, so that the service's own default
    counts again; requests no run.
    """

    said_by = None

    type: Literal["LLMUpdateSettingsFrame"] = "LLMUpdateSettingsFrame"

    settings: JsonObject
    """The settings to change. Keys that are not named keep their value."""


class LLMEnablePromptCachingFrame(DataFrame, OfContext):
    """Turns prompt caching on or off.

    Says: whether the provider should cache the part of the prompt that does not change.
    Published by: clients.
    Effect: stored in the state; a provider without caching ignores it; requests no run.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMEnablePromptCachingFrame"] = "LLMEnablePromptCachingFrame"

    enable: bool
    """True asks the provider to cache."""


class LLMConfigureOutputFrame(DataFrame, OfContext):
    """Says whether what the model writes shall be spoken.

    Says: whether the answers from here on shall skip speech.
    Published by: clients.
    Effect: stored in the state; the inference service marks the frames of its answers with it; the text
    reaches the context either way; requests no run.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMConfigureOutputFrame"] = "LLMConfigureOutputFrame"

    skip_tts: bool
    """True marks the answers as not to be spoken."""


class LLMSetLimitsFrame(ControlFrame, OfContext):
    """Says how much this conversation may take.

    Says: these are the limits now. A limit that is not named is off; those of the installation's settings apply in
    any case.
    Published by: clients.
    Effect: replaces all limits of the conversation; a context frame does not change them. A frame beyond a limit is
    ignored with a reason that names the limit; in a recording no limit applies. Requests no run.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMSetLimitsFrame"] = "LLMSetLimitsFrame"

    context_messages: Count | None = None
    """The most messages of the context, since its history was replaced last. What would add more is ignored
    (`context_full`)."""

    context_bytes: Count | None = None
    """The most bytes of the context as JSON, since its history was replaced last, with room for what is open. What
    would add more is ignored (`context_full`)."""

    frames_per_second: Count | None = None
    """The most frames in a second, by the log's time; those of runs and calls, and those that end something, do not
    count. More are ignored (`too_many_frames`)."""

    calls_per_run: Count | None = None
    """The most calls that one run may have open. An announcement beyond it is ignored (`too_many_calls`)."""

    rounds: Count | None = None
    """The most runs with calls, one after another, without an input in between. The announcement of the next one is
    ignored (`too_many_rounds`)."""

    runs_per_minute: Count | None = None
    """The most runs that may be requested in a minute. The inference service fails the next one (`too_many_runs`)."""

    tokens_per_day: Count | None = None
    """The most tokens, read and written, in a day (UTC). Once they are used, the inference service fails the next run
    (`too_many_tokens`)."""

    cost_per_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """What a day (UTC) may cost, by the table `prices`. Once it is spent, the inference service fails the next run
    (`too_much_spent`)."""


class LLMRunFrame(DataFrame, OfContext):
    """Asks the model to answer.

    Says: run with the current context.
    Published by: clients.
    Effect: requests one run at once; while another run is open, it is pending, once.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMRunFrame"] = "LLMRunFrame"

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: the setting `second_input`
    of the conversation applies, else `enqueue`."""


class LLMContextFrame(OfContext):
    """Opens or replaces a whole context.

    Says: this is the context now: messages, tools, tool choice and settings together.
    Published by: clients, at the start of a conversation, to bring one from elsewhere, to mirror one, or to
    continue an old moment of one (`frameledger fork`).
    Effect: begins a new era and replaces tools, tool choice and settings too; requests a run at once if
    `run_llm` is true; with `react` false the context becomes a recording. With `experiment` in `metadata`
    lists leave the conversation out.
    """

    said_by = None

    type: Literal["LLMContextFrame"] = "LLMContextFrame"

    # In memory this also accepts objects with a `to_wire()`, such as `frameledger.context.LLMContext`.
    context: Annotated[ContextSnapshot, FromPython(wire_form)]
    """The context. In memory, an `LLMContext` may be given."""

    run_llm: bool | None = None
    """True requests a run at once; null and false do not."""

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: the setting `second_input`
    of the conversation applies, else `enqueue`."""

    react: bool = True
    """False makes the context a recording: everything is folded and nothing is run or called, until a later context
    frame changes that."""

    forked_from: ForkedFrom | None = None
    """The conversation and version that this context was forked from, if any; stored as the origin of the conversation.
    No rule reads it."""


class LLMMirrorFrame(ControlFrame, OfContext):
    """Names the program that keeps the history of this context.

    Says: from here on another program keeps this history and mirrors it here under this name; or, with null, the
    history is kept here again.
    Published by: bridges to other frameworks, when a session begins; `frameledger_services.agents_sdk`.
    Effect: changes no message. As long as there is a mirror, only clients write messages and request runs, by
    frames about the context; all other frames (turns, responses, calls, interruptions, ends) are tracked, and
    write and request nothing. The newest mirror counts: frames that name an earlier one are ignored
    (`mirror_superseded`), which fences the process before. With `react` false the context is a recording. Opens
    an ended context.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMMirrorFrame"] = "LLMMirrorFrame"

    mirror: Id | None
    """The name of the mirror, best a unique one for each process or session. Null: the history is kept here again; open
    text and words are not written."""

    react: bool
    """False makes the context a recording, as `react` of `LLMContextFrame` does; true lets `LLMRunFrame` and
    `run_llm` run the model."""


ContextFrames = (
    LLMMessagesAppendFrame
    | LLMMessagesUpdateFrame
    | LLMMessageRewriteFrame
    | LLMSetToolsFrame
    | LLMSetToolChoiceFrame
    | LLMUpdateSettingsFrame
    | LLMEnablePromptCachingFrame
    | LLMConfigureOutputFrame
    | LLMSetLimitsFrame
    | LLMRunFrame
    | LLMContextFrame
    | LLMMirrorFrame
)
