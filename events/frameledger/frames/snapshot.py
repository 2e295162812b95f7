"""A whole context as a value in a frame, and the conversation and version that it was copied from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, GetCoreSchemaHandler, StringConstraints
from pydantic_core import CoreSchema, core_schema

from frameledger.context import LLMContext, LLMContextMessage
from frameledger.frames.base import (
    FromPython,
    JsonObject,
    JsonObjects,
    NestedId,
    Value,
    VersionNumber,
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


ToolDefinitions = Annotated[JsonObjects, FromPython(_tools)]


@dataclass(frozen=True)
class NullIs:
    """Annotates a field in which null stands for the value that `make` returns. Other values are validated without it,
    and at the same speed."""

    make: Callable[[], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        nullable = core_schema.nullable_schema(handler(source))
        return core_schema.no_info_after_validator_function(self._value, nullable)

    def _value(self, value: Any) -> Any:
        return self.make() if value is None else value


_ObjectOrNull = Annotated[JsonObject, NullIs(dict)]
_ListOrNull = Annotated[JsonObjects, NullIs(tuple)]
_ToolsOrNull = Annotated[ToolDefinitions, NullIs(tuple)]


class ContextSnapshot(Value):
    """A whole context inside a frame. A part that is absent or null is empty."""

    # Its methods are those of an `LLMContext`. Each that would change it returns an `LLMContext`, which a frame accepts
    # again.

    messages: _ListOrNull = ()
    """The history, oldest first; for messages see `LLMMessagesAppendFrame`."""

    tools: _ToolsOrNull = ()
    """Tool definitions in the OpenAI shape."""

    tool_choice: str | JsonObject | None = None
    """As in `LLMSetToolChoiceFrame`; null leaves the choice to the provider."""

    settings: _ObjectOrNull = Field(default_factory=dict)
    """Settings of the conversation, such as the temperature."""

    def to_context(self) -> LLMContext:
        """Returns this as an `LLMContext`, which shares nothing with it."""
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
    """The version of a conversation that a fork continues."""

    id_fields: ClassVar[tuple[str, ...]] = ("context_id",)

    context_id: NestedId
    """The conversation."""

    version: VersionNumber
    """The version whose context the fork begins with."""

    chain: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    """The link of its hash chain at that version, in hexadecimal: proves from which frames the fork continues."""
