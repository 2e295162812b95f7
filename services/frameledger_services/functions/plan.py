"""The plan of a call: which handler runs it, with which options and arguments, or why none does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from frameledger_services import call_words
from frameledger_services.functions.arguments import ArgumentsError, bad_arguments_message, parsed
from frameledger_services.functions.options import Options
from frameledger_services.functions.params import FunctionCallParams
from frameledger_services.functions.registry_item import (
    DirectFunction,
    FunctionCallRegistryItem,
    Schema,
    checker_of,
)

FindSchema = Callable[[], Awaitable[Schema | None]]
"""Returns the schema that the model received, for a handler that was registered without one."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The options that a call keeps, and the handler with its arguments."""

    options: Options
    timeout_secs: float
    """How long the call may take, counted from its dispatch."""

    refusal: str | None = None
    """Why no handler is run, for the model."""

    function: Callable[..., Any] = print
    is_async: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """As the model sent them, parsed."""

    by_name: Mapping[str, Any] | None = None
    """The arguments of a direct function, converted to the types of its parameters."""

    params_name: str | None = "params"
    """The parameter that receives the `FunctionCallParams`; None if a direct function has none."""

    @property
    def answers_by_returning(self) -> bool:
        """Whether the returned value is the result, even None: the handler has no params to report with."""
        return self.params_name is None

    def called_with(self, params: FunctionCallParams) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Returns the positional and the keyword arguments of the handler."""
        if self.by_name is None:
            return (params,), {}
        return (), self.by_name if self.params_name is None else {**self.by_name, self.params_name: params}


async def plan_call(
    item: FunctionCallRegistryItem | None,
    function_name: str,
    arguments: Any,
    default_timeout_secs: float,
    find_schema: FindSchema,
) -> CallPlan:
    """Returns the plan of a call. `item` is None if no handler serves it. Raises what `find_schema` raises."""
    if item is None:
        return CallPlan(Options(), default_timeout_secs, call_words.missing(function_name))
    options = item.options
    timeout_secs = options.timeout_secs or default_timeout_secs
    checker = item.checker
    try:
        values = parsed(arguments)
        if checker is None and (schema := await find_schema()) is not None:
            # Not in the event loop, which all calls share: a client may have made the schema arbitrarily large.
            checker = await asyncio.to_thread(_lenient_checker, schema)
        if checker is not None:
            checker.check(values)
        by_name, params_name = _for_direct(item, values)
    except ArgumentsError as error:
        return CallPlan(options, timeout_secs, bad_arguments_message(function_name, error))
    return CallPlan(
        options,
        timeout_secs,
        function=item.function,
        is_async=item.is_async,
        arguments=values,
        by_name=by_name,
        params_name=params_name,
    )


def _for_direct(
    item: FunctionCallRegistryItem, values: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, str | None]:
    if not isinstance(item.handler, DirectFunction):
        return None, "params"
    signature = item.handler.signature
    return signature.converted(values), signature.params_name


def _lenient_checker(schema: Schema) -> Any:
    try:
        return checker_of(schema, from_a_client=True)
    except ValueError:
        # A tool that was advertised elsewhere and whose schema is invalid, or far too large. The model received it
        # nevertheless.
        return None
