"""A registered handler, with its options, its schema and the checker of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from frameledger.surrogates import has_half
from frameledger.tools import FunctionSchema, tool_name
from frameledger_services.functions.arguments import ArgumentsChecker
from frameledger_services.functions.options import OptionOverrides, Options
from frameledger_services.functions.schemas import FunctionSchemaError, FunctionSignature, signature_of
from frameledger_services.json_numbers import check_json
from frameledger_services.providers.tool_forms import parameters_of

Handler = Callable[..., Any]
Schema = FunctionSchema | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DirectFunction:
    """A function that a model calls directly: its parameters are the tool's parameters, its return value the result.

    One parameter may have the type `FunctionCallParams`. It is not part of the schema, and may report results.
    """

    function: Handler
    signature: FunctionSignature

    @classmethod
    def of(cls, function: Handler) -> DirectFunction:
        """Returns the direct function. Raises `FunctionSchemaError` if no schema can be derived from it."""
        return cls(function, signature_of(function))

    @property
    def name(self) -> str:
        return self.signature.schema.name


@dataclass(frozen=True, slots=True)
class FunctionCallRegistryItem:
    """A registered handler. The registry creates it; the service's row in `workers` has its name, schema and
    options."""

    function_name: str | None
    """None for the catch-all."""

    handler: Handler | DirectFunction
    overrides: OptionOverrides
    """The options that were given at registration."""

    schema: Schema | None
    """The schema that the model receives; None if the function is advertised elsewhere."""

    auto_registered: bool = False
    """Whether it was registered with a context's tool list. It is unregistered when the list omits its tool."""

    checker: ArgumentsChecker | None = field(default=None, repr=False)
    """Checks arguments against `schema`."""

    @property
    def options(self) -> Options:
        """The options of a call that starts now. `@tool_options` may be above the decorator that registered it."""
        return Options.resolved(self.overrides, self.function)

    @property
    def cancel_on_interruption(self) -> bool:
        return self.options.cancel_on_interruption

    @property
    def timeout_secs(self) -> float | None:
        return self.options.timeout_secs

    @property
    def function(self) -> Handler:
        """The application's function."""
        return self.handler.function if isinstance(self.handler, DirectFunction) else self.handler

    @property
    def is_async(self) -> bool:
        """Whether the function runs in the event loop. A plain function runs in a thread of its own."""
        return inspect.iscoroutinefunction(_call_target(self.function))


def item_of(
    name: str | None, handler: Handler, overrides: OptionOverrides, schema: Schema | None
) -> FunctionCallRegistryItem:
    """Returns an item for a handler that takes `FunctionCallParams`. Raises TypeError and ValueError."""
    if not callable(handler):
        raise TypeError(f"the handler of {label(name)} is not callable: {handler!r}")
    if name == "":
        raise ValueError("a function needs a name; use None to register the catch-all")
    _check_name(name)
    _check_is_no_generator(name, handler)
    _check_accepts_params(name, handler)
    if schema is not None and tool_name(schema) != name:
        raise ValueError(
            f"the schema is named {tool_name(schema)!r}, but the handler is registered as {label(name)}"
        )
    checker = None if schema is None else _own_checker(name, schema)
    return FunctionCallRegistryItem(name, handler, overrides, schema, checker=checker)


def direct_item(
    direct: DirectFunction, overrides: OptionOverrides, *, auto_registered: bool = False
) -> FunctionCallRegistryItem:
    """Returns an item for a function that the model calls directly. Raises FunctionSchemaError."""
    schema = direct.signature.schema
    try:
        _check_is_no_generator(direct.name, direct.function)
        checker = _own_checker(direct.name, schema)
    except (TypeError, ValueError) as error:
        raise FunctionSchemaError(str(error)) from error
    return FunctionCallRegistryItem(direct.name, direct, overrides, schema, auto_registered, checker)


def checker_of(schema: Schema, *, from_a_client: bool = False) -> ArgumentsChecker:
    """Returns a checker of a tool's arguments. A tool whose schema has no parameters accepts any. For `from_a_client`
    see `ArgumentsChecker`."""
    if isinstance(schema, FunctionSchema):
        return ArgumentsChecker(schema, from_a_client=from_a_client)
    return ArgumentsChecker(_parameters(schema), from_a_client=from_a_client)


def _parameters(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the JSON Schema of a tool's arguments, in each form that adapters accept; an empty one if there is
    none."""
    match tool.get("function", tool):
        case Mapping() as function if isinstance(parameters := parameters_of(function), Mapping):
            return parameters
        case {"properties": Mapping() as properties, **rest}:
            return {"type": "object", "properties": properties, "required": rest.get("required") or []}
    return {}


def label(name: str | None) -> str:
    """Returns a registered name for an error message."""
    return "the catch-all" if name is None else f"{name!r}"


def _check_name(name: object) -> None:
    """Raise an error for a name that the database cannot store as text, since that would end the service later."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"a function's name is text, not {name!r}")
    if "\0" in name or has_half(name):
        raise ValueError(f"a function's name must not contain NUL or a lone surrogate: {name!r}")


def _call_target(handler: Handler) -> Any:
    """Returns the function whose instructions run when the handler is called."""
    while isinstance(handler, partial):
        handler = handler.func
    is_function = inspect.isroutine(handler) or inspect.iscoroutinefunction(handler)
    return handler if is_function else type(handler).__call__


def _check_is_no_generator(name: str | None, handler: Handler) -> None:
    function = _call_target(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"the handler of {label(name)} is a generator, so a call would not run it; return the result, or report "
            "several with `params.result_callback`"
        )


def _check_accepts_params(name: str | None, handler: Handler) -> None:
    # A decorator may adapt a function with other arguments, and declare the signature of that function.
    if inspect.isclass(handler) or getattr(handler, "__signature__", None) is not None:
        return
    try:
        inspect.signature(handler, follow_wrapped=False).bind(None)
    except ValueError:
        # A function that is written in C may not have a signature.
        return
    except TypeError as error:
        raise TypeError(
            f"the handler of {label(name)} cannot be called with one argument, the `FunctionCallParams`: {error}; "
            "`register_direct_function` accepts a function with the arguments of the model"
        ) from error


def _own_checker(name: str | None, schema: Schema) -> ArgumentsChecker:
    """Returns the checker of a schema that the database stores for the models of other processes."""
    try:
        check_json(schema.to_openai() if isinstance(schema, FunctionSchema) else dict(schema))
    except ValueError as error:
        raise ValueError(f"the schema of {label(name)} is not JSON: {error}") from error
    return checker_of(schema)
