"""`FunctionRegistry`: which handler serves which function, and on what terms (semantics 5.1, 5.2, 5.8)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from frameledger.errors import NotFoundError, RefusedError
from frameledger.tools import FunctionSchema, tool_name
from frameledger_services.cancel_tools import PREFIX, cancelled_by
from frameledger_services.functions.options import OptionOverrides, Options
from frameledger_services.functions.schemas import ArgumentsChecker, FunctionSignature, signature_of

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
Schema = FunctionSchema | Mapping[str, Any]


class UnknownFunctionError(NotFoundError):
    """No handler is registered under that name. The message lists those that are.

    Remedy: Register the function, or use a name of that list.
    """


class ReservedNameError(RefusedError, ValueError):
    """The name belongs to a tool that the service serves itself.

    Remedy: Register the function under another name.
    """


@dataclass(frozen=True, slots=True)
class DirectFunction:
    """A function that a model calls directly: its parameters are the tool's, its returned value is the result.

    One parameter may be of type `FunctionCallParams`: it is passed, stands in no schema, and may be used to report.
    """

    function: Handler
    signature: FunctionSignature

    @classmethod
    def of(cls, function: Handler) -> DirectFunction:
        """Raises `FunctionSchemaError` for a function of which no schema can be made."""
        return cls(function, signature_of(function))

    @property
    def name(self) -> str:
        return self.signature.schema.name


@dataclass(frozen=True, slots=True)
class FunctionCallRegistryItem:
    """A registered handler. Built by the registry; its public half is in the service's row of `workers`."""

    function_name: str | None
    """Null for the catch-all."""

    handler: Handler | DirectFunction
    options: Options
    schema: Schema | None
    """What the model is told; null if only others advertise the function."""

    auto_registered: bool = False
    """It came with an advertised tool set, and leaves with it."""

    checker: ArgumentsChecker | None = field(default=None, repr=False)
    """Checks arguments against `schema`."""

    @property
    def cancel_on_interruption(self) -> bool:
        return self.options.cancel_on_interruption

    @property
    def timeout_secs(self) -> float | None:
        return self.options.timeout_secs

    @property
    def function(self) -> Handler:
        """The application's own function."""
        return self.handler.function if isinstance(self.handler, DirectFunction) else self.handler

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop; a plain function runs in a thread of its own."""
        function = self.function
        while isinstance(function, partial):
            function = function.func
        return inspect.iscoroutinefunction(function) or (
            not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)
        )


class FunctionRegistry:
    """Handlers by function name. A later registration replaces an earlier one, also for calls that wait for their turn.

    Who serves a call is looked up when it starts: what was registered by hand, then what came with the tools of its
    context, then what came with the tools of another one, then the catch-all.
    """

    def __init__(self, *, enable_async_tool_cancellation: bool = False) -> None:
        """`enable_async_tool_cancellation`: every asynchronous function counts as cancellable by the model."""
        self.enable_async_tool_cancellation = enable_async_tool_cancellation
        self._watchers: list[Callable[[], None]] = []
        self._by_hand: dict[str | None, FunctionCallRegistryItem] = {}
        self._advertised: dict[str, dict[str, FunctionCallRegistryItem]] = {}
        self._kept_away: set[tuple[str, str]] = set()
        """Context and name of tools that were removed by hand and are still advertised."""

    def register_function(
        self,
        function_name: str | None,
        handler: Handler,
        *,
        cancel_on_interruption: bool | None = None,
        timeout_secs: float | None = None,
        cancellable_by_llm: bool | None = None,
        safe_to_retry: bool | None = None,
        schema: Schema | None = None,
    ) -> None:
        """Serve a function with a handler that takes one `FunctionCallParams`; async, or plain and run in a thread.

        A name of None is the catch-all: it serves what nobody else does. `schema` is what the model is told: a
        `FunctionSchema`, or a tool in OpenAI's form. Options that are not given are those of `@tool_options`, then the
        defaults. `timeout_secs` counts from the call's dispatch: what it waits for its turn in a queue is not its own.
        Raises `ReservedNameError`, and ValueError for a schema that is none or has another name.
        """
        given = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)
        self._register(_item(function_name, handler, given, schema))

    def register_direct_function(
        self,
        handler: H,
        *,
        cancel_on_interruption: bool | None = None,
        timeout_secs: float | None = None,
        cancellable_by_llm: bool | None = None,
        safe_to_retry: bool | None = None,
    ) -> H:
        """Serve a function under its own name, with a schema made from its signature and docstring.

        Returns the function, so that it can be used as a decorator. Raises `FunctionSchemaError` and
        `ReservedNameError`.
        """
        given = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)
        self._register(_direct_item(DirectFunction.of(handler), given))
        return handler

    def unregister_function(self, function_name: str | None) -> None:
        """Forget the handler of a function, or the catch-all; running calls finish. The tool stays advertised until a
        tool list without it is published, and does not bring its handler back. Raises `UnknownFunctionError`."""
        contexts = self._advertised.pop(function_name, {}) if function_name is not None else {}
        if self._by_hand.pop(function_name, None) is None and not contexts:
            raise UnknownFunctionError(
                f"There is no {_called(function_name)}. Registered are: {self._listed()}."
            )
        if function_name is not None:
            self._kept_away |= {(context_id, function_name) for context_id in contexts}
        self._changed()

    def unregister_direct_function(self, handler: Handler) -> None:
        """The same by the function instead of its name. Raises `UnknownFunctionError` if it is not what serves it."""
        # Equal, not identical: each access to a bound method makes a new object.
        found = [item for item in self._items() if item.function == handler]
        if not found:
            raise UnknownFunctionError(f"{handler!r} is not registered. Registered are: {self._listed()}.")
        self.unregister_function(found[0].function_name)

    def has_function(self, function_name: str) -> bool:
        """Whether this process serves the function, if only by the catch-all."""
        return self.lookup(function_name) is not None

    def lookup(self, function_name: str, context_id: str | None = None) -> FunctionCallRegistryItem | None:
        """Who serves a call of this context now; null if nobody does."""
        by_hand = self._by_hand.get(function_name)
        if by_hand is not None:
            return by_hand
        here = self._advertised.get(function_name, {}).get(context_id or "")
        return here or self._newest_advertised(function_name) or self._by_hand.get(None)

    def cancels(self, name: str) -> str | None:
        """The function whose calls the built-in tool of this name cancels; null if it is none."""
        function_name = cancelled_by(name)
        if name.startswith(PREFIX) and not self.has_its_own(name) and function_name in self.cancellable():
            return function_name
        return None

    def has_its_own(self, name: str) -> bool:
        """Whether a handler is registered under this very name: the catch-all does not count."""
        return name in self._by_hand or name in self._advertised

    def cancellable(self) -> frozenset[str]:
        """The functions whose calls the model may cancel."""
        return frozenset(
            item.function_name
            for name in self.serves()
            if (item := self.lookup(name)) and item.function_name and self._is_cancellable(item.options)
        )

    def advertise(self, context_id: str, functions: Iterable[Handler | DirectFunction]) -> None:
        """Register these as what a context's tool list advertises, instead of those of its last one.

        What was removed by hand, and was advertised all the time since, stays removed. Raises `FunctionSchemaError` and
        `ReservedNameError` and changes nothing then.
        """
        made = [one if isinstance(one, DirectFunction) else self.direct_function(one) for one in functions]
        items = [self._advertised_item(one) for one in made]
        for item in items:
            self._check_name(item.function_name)
        self.keep_advertised(context_id, [one.name for one in made])
        for item in items:
            assert item.function_name is not None
            if (context_id, item.function_name) not in self._kept_away:
                of_name = self._advertised.setdefault(item.function_name, {})
                # Behind the others: it is the newest.
                of_name.pop(context_id, None)
                of_name[context_id] = item
        self._changed()

    def keep_advertised(self, context_id: str, names: Iterable[str]) -> None:
        """A context's tool list holds these names now: handlers that came with others leave."""
        kept = frozenset(names)
        self._kept_away -= {
            (context, name) for context, name in self._kept_away if context == context_id and name not in kept
        }
        gone = [
            name
            for name, contexts in self._advertised.items()
            if name not in kept and contexts.pop(context_id, None) is not None
        ]
        self._advertised = {name: contexts for name, contexts in self._advertised.items() if contexts}
        if gone:
            self._changed()

    def direct_function(self, function: Handler) -> DirectFunction:
        """What is known of a function that is going to be advertised. It is the same for all contexts: a schema and its
        checker are large, and contexts are many. Raises `FunctionSchemaError`."""
        known = self._newest_advertised(getattr(function, "__name__", ""))
        if known is not None and isinstance(known.handler, DirectFunction) and known.function == function:
            return known.handler
        return DirectFunction.of(function)

    def advertising(self) -> frozenset[str]:
        """The contexts whose tool lists brought handlers, or still list some that were removed by hand."""
        listed = {context_id for contexts in self._advertised.values() for context_id in contexts}
        return frozenset(listed | {context_id for context_id, _ in self._kept_away})

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change of what is served, in the thread that made it; what ends that."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def serves(self) -> tuple[str, ...]:
        """The functions that have a handler of their own, in order."""
        return tuple(sorted({*self._advertised, *(name for name in self._by_hand if name is not None)}))

    @property
    def serves_all(self) -> bool:
        """Whether there is a catch-all."""
        return None in self._by_hand

    def offers(self) -> dict[str, Any]:
        """What the service's row in `workers` says: each function with its schema in OpenAI's form, and its setup."""
        return {"functions": [self._offer(item) for name in self.serves() if (item := self.lookup(name))]}

    def schemas(self) -> list[dict[str, Any]]:
        """The tools that can be advertised: those whose schema is known, in OpenAI's form."""
        return [offer["schema"] for offer in self.offers()["functions"] if offer["schema"] is not None]

    def _offer(self, item: FunctionCallRegistryItem) -> dict[str, Any]:
        options = item.options
        return {
            "name": item.function_name,
            "schema": None if item.schema is None else _tool(item.schema),
            "options": {
                "cancel_on_interruption": options.cancel_on_interruption,
                "timeout_secs": options.timeout_secs,
                "cancellable_by_llm": self._is_cancellable(options),
                "safe_to_retry": options.safe_to_retry,
            },
        }

    def _items(self) -> list[FunctionCallRegistryItem]:
        """All handlers, each name's own last: by hand outranks advertised."""
        advertised = [item for contexts in self._advertised.values() for item in contexts.values()]
        return advertised + list(self._by_hand.values())

    def _newest_advertised(self, function_name: str) -> FunctionCallRegistryItem | None:
        return next(reversed(self._advertised.get(function_name, {}).values()), None)

    def _advertised_item(self, direct: DirectFunction) -> FunctionCallRegistryItem:
        known = self._newest_advertised(direct.name)
        if known is not None and known.handler is direct:
            return known
        return _direct_item(direct, OptionOverrides(), auto_registered=True)

    def _is_cancellable(self, options: Options) -> bool:
        return not options.cancel_on_interruption and (
            options.cancellable_by_llm or self.enable_async_tool_cancellation
        )

    def _register(self, item: FunctionCallRegistryItem) -> None:
        self._check_name(item.function_name)
        self._by_hand[item.function_name] = item
        self._changed()

    def _changed(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    def _check_name(self, name: str | None) -> None:
        if name is not None and self.cancels(name) is not None:
            raise ReservedNameError(
                f"{name!r} is the tool by which the model cancels calls of {cancelled_by(name)!r}, and the service "
                "serves it itself. Choose another name, or register that function without cancellable_by_llm."
            )

    def _listed(self) -> str:
        return ", ".join(sorted(_called(item.function_name) for item in self._items())) or "none"


def _item(
    name: str | None, handler: Handler, given: OptionOverrides, schema: Schema | None
) -> FunctionCallRegistryItem:
    if not callable(handler):
        raise TypeError(f"the handler of {_called(name)} cannot be called: {handler!r}")
    if name == "":
        raise ValueError("a function has a name; None registers the catch-all")
    if schema is not None and tool_name(schema) != name:
        raise ValueError(f"the schema is of {tool_name(schema)!r}, and the handler of {_called(name)}")
    checker = None if schema is None else checker_of(schema)
    return FunctionCallRegistryItem(name, handler, Options.resolved(given, handler), schema, checker=checker)


def _direct_item(
    direct: DirectFunction, given: OptionOverrides, *, auto_registered: bool = False
) -> FunctionCallRegistryItem:
    options, schema = Options.resolved(given, direct.function), direct.signature.schema
    return FunctionCallRegistryItem(direct.name, direct, options, schema, auto_registered, checker_of(schema))


def checker_of(schema: Schema) -> ArgumentsChecker:
    """A checker of a tool's arguments. A tool that says nothing of them takes any."""
    if isinstance(schema, FunctionSchema):
        return ArgumentsChecker(schema)
    inner = schema.get("function", schema)
    parameters = inner.get("parameters") if isinstance(inner, Mapping) else None
    return ArgumentsChecker(parameters if isinstance(parameters, Mapping) else {})


def _tool(schema: Schema) -> dict[str, Any]:
    return schema.to_openai() if isinstance(schema, FunctionSchema) else dict(schema)


def _called(name: str | None) -> str:
    return "the catch-all" if name is None else f"{name!r}"
