"""Tool definitions: their description, wire form, names and comparison."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frameledger.json_values import json_copy

MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE = "The function `{function_name}` is not currently available."
"""The result for the model of a call that no service runs."""

SERVED_BY = "served_by"
"""The key beside `type` and `function` of a definition that names who answers the calls; without it services do. It is
not sent to providers."""

CLIENT = "client"
"""Its only value: the client that declared the function."""


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """One function that a model may call, independent of any provider.

    `properties` maps each parameter to its JSON Schema; `required` names the mandatory ones. Both are copied, so that
    later changes of the arguments do not change the schema.
    """

    name: str
    description: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", json_copy(self.properties))
        object.__setattr__(self, "required", tuple(self.required))

    def to_openai(self) -> dict[str, Any]:
        """Returns the definition in the form of OpenAI's chat completions, as on the wire; a new dict."""
        parameters = {
            "type": "object",
            "properties": json_copy(self.properties),
            "required": list(self.required),
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def to_wire(self) -> dict[str, Any]:
        """Returns the definition as the log has it: `to_openai`."""
        return self.to_openai()


@dataclass(frozen=True, slots=True)
class ToolsSchema:
    """Functions for any provider, and tools that only one provider has.

    `standard_tools` are schemas or definitions in OpenAI form. `custom_tools` maps a provider, named as in
    `LLMSpecificMessage.llm`, to definitions in that provider's own form.
    """

    standard_tools: Sequence[FunctionSchema | Mapping[str, Any]] = ()
    custom_tools: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        standard = tuple(t if isinstance(t, FunctionSchema) else _definition(t) for t in self.standard_tools)
        object.__setattr__(self, "standard_tools", standard)
        object.__setattr__(self, "custom_tools", json_copy(self.custom_tools))

    def to_wire(self) -> list[dict[str, Any]]:
        """Returns the definitions as the log has them: the standard ones first, in OpenAI form, then the custom ones.

        A custom tool becomes `{"llm": provider, "tool": definition}`, like a provider's own message, so that every
        other provider can omit it.
        """
        standard = [_definition(tool) for tool in self.standard_tools]
        return standard + [
            {"llm": llm, "tool": json_copy(tool)}
            for llm, tools in self.custom_tools.items()
            for tool in tools
        ]


Tools = ToolsSchema | Iterable[FunctionSchema | Mapping[str, Any]]


def tools_to_wire(tools: Tools | None) -> tuple[dict[str, Any], ...]:
    """Returns the definitions as the log has them, in the given order; none for null. Shares nothing with `tools`.

    Mappings are taken as wire form. Raises TypeError for anything else, including plain functions.
    """
    if tools is None:
        return ()
    if isinstance(tools, ToolsSchema):
        return tuple(tools.to_wire())
    return tuple(_definition(tool) for tool in tools)


def _definition(tool: FunctionSchema | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(tool, FunctionSchema):
        return tool.to_openai()
    if isinstance(tool, Mapping):
        return {**json_copy(tool)}
    raise TypeError(no_definition(tool))


def no_definition(tool: object) -> str:
    """Returns why this is not a tool, and what to do with a function instead."""
    if not callable(tool):
        return f"a tool is a FunctionSchema or a mapping, not a {type(tool).__name__}"
    name = getattr(tool, "__name__", type(tool).__name__)
    return (
        f"a tool is a FunctionSchema or a mapping, not the function {name!r}: `schema_of` of "
        "frameledger_services.functions describes one, and `FunctionService.set_tools` publishes that and runs it"
    )


def tool_name(tool: object) -> str | None:
    """Returns the name of a tool in any provider's form; the first one if a definition declares several functions.

    A provider's built-in tool without a name is named by its type, `{"type": "web_search"}`, or by its only key,
    `{"google_search": {}}`. Returns None for a value that is not a tool. Never raises.
    """
    return next(iter(_names(tool)), None)


def tool_names(tools: object) -> tuple[str, ...]:
    """Returns the names of all tools, each once, in order; a definition with several functions has several.

    Accepts what `tools_to_wire` accepts or returns. Tools without a name are omitted. Never raises.
    """
    if isinstance(tools, ToolsSchema):
        tools = tools.to_wire()
    if not isinstance(tools, Iterable):
        return ()
    return tuple(dict.fromkeys(name for tool in tools for name in _names(tool)))


def _names(tool: object) -> Iterable[str]:
    if isinstance(tool, FunctionSchema):
        return [tool.name]
    if not isinstance(tool, Mapping):
        return []
    if tool.keys() == {"llm", "tool"}:
        tool = tool["tool"]
        if not isinstance(tool, Mapping):
            return []
    declared = tool.get("function_declarations", tool.get("functionDeclarations"))
    if declared is not None:
        several = declared if isinstance(declared, list | tuple) else ()
        return [name for one in several if (name := _text(one, "name"))]
    kind = _text(tool, "type")
    inner = tool.get(kind or "function", tool.get("toolSpec"))  # OpenAI's nested form; Bedrock's
    name = _text(inner, "name") or _text(tool, "name") or (kind if kind != "function" else None)
    if name is None and len(tool) == 1:
        [(key, value)] = tool.items()
        name = key if isinstance(value, Mapping) and key not in {"function", "toolSpec"} else None
    return [name] if isinstance(name, str) and name else []


def _text(mapping: object, key: str) -> str | None:
    """Returns the text under the key; None if there is none, or it is empty."""
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    return value if isinstance(value, str) and value else None


def of_client(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the definition of a function that no service serves: the client that declares it answers its calls
    (RA5.client)."""
    return {**json_copy(tool), SERVED_BY: CLIENT}


def is_of_client(tool: object) -> bool:
    """Returns whether a definition says that a client answers the calls. Never raises."""
    return isinstance(tool, Mapping) and tool.get(SERVED_BY) == CLIENT


def client_functions(tools: Iterable[object]) -> tuple[str, ...]:
    """Returns the names of the functions whose calls a client answers, each once. A name that is also in a service's
    definition belongs to the service, so that no client takes a call away from it."""
    listed = tuple(tools)
    brought = [tool for tool in listed if is_of_client(tool)]
    if not brought:
        return ()
    served = set(tool_names([tool for tool in listed if not is_of_client(tool)]))
    return tuple(name for name in tool_names(brought) if name not in served)


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """The added and the removed names, each in the order of its list."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


def tool_changes(before: object, after: object) -> ToolChanges:
    """Returns the differences between two tool lists by name. A tool with only a new definition is not a change."""
    old, new = tool_names(before), tool_names(after)
    were, are = frozenset(old), frozenset(new)
    return ToolChanges(
        added=tuple(name for name in new if name not in were),
        removed=tuple(name for name in old if name not in are),
    )


def tool_change_message(before: object, after: object) -> dict[str, Any] | None:
    """Returns one developer message that tells the model which tools were added and removed; None if no name
    differs."""
    changes = tool_changes(before, after)
    parts = []
    if changes.added:
        parts.append(f"You can now call {_listed(changes.added)}.")
    if changes.removed:
        parts.append(f"You can no longer call {_listed(changes.removed)}.")
    if not parts:
        return None
    return {"role": "developer", "content": " ".join(["Your tools have changed.", *parts])}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
