"""Which handler serves which function, with which options."""

import inspect
import math
import threading
from functools import partial, wraps

import pytest
from tests.bounds import IN_PROCESS

from frameledger.tools import FunctionSchema
from frameledger_services.functions import (
    FunctionCallParams,
    FunctionRegistry,
    FunctionSchemaError,
    ReservedNameError,
    UnknownFunctionError,
    tool_options,
)
from frameledger_services.functions.options import Options


async def one(params): ...


async def two(params): ...


async def search(text: str):
    """Searches."""


def handler(registry, name="look", context_id=None):
    item = registry.lookup(name, context_id)
    return None if item is None else item.function


def test_a_later_registration_replaces_an_earlier():
    registry = FunctionRegistry()
    registry.register_function("look", one)
    registry.register_function("look", two)
    assert handler(registry) is two


@pytest.mark.regression("worker 143")
def test_a_name_that_providers_refuse_is_warned_of_and_served(caplog):
    def größe(): ...

    registry = FunctionRegistry()
    names = ("look", "x" * 64, "7-up_", "x" * 65, "look up", "shop.look", "größe")
    for name in names[:-1]:
        registry.register_function(name, one)
    registry.register_direct_function(größe)
    registry.register_function(None, two)
    assert registry.serves() == tuple(sorted(names))
    warned = [f"functions.name_not_portable function_name={name!r}" for name in names[3:]]
    assert [record.getMessage() for record in caplog.records] == warned
    caplog.clear()
    registry = FunctionRegistry()
    for context_id in ("a", "b"):
        registry.advertise(context_id, [größe])
    assert [record.getMessage() for record in caplog.records] == warned[-1:]


def test_the_catch_all_serves_what_nothing_else_does():
    registry = FunctionRegistry()
    registry.register_function(None, two)
    registry.register_function("look", one)
    assert (handler(registry), handler(registry, "other")) == (one, two)
    assert registry.has_function("other")
    assert (registry.serves(), registry.serves_all) == (("look",), True)
    registry.unregister_function(None)
    assert not registry.has_function("other")


def test_by_hand_outranks_advertised_and_outlives_it():
    registry = FunctionRegistry()
    registry.register_function("search", one)
    registry.advertise("a", [search])
    assert handler(registry, "search", "a") is one
    registry.keep_advertised("a", [])
    assert handler(registry, "search", "a") is one


def test_an_advertised_function_leaves_with_its_tool():
    registry = FunctionRegistry()
    registry.advertise("a", [search])
    item = registry.lookup("search", "a")
    assert (item.function, item.auto_registered) == (search, True)
    registry.keep_advertised("a", ["search"])
    assert registry.has_function("search")
    registry.keep_advertised("a", ["something else"])
    assert not registry.has_function("search")
    assert registry.advertising_contexts() == frozenset()


def test_each_context_has_the_function_that_it_was_given():
    def named_search(text: str): ...

    named_search.__name__ = "search"
    registry = FunctionRegistry()
    registry.advertise("a", [search])
    registry.advertise("b", [named_search])
    assert handler(registry, "search", "a") is search
    assert handler(registry, "search", "b") is named_search
    # Whoever advertises the name by other means gets the newest.
    assert handler(registry, "search", "c") is named_search


def test_what_was_removed_by_hand_is_not_brought_back_while_the_tool_stays_advertised():
    registry = FunctionRegistry()
    registry.advertise("a", [search])
    registry.unregister_function("search")
    registry.advertise("a", [search])
    assert not registry.has_function("search")
    registry.keep_advertised("a", [])
    registry.advertise("a", [search])
    assert registry.has_function("search")


def test_contexts_that_are_given_the_same_function_share_what_is_known_of_it():
    registry = FunctionRegistry()
    for context_id in ("a", "b"):
        registry.advertise(context_id, [search])
    assert registry.lookup("search", "a") is registry.lookup("search", "b")

    def other():
        async def search(number: int): ...

        return search

    registry.advertise("b", [other()])
    assert registry.lookup("search", "a") is not registry.lookup("search", "b")
    assert registry.offers()["functions"][0]["schema"]["function"]["parameters"]["required"] == ["number"]


def test_removing_an_unknown_function_lists_the_known_ones():
    registry = FunctionRegistry()
    registry.register_function("look", one)
    with pytest.raises(UnknownFunctionError, match="'look'"):
        registry.unregister_function("lok")
    with pytest.raises(UnknownFunctionError, match="'look'"):
        registry.unregister_direct_function(two)
    registry.unregister_direct_function(one)
    with pytest.raises(UnknownFunctionError, match="none"):
        registry.unregister_function(None)


class Shop:
    async def sell(self, what: str):
        """Sells."""


@pytest.mark.regression("repair 9")
def test_a_bound_method_is_removed_as_it_was_registered():
    registry, shop = FunctionRegistry(), Shop()
    registry.register_direct_function(shop.sell)
    with pytest.raises(UnknownFunctionError, match="'sell'"):
        registry.unregister_direct_function(Shop().sell)
    registry.unregister_direct_function(shop.sell)
    assert not registry.has_function("sell")

    registry.advertise("a", [shop.sell])
    registry.unregister_direct_function(shop.sell)
    assert not registry.has_function("sell")


def test_an_explicit_option_outranks_the_decorator_which_outranks_the_default():
    @tool_options(cancel_on_interruption=False, timeout_secs=5, cancellable_by_llm=True)
    async def marked(params): ...

    registry = FunctionRegistry()
    registry.register_function("plain", one)
    registry.register_function("marked", marked)
    registry.register_function("explicit", marked, cancel_on_interruption=True, timeout_secs=9)
    options = {name: registry.lookup(name).options for name in registry.serves()}
    assert options == {
        "plain": Options(True, None, False, False),
        "marked": Options(False, 5, True, False),
        "explicit": Options(True, 9, True, False),
    }


async def dependent(shop, params): ...


class Market:
    @tool_options(safe_to_retry=True)
    async def __call__(self, params): ...

    @tool_options(safe_to_retry=True)
    @staticmethod
    async def static(text: str): ...

    @tool_options(safe_to_retry=True)
    @classmethod
    async def of_class(cls, text: str): ...


def above_a_registration(registry):
    @tool_options(safe_to_retry=True)
    @registry.register_direct_function
    async def look(text: str): ...


def stacked(registry):
    @tool_options(timeout_secs=5)
    @tool_options(safe_to_retry=True, timeout_secs=9)
    async def look(params): ...

    registry.register_function("look", look)


@pytest.mark.regression("worker 98")
@pytest.mark.parametrize(
    ("register", "timeout_secs"),
    [
        (above_a_registration, None),
        (stacked, 5),
        (
            lambda registry: registry.register_function(
                "look", partial(tool_options(safe_to_retry=True)(dependent), None)
            ),
            None,
        ),
        (lambda registry: registry.register_function("look", Market()), None),
        (lambda registry: registry.register_direct_function(Market.static), None),
        (lambda registry: registry.register_direct_function(Market.of_class), None),
    ],
    ids=["above", "stacked", "partial", "object", "static", "class"],
)
def test_options_are_found_wherever_the_decorator_stands(register, timeout_secs):
    registry = FunctionRegistry()
    register(registry)
    (name,) = registry.serves()
    assert registry.lookup(name).options == Options(safe_to_retry=True, timeout_secs=timeout_secs)
    assert registry.offers()["functions"][0]["options"]["safe_to_retry"]


def test_an_option_of_a_partial_outranks_that_of_its_function():
    @tool_options(timeout_secs=9, safe_to_retry=True)
    async def look(shop, params): ...

    registry = FunctionRegistry()
    registry.register_function("look", tool_options(timeout_secs=5)(partial(look, None)))
    assert registry.lookup("look").options == Options(timeout_secs=5, safe_to_retry=True)


@pytest.mark.parametrize("secs", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_is_a_number_above_zero(secs):
    with pytest.raises(ValueError, match="timeout_secs"):
        tool_options(timeout_secs=secs)


def test_the_name_of_a_cancel_tool_is_reserved():
    registry = FunctionRegistry()
    registry.register_function("search", one, cancel_on_interruption=False, cancellable_by_llm=True)
    assert registry.cancels("cancel_search") == "search"
    with pytest.raises(ReservedNameError, match="cancel_search"):
        registry.register_function("cancel_search", two)
    registry.register_function("cancel_order", two)
    assert registry.cancels("cancel_order") is None


def test_an_applications_own_tool_of_that_name_wins():
    registry = FunctionRegistry()
    registry.register_function("cancel_search", two)
    registry.register_function("search", one, cancel_on_interruption=False, cancellable_by_llm=True)
    assert registry.cancels("cancel_search") is None
    assert handler(registry, "cancel_search") is two


def test_an_applications_own_tool_of_that_name_may_be_advertised_again_and_elsewhere():
    @tool_options(cancel_on_interruption=False, cancellable_by_llm=True)
    async def look(what: str):
        """Looks."""

    async def cancel_look():
        """The application's own."""

    registry = FunctionRegistry()
    for context_id in ("one", "one", "another"):
        registry.advertise(context_id, [cancel_look, look])
    assert registry.cancellable() == {"look"}
    assert registry.cancels("cancel_look") is None


def test_the_switch_of_the_service_opts_every_asynchronous_function_in():
    registry = FunctionRegistry(enable_async_tool_cancellation=True)
    registry.register_function("slow", one, cancel_on_interruption=False)
    registry.register_function("quick", one)
    assert registry.cancellable() == {"slow"}


def test_an_offer_has_name_schema_and_terms():
    registry = FunctionRegistry()
    registry.register_function("bare", one)
    registry.register_direct_function(search, timeout_secs=3, cancel_on_interruption=False)
    assert registry.offers() == {
        "functions": [
            {
                "name": "bare",
                "schema": None,
                "options": {
                    "cancel_on_interruption": True,
                    "timeout_secs": None,
                    "cancellable_by_llm": False,
                    "safe_to_retry": False,
                },
            },
            {
                "name": "search",
                "schema": {
                    "type": "function",
                    "function": {
                        "name": "search",
                        "description": "Searches.",
                        "parameters": {
                            "type": "object",
                            "properties": {"text": {"type": "string"}},
                            "required": ["text"],
                        },
                    },
                },
                "options": {
                    "cancel_on_interruption": False,
                    "timeout_secs": 3,
                    "cancellable_by_llm": False,
                    "safe_to_retry": False,
                },
            },
        ]
    }
    assert [tool["function"]["name"] for tool in registry.schemas()] == ["search"]


def test_who_watches_is_told_of_each_change():
    registry, told = FunctionRegistry(), []
    unwatch = registry.watch(lambda: told.append(registry.serves()))
    registry.register_function("look", one)
    registry.advertise("a", [search])
    registry.keep_advertised("a", ["search"])
    registry.keep_advertised("a", [])
    registry.unregister_function("look")
    unwatch()
    registry.register_function("look", one)
    assert told == [("look",), ("look", "search"), ("look",), ()]


@pytest.mark.regression("worker 100")
def test_a_function_may_be_registered_while_another_thread_reads_what_is_served():
    registry = FunctionRegistry()

    class Read(str):
        """A name. While names are read, another thread registers a function."""

        is_read = False

        def __hash__(self):
            if self.is_read:
                registering = threading.Thread(target=registry.register_function, args=("look", one))
                registering.start()
                registering.join(IN_PROCESS)
            return super().__hash__()

    registry.register_function(Read("other"), one)
    Read.is_read = True
    assert "other" in registry.serves()
    Read.is_read = False
    assert registry.has_function("look")


def test_what_cannot_be_called_or_has_another_schema_is_refused():
    registry = FunctionRegistry()
    with pytest.raises(TypeError, match="is not callable"):
        registry.register_function("look", "not a function")
    with pytest.raises(ValueError, match="'other'"):
        registry.register_function("look", one, schema=FunctionSchema("other"))
    with pytest.raises(ValueError, match="not a valid JSON Schema"):
        registry.register_function(
            "look", one, schema=FunctionSchema("look", properties={"a": {"type": "nothing"}})
        )
    with pytest.raises(FunctionSchemaError, match="no name"):
        registry.register_direct_function(lambda: None)
    with pytest.raises(ValueError, match="a name"):
        registry.register_function("", one)
    assert registry.serves() == ()


@pytest.mark.regression("worker 74")
@pytest.mark.parametrize("default", [math.nan, -math.inf, 10**400, object()], ids=type)
def test_a_schema_that_is_no_json_is_refused_when_it_is_registered(default):
    registry = FunctionRegistry()
    parameters = {"type": "object", "properties": {"a": {"default": default}}}
    schema = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    with pytest.raises(ValueError, match="the schema of 'look' is not JSON"):
        registry.register_function("look", one, schema=schema)
    assert registry.serves() == ()


@pytest.mark.regression("worker 81")
def test_a_handler_that_yields_is_refused_since_it_would_never_begin():
    registry = FunctionRegistry()

    def look():
        yield 1

    async def listen():
        yield 1

    class Called:
        def __call__(self, params):
            yield 1

    for handler in (look, listen, partial(listen), Called()):
        with pytest.raises(TypeError, match="is a generator"):
            registry.register_function("look", handler)
    for handler in (look, listen):
        with pytest.raises(FunctionSchemaError, match="is a generator"):
            registry.register_direct_function(handler)
    assert registry.serves() == ()


@pytest.mark.regression("worker 84")
def test_a_handler_that_cannot_be_given_the_parameters_of_its_call_is_refused():
    registry = FunctionRegistry()

    class Desk:
        async def serve(self, params): ...

    async def nothing(): ...
    async def by_name(*, params): ...
    async def older(function_name, tool_call_id, arguments, llm, context, result_callback): ...

    @wraps(older)
    async def adapted(params): ...

    class Declared:
        """As a decorator of wrapt makes it."""

        __signature__ = inspect.signature(older)

        async def __call__(self, *arguments): ...

    for handler in (nothing, by_name, older, partial(older, "look"), Desk.serve):
        with pytest.raises(TypeError, match="register_direct_function"):
            registry.register_function("look", handler)
    for fits in (partial(older, *"12345"), Desk().serve, adapted, Declared(), one, print):
        registry.register_function("look", fits)


@pytest.mark.regression("worker 75")
@pytest.mark.parametrize("name", ["look\0", "look\ud800"], ids=["NUL", "half"])
def test_a_name_that_no_database_holds_is_refused_when_it_is_registered(name):
    registry = FunctionRegistry()
    with pytest.raises(ValueError, match="a function's name"):
        registry.register_function(name, one)
    with pytest.raises(TypeError, match="a function's name is text"):
        registry.register_function(one, one)
    assert registry.serves() == ()


def test_async_handlers_are_told_from_plain_ones():
    class Called:
        async def __call__(self, params): ...

    registry = FunctionRegistry()
    registry.register_function("async", one)
    registry.register_function("called", Called())
    registry.register_function("plain", print)
    registry.register_function("class", FunctionCallParams)
    found = {name: registry.lookup(name).is_async for name in registry.serves()}
    assert found == {"async": True, "called": True, "plain": False, "class": False}
