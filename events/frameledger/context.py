"""`LLMContext`: what a model receives of a conversation, as a value."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from frameledger.json_values import json_copy
from frameledger.media import without_media
from frameledger.tools import Tools, tools_to_wire

LLMStandardMessage = Mapping[str, Any]
"""A message in the shape of OpenAI's chat completions, passed on unchanged: any role, any kind of content."""


@dataclass(frozen=True, slots=True)
class LLMSpecificMessage:
    """A message in one provider's own shape, which is omitted for the others."""

    llm: str
    message: Any

    def to_wire(self) -> dict[str, Any]:
        """Returns `{"llm": ..., "message": ...}`, a new dict that shares nothing with this value."""
        return {"llm": self.llm, "message": json_copy(self.message)}


LLMContextMessage = LLMStandardMessage | LLMSpecificMessage


class HasWire(Protocol):
    """An object that can be written as a context: an `LLMContext`, or the context in a frame."""

    def to_wire(self) -> dict[str, Any]: ...


class LLMContext:
    """Messages, tools, settings and the choice of tools: everything that a request to a model consists of.

    A value: it never changes, and a method that would change it returns another one instead. Arguments are copied.
    Contexts that are derived from one another share their parts, so the mappings in them are read-only. Two contexts
    with equal parts are equal. Null means empty for each part. A message `{"llm": ..., "message": ...}` is read as an
    `LLMSpecificMessage`.

    Raises TypeError for a message that is not a mapping, and for a part without a JSON form.
    """

    messages: tuple[LLMContextMessage, ...]
    tools: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]
    tool_choice: str | Mapping[str, Any] | None

    def __init__(
        self,
        messages: Iterable[LLMContextMessage] | None = None,
        tools: Tools | None = None,
        settings: Mapping[str, Any] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
    ) -> None:
        vars(self).update(
            messages=_messages(messages),
            tools=tools_to_wire(tools),
            settings=_settings(settings),
            tool_choice=json_copy(tool_choice),
        )

    @staticmethod
    def from_wire(wire: Mapping[str, Any] | HasWire, *, copy: bool = True) -> "LLMContext":
        """Returns the context that `to_wire` wrote. An object with `to_wire`, such as the context in a frame, is
        accepted too.

        An absent or null part is empty; unknown keys are ignored.

        With `copy=False` the parts are not copied, which is cheap for a long history: the caller guarantees that they
        are JSON values and that nobody changes them from now on.
        """
        if not isinstance(wire, Mapping):
            wire = wire.to_wire()
        messages, tools = wire.get("messages"), wire.get("tools")
        settings, tool_choice = wire.get("settings"), wire.get("tool_choice")
        if copy:
            return LLMContext(messages, tools, settings, tool_choice)
        return LLMContext()._with(
            messages=_messages(messages, copy=False),
            tools=tuple(tools or ()),
            settings={} if settings is None else settings,
            tool_choice=tool_choice,
        )

    def to_wire(self) -> dict[str, Any]:
        """Returns the parts as plain JSON values with the keys messages, tools, tool_choice and settings.

        Everything in it is new, so the caller may change it.
        """
        return {
            "messages": [_to_wire(message) for message in self.messages],
            "tools": json_copy(self.tools),
            "tool_choice": json_copy(self.tool_choice),
            "settings": json_copy(self.settings),
        }

    def add_message(self, message: LLMContextMessage) -> "LLMContext":
        """Returns the context with the message at the end."""
        return self.add_messages([message])

    def add_messages(self, messages: Iterable[LLMContextMessage]) -> "LLMContext":
        """Returns the context with the messages at the end, in order. Repetitions are kept."""
        return self._with(messages=self.messages + _messages(messages))

    def with_messages(self, messages: Iterable[LLMContextMessage] | None) -> "LLMContext":
        """Returns the context with these messages instead of its own."""
        return self._with(messages=_messages(messages))

    def with_tools(self, tools: Tools | None) -> "LLMContext":
        """Returns the context with these tools instead of its own."""
        return self._with(tools=tools_to_wire(tools))

    def with_settings(self, settings: Mapping[str, Any] | None) -> "LLMContext":
        """Returns the context with these settings instead of its own; nothing is merged."""
        return self._with(settings=_settings(settings))

    def set_tool_choice(self, tool_choice: str | Mapping[str, Any] | None) -> "LLMContext":
        """Returns the context with this choice: "auto", "required", "none", an object that names a tool, or null."""
        return self._with(tool_choice=json_copy(tool_choice))

    def get_messages(self, llm: str | None = None) -> tuple[LLMContextMessage, ...]:
        """Returns all messages; with the name of a provider, those that this provider understands.

        These are the standard messages and its own, the latter still as `LLMSpecificMessage`.
        """
        if llm is None:
            return self.messages
        return tuple(m for m in self.messages if not isinstance(m, LLMSpecificMessage) or m.llm == llm)

    def get_tools(self) -> tuple[Mapping[str, Any], ...]:
        """Returns all tool definitions, in wire form."""
        return self.tools

    def for_logging(self) -> dict[str, Any]:
        """Like `to_wire`, with the messages of `messages_for_logging`."""
        return self.to_wire() | {"messages": self.messages_for_logging()}

    def messages_for_logging(self) -> list[dict[str, Any]]:
        """Returns the messages in wire form, with a note of kind and size for each embedded image, sound or file."""
        return [without_media(_to_wire(message)) for message in self.messages]

    def _with(self, **parts: Any) -> "LLMContext":
        context = object.__new__(LLMContext)
        vars(context).update(vars(self) | parts)
        return context

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, LLMContext) else NotImplemented

    def __repr__(self) -> str:
        return f"LLMContext({', '.join(f'{part}={value!r}' for part, value in self.for_logging().items())})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        instead = _INSTEAD.get(name, f"it takes no attribute {name!r}")
        raise AttributeError(f"LLMContext is a value: {instead}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"LLMContext is a value: {name!r} cannot be deleted")


_INSTEAD = {
    "messages": "use context.with_messages([...]) or context.add_messages([...])",
    "tools": "use context.with_tools([...])",
    "settings": "use context.with_settings({...})",
    "tool_choice": "use context.set_tool_choice(...)",
}


class OpenAILLMContext(LLMContext):
    """Deprecated name of `LLMContext`; each use warns. Its methods return contexts with the new name.

    `system_prompt` becomes a first message with the role system.
    """

    def __init__(
        self,
        messages: Iterable[LLMContextMessage] | None = None,
        tools: Tools | None = None,
        settings: Mapping[str, Any] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        *,
        system_prompt: str | None = None,
    ) -> None:
        warnings.warn("OpenAILLMContext is deprecated: use LLMContext", DeprecationWarning, stacklevel=2)
        prompt = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        super().__init__([*prompt, *(messages or ())], tools, settings, tool_choice)


_M = TypeVar("_M", bound=LLMContextMessage)


def trimmed(messages: Iterable[_M], max_messages: int = 100) -> tuple[_M, ...]:
    """Returns the system messages and the newest of the others, at most `max_messages` in all, in the original order.

    Every system message is kept, wherever it is. If there are more than `max_messages` of them, the result has only
    these; it is never longer for another reason.

    An assistant message with `tool_calls` and the tool messages that answer it form a group, which is kept or dropped
    as a whole; a tool message answers the nearest earlier call with its id. Every other message, including a tool
    message without a call, is a group of its own. The newest groups are kept, by their newest message, up to the first
    one for which there is no room: it is dropped with all older ones. So if the newest group alone is too large, only
    the system messages remain.

    Nothing is repeated, and the elements are the given ones, not copies. Raises ValueError for a negative
    `max_messages`.
    """
    if max_messages < 0:
        raise ValueError(f"max_messages is negative: {max_messages}")
    history = tuple(messages)
    if len(history) <= max_messages:
        return history
    keep = {at for at, message in enumerate(history) if _field(message, "role") == "system"}
    room = max_messages - len(keep)
    groups = _call_groups(history)
    for at in reversed(range(len(history))):
        if at in keep:
            continue
        group = groups[at]
        if len(group) > room:
            break
        keep.update(group)
        room -= len(group)
    return tuple(message for at, message in enumerate(history) if at in keep)


def _call_groups(history: Sequence[LLMContextMessage]) -> list[list[int]]:
    """Returns for each place the places that are kept or dropped with it, including itself."""
    groups: list[list[int]] = []
    caller: dict[str, int] = {}
    for at, message in enumerate(history):
        groups.append([at])
        match _field(message, "role"):
            case "assistant":
                caller |= dict.fromkeys(_call_ids(message), at)
            case "tool":
                answered = _field(message, "tool_call_id")
                if isinstance(answered, str) and answered in caller:
                    groups[at] = groups[caller[answered]]
                    groups[at].append(at)
    return groups


def _call_ids(message: LLMContextMessage) -> list[str]:
    calls = _field(message, "tool_calls")
    ids = [_field(call, "id") for call in calls] if isinstance(calls, list | tuple) else []
    return [one for one in ids if isinstance(one, str)]


def _field(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _messages(messages: Iterable[object] | None, *, copy: bool = True) -> tuple[LLMContextMessage, ...]:
    return () if messages is None else tuple(_message(message, copy) for message in messages)


def _message(message: object, copy: bool) -> LLMContextMessage:
    if not copy and type(message) is dict and "llm" not in message:
        # This is the usual case. The checks below take as long as parsing a message.
        return message
    if isinstance(message, LLMSpecificMessage):
        return LLMSpecificMessage(message.llm, json_copy(message.message)) if copy else message
    if not isinstance(message, Mapping):
        raise TypeError(f"a message is a mapping or an LLMSpecificMessage, not a {type(message).__name__}")
    if len(message) == 2 and "message" in message and isinstance(message.get("llm"), str):
        inner = message["message"]
        return LLMSpecificMessage(message["llm"], json_copy(inner) if copy else inner)
    return {**json_copy(message)} if copy else message


def _settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if settings is None else {**json_copy(settings)}


def _to_wire(message: LLMContextMessage) -> dict[str, Any]:
    return message.to_wire() if isinstance(message, LLMSpecificMessage) else {**json_copy(message)}
