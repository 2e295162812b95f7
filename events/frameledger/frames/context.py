"""Frames that a client uses to say what is in a context: messages, tools, settings, and when to run."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from frameledger.context import LLMContext, LLMContextMessage
from frameledger.frames.base import (
    ControlFrame,
    Count,
    DataFrame,
    Frame,
    FromPython,
    JsonObject,
    JsonObjects,
    NestedId,
    SecondInput,
    Value,
    VersionNumber,
    wire_form,
    wire_items,
)
from frameledger.tools import Tools, no_definition


def _tools(value: Any) -> Any:
    tools = wire_items(value)
    if isinstance(tools, tuple):
        for tool in tools:
            if callable(tool):
                raise ValueError(no_definition(tool))
    return tools


_Tools = Annotated[JsonObjects, FromPython(_tools)]


class OfContext(Frame):
    """A frame by which a client says something about the context itself."""

    expected_version: VersionNumber | None = None
    """The version that the client knows. Ignored (`context_changed`) if messages, tools or settings changed after
    it; 0 for a conversation that has none yet. Null: whatever has changed."""


class LLMMessagesAppendFrame(DataFrame, OfContext):
    """Adds messages at the end of the history.

    Says: these messages were said, in this order.
    Published by: clients, for a user's words, a system message or anything a program wants the model to know.
    Effect: appends the messages as they are, repeats included; an empty list changes nothing; requests a
    run at once if `run_llm` is true.
    """

    said_by = None

    type: Literal["LLMMessagesAppendFrame"] = "LLMMessagesAppendFrame"

    messages: JsonObjects
    """Messages in the OpenAI chat shape, or `{"llm": ..., "message": ...}` for one that only that provider
    reads."""

    run_llm: bool | None = None
    """True requests a run at once; null and false do not."""

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: as the setting
    `second_input` of the conversation says, else `enqueue`."""


class LLMMessagesUpdateFrame(DataFrame, OfContext):
    """Replaces the whole history.

    Says: from here on, the history is these messages.
    Published by: clients that summarise, trim, edit or restart a conversation.
    Effect: begins a new era with these messages; tools, tool choice, settings, open calls and an open
    response stay; the former history remains readable at its versions. Asks for a run at once if `run_llm`
    is true.
    """

    said_by = None

    type: Literal["LLMMessagesUpdateFrame"] = "LLMMessagesUpdateFrame"

    messages: JsonObjects
    """The new history; an empty list clears it. Messages look as in `LLMMessagesAppendFrame`."""

    run_llm: bool | None = None
    """True requests a run at once; null and false do not."""

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: as the setting
    `second_input` of the conversation says, else `enqueue`."""


class LLMSetToolsFrame(DataFrame, OfContext):
    """Replaces the tools that the model may call.

    Says: these are the tools now.
    Published by: clients.
    Effect: replaces the list of tools and leaves the tool choice; requests no run. A developer message
    names the difference only if the setting `add_tool_change_messages` is on.
    """

    said_by = None

    type: Literal["LLMSetToolsFrame"] = "LLMSetToolsFrame"

    tools: _Tools | None
    """Tool definitions in the OpenAI shape. Null and an empty list both mean no tools."""


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
    """The settings that change. Keys that are not named keep their value."""


class LLMEnablePromptCachingFrame(DataFrame, OfContext):
    """Turns prompt caching on or off.

    Says: whether the provider should cache the part of the prompt that does not change.
    Published by: clients.
    Effect: stored in the state; a provider without caching takes no notice; requests no run.
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

    Says: these are the limits now. A limit that is not named is off here, and what an installation limits by its
    settings counts.
    Published by: clients.
    Effect: replaces all limits of the conversation, which a context frame leaves. What goes beyond one is
    ignored with a reason that says which; in a recording none acts. Requests no run.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMSetLimitsFrame"] = "LLMSetLimitsFrame"

    calls_per_run: Count | None = None
    """The most calls that one run may have open. An announcement beyond it is ignored (`too_many_calls`)."""

    rounds: Count | None = None
    """The most runs with calls, one after another, without an input in between. The announcement of the next one is
    ignored (`too_many_rounds`)."""

    runs_per_minute: Count | None = None
    """The most runs that may be requested in a minute. The inference service fails the next one (`too_many_runs`)."""

    tokens_per_day: Count | None = None
    """The most tokens, read and written, of a day (UTC). The inference service fails the run after that
    (`too_many_tokens`)."""

    cost_per_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """What a day (UTC) may cost, by the table `prices`. The inference service fails the run after that
    (`too_much_spent`)."""


class LLMRunFrame(DataFrame, OfContext):
    """Asks the model to answer.

    Says: run with the context as it stands.
    Published by: clients.
    Effect: requests one run at once; while another run is open, it is pending, once.
    """

    said_by = None
    carries_json = False

    type: Literal["LLMRunFrame"] = "LLMRunFrame"

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: as the setting
    `second_input` of the conversation says, else `enqueue`."""


def _empty_object(value: Any) -> Any:
    return {} if value is None else value


def _empty_list(value: Any) -> Any:
    return () if value is None else value


_ObjectOrNull = Annotated[
    JsonObject, BeforeValidator(_empty_object, json_schema_input_type=dict[str, Any] | None)
]
_ListOrNull = Annotated[
    JsonObjects, BeforeValidator(_empty_list, json_schema_input_type=list[dict[str, Any]] | None)
]
_ToolsOrNull = Annotated[
    _Tools, BeforeValidator(_empty_list, json_schema_input_type=list[dict[str, Any]] | None)
]


class ContextSnapshot(Value):
    """A whole context inside a frame. A part that is absent or null is empty."""

    # Its methods are those of an `LLMContext`. Each that would change it returns one, which a frame takes again.

    messages: _ListOrNull = ()
    """The history, oldest first; messages look as in `LLMMessagesAppendFrame`."""

    tools: _ToolsOrNull = ()
    """Tool definitions in the OpenAI shape."""

    tool_choice: str | JsonObject | None = None
    """As in `LLMSetToolChoiceFrame`; null leaves the choice to the provider."""

    settings: _ObjectOrNull = Field(default_factory=dict)
    """Settings of the conversation, such as the temperature."""

    def to_context(self) -> LLMContext:
        """This as an `LLMContext`, which shares nothing with it."""
        return LLMContext(self.messages, self.tools, self.settings, self.tool_choice)

    def to_wire(self) -> dict[str, Any]:
        """As `LLMContext.to_wire`."""
        return self.to_context().to_wire()

    def get_messages(self, llm: str | None = None) -> tuple[LLMContextMessage, ...]:
        """As `LLMContext.get_messages`."""
        return self.to_context().get_messages(llm)

    def get_tools(self) -> tuple[Mapping[str, Any], ...]:
        """As `LLMContext.get_tools`."""
        return self.to_context().get_tools()

    def add_message(self, message: LLMContextMessage) -> LLMContext:
        """As `LLMContext.add_message`."""
        return self.to_context().add_message(message)

    def add_messages(self, messages: Iterable[LLMContextMessage]) -> LLMContext:
        """As `LLMContext.add_messages`."""
        return self.to_context().add_messages(messages)

    def with_messages(self, messages: Iterable[LLMContextMessage] | None) -> LLMContext:
        """As `LLMContext.with_messages`."""
        return self.to_context().with_messages(messages)

    def with_tools(self, tools: Tools | None) -> LLMContext:
        """As `LLMContext.with_tools`."""
        return self.to_context().with_tools(tools)

    def with_settings(self, settings: Mapping[str, Any] | None) -> LLMContext:
        """As `LLMContext.with_settings`."""
        return self.to_context().with_settings(settings)

    def set_tool_choice(self, tool_choice: str | Mapping[str, Any] | None) -> LLMContext:
        """As `LLMContext.set_tool_choice`."""
        return self.to_context().set_tool_choice(tool_choice)

    def for_logging(self) -> dict[str, Any]:
        """As `LLMContext.for_logging`."""
        return self.to_context().for_logging()

    def messages_for_logging(self) -> list[dict[str, Any]]:
        """As `LLMContext.messages_for_logging`."""
        return self.to_context().messages_for_logging()


class ForkedFrom(Value):
    """The moment of a conversation that a fork continues."""

    id_fields: ClassVar[tuple[str, ...]] = ("context_id",)

    context_id: NestedId
    """The conversation."""

    version: VersionNumber
    """Its version whose context the fork begins with."""

    chain: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    """The link of its hash chain at that version, in hexadecimal: proves which frames the fork goes on from."""


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

    # In memory this also takes what has a `to_wire()`, as `frameledger.context.LLMContext` does.
    context: Annotated[ContextSnapshot, BeforeValidator(wire_form)]
    """The context. In memory, an `LLMContext` may be given."""

    run_llm: bool | None = None
    """True requests a run at once; null and false do not."""

    second_input: SecondInput | None = None
    """What this does if a run is open: `enqueue`, `interrupt`, `reject` or `coalesce`. Null: as the setting
    `second_input` of the conversation says, else `enqueue`."""

    react: bool = True
    """False makes the context a recording: everything is folded and nothing is run or called, until a later
    context frame says otherwise."""

    forked_from: ForkedFrom | None = None
    """Whose moment this context is, if it was forked; stored as the origin of the conversation. No rule reads it."""


ContextFrames = (
    LLMMessagesAppendFrame
    | LLMMessagesUpdateFrame
    | LLMSetToolsFrame
    | LLMSetToolChoiceFrame
    | LLMUpdateSettingsFrame
    | LLMEnablePromptCachingFrame
    | LLMConfigureOutputFrame
    | LLMSetLimitsFrame
    | LLMRunFrame
    | LLMContextFrame
)
