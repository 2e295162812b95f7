"""`FunctionRegistry`: which handler serves which function, and with which options."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from frameledger.errors import NotFoundError, RefusedError
from frameledger.tools import FunctionSchema
from frameledger_services import logs
from frameledger_services.call_words import shown
from frameledger_services.cancel_tools import PREFIX, cancelled_by
from frameledger_services.functions.advertised import Advertised, AdvertisedHandlers
from frameledger_services.functions.options import OptionOverrides, Options
from frameledger_services.functions.registry_item import (
    DirectFunction,
    FunctionCallRegistryItem,
    Handler,
    Schema,
    direct_item,
    item_of,
    label,
)
from frameledger_services.providers import called_names

H = TypeVar("H", bound=Handler)

_log = logs.get_logger("functions")


class UnknownFunctionError(NotFoundError):
    """No handler is registered under this name. The message lists the registered ones.

    Remedy: Register the function, or use a name from that list.
    """


class ReservedNameError(RefusedError, ValueError):
    """The name belongs to a built-in tool of the function service.

    Remedy: Register the function under another name.
    """


class FunctionRegistry:
    """Handlers by function name. A later registration replaces an earlier one, also for calls that are still queued.

    The handler is looked up when a call starts, in this order: a handler that was registered directly, one from the
    tools of the call's conversation, one from another conversation's tools, the catch-all.

    Any thread may use it.
    """

    def __init__(self, *, enable_async_tool_cancellation: bool = False) -> None:
        """`enable_async_tool_cancellation` lets the model cancel calls of every asynchronous function."""
        self.enable_async_tool_cancellation = enable_async_tool_cancellation
        self._lock = threading.RLock()
        """Held while the handlers are read or changed, and not while code of the application runs."""

        self._watchers: list[Callable[[], None]] = []
        self._by_hand: dict[str | None, FunctionCallRegistryItem] = {}
        self._advertised = AdvertisedHandlers()

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
        """Register a handler that takes one `FunctionCallParams`. It may be async, or plain and then runs in a thread.
        If a plain one returns an awaitable, that is awaited in the event loop.

        The name None registers the catch-all, which serves functions without a handler of their own. `schema` is what
        the model receives: a `FunctionSchema`, or a tool in OpenAI's form. Options that are not given are taken from
        `@tool_options`, then from the defaults. `timeout_secs` counts from the call's dispatch, not from its
        announcement. Raises `ReservedNameError`, TypeError if the handler is a generator or does not take the
        parameters, and ValueError if the schema is invalid or has another name.
        """
        overrides = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)
        self._register(item_of(function_name, handler, overrides, schema))

    def register_direct_function(
        self,
        handler: H,
        *,
        cancel_on_interruption: bool | None = None,
        timeout_secs: float | None = None,
        cancellable_by_llm: bool | None = None,
        safe_to_retry: bool | None = None,
    ) -> H:
        """Register a function under its own name, with a schema derived from its signature and docstring.

        Returns the function, so that this can be used as a decorator. Raises `FunctionSchemaError` and
        `ReservedNameError`.
        """
        overrides = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)
        self._register(direct_item(DirectFunction.of(handler), overrides))
        return handler

    def unregister_function(self, function_name: str | None) -> None:
        """Remove the handler of a function, or with None the catch-all. Running calls finish. The tool stays advertised
        until a tool list without it is published; a list that still has it does not register the handler again. Raises
        `UnknownFunctionError`."""
        with self._lock:
            was_advertised = function_name is not None and self._advertised.remove(function_name)
            was_by_hand = self._by_hand.pop(function_name, None) is not None
        if not (was_by_hand or was_advertised):
            raise UnknownFunctionError(
                f"No handler is registered for {label(function_name)}. Registered: {self._listed()}."
            )
        self._changed()

    def unregister_direct_function(self, handler: Handler) -> None:
        """Same as `unregister_function`, for the function that this handler serves. Raises `UnknownFunctionError` if it
        is not registered."""
        # Equal, not identical: each access to a bound method creates a new object.
        items = [item for item in self._items() if item.function == handler]
        if not items:
            raise UnknownFunctionError(f"{handler!r} is not registered. Registered: {self._listed()}.")
        self.unregister_function(items[0].function_name)

    def has_function(self, function_name: str) -> bool:
        """Returns whether this process serves the function, with a handler of its own or with the catch-all."""
        return self.lookup(function_name) is not None

    def lookup(self, function_name: str, context_id: str | None = None) -> FunctionCallRegistryItem | None:
        """Returns the handler that a call of this context would get now; None if there is none."""
        with self._lock:
            by_hand = self._by_hand.get(function_name)
            if by_hand is not None:
                return by_hand
            here = self._advertised.find(function_name, context_id)
            return here or self._advertised.newest(function_name) or self._by_hand.get(None)

    def cancels(self, name: str) -> str | None:
        """Returns the function whose calls the built-in tool of this name cancels; None if it is not a built-in
        tool."""
        function_name = cancelled_by(name)
        if name.startswith(PREFIX) and not self.has_its_own(name) and function_name in self.cancellable():
            return function_name
        return None

    def has_its_own(self, name: str) -> bool:
        """Returns whether a handler is registered under this name; the catch-all does not count."""
        with self._lock:
            return name in self._by_hand or name in self._advertised

    def cancellable(self) -> frozenset[str]:
        """Returns the names of the functions whose calls the model may cancel."""
        return frozenset(
            item.function_name
            for name in self.serves()
            if (item := self.lookup(name)) and item.function_name and self._is_cancellable(item.options)
        )

    def advertise(self, context_id: str, functions: Iterable[Handler | DirectFunction]) -> None:
        """Register the handlers of a context's new tool list. The handlers of its previous list stay registered until
        `keep_advertised` is called, once the new list is published. `restore_advertised` restores those that it
        replaced, if the new list is refused.

        A handler that was removed with `unregister_function` is not registered again while its tool is advertised.
        Raises `FunctionSchemaError` and `ReservedNameError`, and changes nothing then.
        """
        direct_functions = [
            one if isinstance(one, DirectFunction) else self.direct_function(one) for one in functions
        ]
        items = [self._advertised_item(one) for one in direct_functions]
        for item in items:
            self._check_name(item.function_name)
        with self._lock:
            for item in items:
                assert item.function_name is not None
                self._advertised.add(context_id, item.function_name, item)
        self._changed()

    def keep_advertised(self, context_id: str, names: Iterable[str]) -> None:
        """Unregister the handlers of a context's tool lists, except those of these names."""
        kept = frozenset(names)
        with self._lock:
            has_changed = self._advertised.keep(context_id, kept)
        if has_changed:
            self._changed()

    def advertised(self, context_id: str) -> Advertised:
        """Returns what a context's tool lists registered, for `restore_advertised`."""
        with self._lock:
            return self._advertised.of(context_id)

    def restore_advertised(self, context_id: str, before: Advertised) -> None:
        """Undo `advertise`. Handlers that were explicitly unregistered since then stay unregistered."""
        with self._lock:
            self._advertised.restore(context_id, before)
        self._changed()

    def direct_function(self, function: Handler) -> DirectFunction:
        """Returns the `DirectFunction` of a function that is to be advertised. All contexts share one instance, because
        a schema and its checker are large. Raises `FunctionSchemaError`."""
        name = getattr(function, "__name__", "")
        with self._lock:
            known = self._advertised.newest(name)
        if known is not None and isinstance(known.handler, DirectFunction) and known.function == function:
            return known.handler
        return DirectFunction.of(function)

    def advertising_contexts(self) -> frozenset[str]:
        """Returns the contexts whose tool lists registered handlers, or still have tools whose handlers were
        unregistered."""
        with self._lock:
            return self._advertised.contexts()

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change, in the thread that makes it. Returns a function that unsubscribes."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def serves(self) -> tuple[str, ...]:
        """Returns the names of the functions that have a handler of their own, sorted."""
        with self._lock:
            names = [*self._advertised, *self._by_hand]
        return tuple(sorted({name for name in names if name is not None}))

    @property
    def serves_all(self) -> bool:
        """Whether there is a catch-all."""
        return None in self._by_hand

    def offers(self) -> dict[str, Any]:
        """Returns what the service's row in `workers` offers: each function with its schema in OpenAI's form and its
        options."""
        return {"functions": [self._offer(item) for name in self.serves() if (item := self.lookup(name))]}

    def schemas(self) -> list[dict[str, Any]]:
        """Returns the tools whose schema is known, in OpenAI's form. These can be advertised."""
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
        """Returns all handlers. If there are several of one name, the explicitly registered one is last, since it takes
        precedence."""
        with self._lock:
            return [*self._advertised.items(), *self._by_hand.values()]

    def _advertised_item(self, direct: DirectFunction) -> FunctionCallRegistryItem:
        with self._lock:
            known = self._advertised.newest(direct.name)
        if known is not None and known.handler is direct:
            return known
        _warn_of_name(direct.name)
        return direct_item(direct, OptionOverrides(), auto_registered=True)

    def _is_cancellable(self, options: Options) -> bool:
        return not options.cancel_on_interruption and (
            options.cancellable_by_llm or self.enable_async_tool_cancellation
        )

    def _register(self, item: FunctionCallRegistryItem) -> None:
        self._check_name(item.function_name)
        _warn_of_name(item.function_name)
        with self._lock:
            self._by_hand[item.function_name] = item
        self._changed()

    def _changed(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    def _check_name(self, name: str | None) -> None:
        if name is not None and self.cancels(name) is not None:
            raise ReservedNameError(
                f"The name {name!r} is reserved for the built-in tool that cancels calls of {cancelled_by(name)!r}. "
                "Choose another name, or register that function without cancellable_by_llm."
            )

    def _listed(self) -> str:
        return ", ".join(sorted(label(item.function_name) for item in self._items())) or "none"


def _warn_of_name(name: str | None) -> None:
    """Warn of a name that only some providers accept, such as servers of open models and the application's own
    providers."""
    if name is not None and name != called_names.accepted(name):
        _log.warning("functions.name_not_portable", function_name=shown(name))


def _tool(schema: Schema) -> dict[str, Any]:
    return schema.to_openai() if isinstance(schema, FunctionSchema) else dict(schema)
