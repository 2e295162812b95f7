"""Normalizes tools and tool choices from all accepted forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from frameledger.tools import is_of_client, tool_name
from frameledger_services.providers.errors import UnmappableError

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}

_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
"""The names that OpenAI, Anthropic, MCP and Gemini give to the schema of a function's arguments."""

_GEMINI_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""

    strict: bool | None = None
    """Whether arguments must follow the schema to the letter; None leaves it to the provider."""


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool definition in the provider's own form. It is passed on unchanged."""

    definition: Mapping[str, Any]

    @property
    def name(self) -> str | None:
        return tool_name(self.definition)


Tool = Function | OwnTool


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`name` is the function that must be called in the mode `function`; None in others."""

    mode: Literal["auto", "required", "none", "function"]
    name: str | None = None


def tools_of(provider: str, definitions: Iterable[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Returns the tools of a context for this provider, in order. Tools of other providers are omitted.

    Accepts OpenAI's chat form, the flat forms of OpenAI (`parameters`), Anthropic (`input_schema`) and MCP
    (`inputSchema`), Gemini's `function_declarations`, `FunctionSchema`'s fields, and `{"llm": ..., "tool": ...}`.
    Raises `UnmappableError` for anything else, such as OpenAI's custom tools, which take free text. If several have one
    name, which providers reject, the first is returned, and a client's only if no service has one (RA5.client).
    """
    listed = [(tool, definition) for definition in definitions for tool in _read(provider, definition)]
    of_services = {tool.name for tool, definition in listed if not is_of_client(definition)}
    tools: list[Tool] = []
    names: set[str | None] = set()
    for tool, definition in listed:
        is_taken = tool.name in names or (is_of_client(definition) and tool.name in of_services)
        if tool.name is None or not is_taken:
            tools.append(tool)
            names.add(tool.name)
    return tuple(tools)


def parameters_of(function: Mapping[str, Any]) -> object:
    """Returns the schema of a function's arguments, whichever name it has; None if there is none."""
    return next((schema for name in _PARAMETERS if (schema := function.get(name)) is not None), None)


def choice_of(provider: str, choice: object, tools: Iterable[Tool]) -> ToolChoice | None:
    """Returns the tool choice in one form; None if it has no effect, for instance without tools.

    Accepts `"auto"`, `"required"` (or `"any"`), `"none"`, the same as `{"type": ...}`, and an object that names a
    function in OpenAI's or Anthropic's form. Raises `UnmappableError` for anything else, and for a choice that does not
    match the tools.
    """
    names = {tool.name for tool in tools}
    read = _choice(provider, choice)
    if read is None:
        return None
    if read.mode == "function" and read.name not in names:
        raise UnmappableError(
            provider, f"the tool choice {read.name!r}, which is not a tool of the conversation"
        )
    if not names:
        if read.mode == "required":
            raise UnmappableError(
                provider, "the tool choice 'required', because the conversation has no tools"
            )
        return None
    return read


def _choice(provider: str, choice: object) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case "auto" | {"type": "auto"}:
            return ToolChoice("auto")
        case "required" | "any" | {"type": "required" | "any"}:
            return ToolChoice("required")
        case "none" | {"type": "none"}:
            return ToolChoice("none")
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice("function", name)
        case {"type": "function" | "tool", "name": str(name)}:
            return ToolChoice("function", name)
        case _:
            raise UnmappableError(provider, f"the tool choice {choice!r}")


def _read(provider: str, definition: Mapping[str, Any]) -> Iterator[Tool]:
    match definition:
        case {"llm": str(llm), "tool": tool, **rest} if not rest:
            if llm == provider:
                if not isinstance(tool, Mapping):
                    raise UnmappableError(provider, "a custom tool that is not an object")
                yield OwnTool(tool)
        case {"type": "function", "function": {"name": str(name)} as inner} if name:
            yield _function(provider, name, inner, parameters_of(inner))
        case {"function_declarations": [*several]} | {"functionDeclarations": [*several]}:
            for declaration in several:
                yield from _read(provider, _declaration(declaration))
        case {"name": str(name), "properties": Mapping() as properties, **rest} if name:
            required = _required(provider, name, rest.get("required"))
            schema = {"type": "object", "properties": properties, "required": required}
            yield _function(provider, name, rest, schema)
        case {"name": str(name), "type": "custom", **rest} if name and parameters_of(rest) is not None:
            yield _function(provider, name, rest, parameters_of(rest))
        case {"name": str(name), **rest} if name and rest.get("type", "function") == "function":
            yield _function(provider, name, rest, parameters_of(rest))
        case _:
            shown = tool_name(definition)
            named = f"the tool {shown!r}" if shown else "a tool without a name"
            raise UnmappableError(
                provider,
                f'{named}, whose form is unknown (write a provider\'s own tool as {{"llm": ..., "tool": ...}})',
            )


def _declaration(declaration: object) -> Mapping[str, Any]:
    """Returns a function that is declared for Gemini, its parameters as JSON Schema."""
    if not isinstance(declaration, Mapping):
        return {}
    if not isinstance(parameters := declaration.get("parameters"), Mapping):
        return declaration
    return {**declaration, "parameters": _json_schema(parameters)}


def _json_schema(schema: Any) -> Any:
    """Returns a schema with the names of types that JSON Schema has: Gemini writes them in capitals."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: _keyword(name, inner) for name, inner in schema.items()}


def _keyword(name: str, inner: Any) -> Any:
    match name, inner:
        case "type", str(kind) if kind in _GEMINI_TYPES:
            return kind.lower()
        case "properties", Mapping():
            return {of: _json_schema(one) for of, one in inner.items()}
        case "anyOf", [*several]:
            return [_json_schema(one) for one in several]
        case "items", _:
            return _json_schema(inner)
    return inner


def _required(provider: str, name: str, required: object) -> list[str]:
    if required is None:
        return []
    if not isinstance(required, list | tuple) or not all(isinstance(one, str) for one in required):
        raise UnmappableError(
            provider, f"the tool {name!r}, whose required properties are not a list of names"
        )
    return list(required)


def _object_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the schema with a type and properties: APIs reject a schema without them, and MCP servers describe a
    function without parameters by such a schema. A schema of another type is not changed."""
    if schema is None:
        return NO_PARAMETERS
    if schema.get("type", "object") != "object":
        return schema
    if "type" in schema and schema.get("properties") is not None:
        return schema
    return {"type": "object", **schema, "properties": schema.get("properties") or {}}


def _function(provider: str, name: str, fields: Mapping[str, Any], schema: object) -> Function:
    if schema is not None and not isinstance(schema, Mapping):
        raise UnmappableError(provider, f"the tool {name!r}, whose parameters are not a JSON Schema object")
    description, strict = fields.get("description"), fields.get("strict")
    return Function(
        name,
        description if isinstance(description, str) else "",
        _object_schema(schema),
        strict if isinstance(strict, bool) else None,
    )
