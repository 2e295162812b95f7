"""Tool lists that are rejected, or set at once: which handlers stay registered."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger_services.event_log.publish_errors import RecordRefusedError, TooLargeError
from frameledger_services.functions import FunctionService, NotRunningError
from frameledger_services.functions.call_state import BackgroundTasks
from frameledger_services.functions.tool_lists import ToolListFollower
from frameledger_services.settings import Settings
from frameledger_services.work import LeaseLostError


async def look(text: str):
    """Looks."""


async def search(text: str):
    """Searches."""


def another_search():
    """A function of the same name, with another schema."""

    async def search(number: int): ...

    return search


class Refusing(FunctionService):
    """It publishes, or raises at once, before the tasks that it started have begun."""

    error: Exception | None = None

    async def push_frame(self, context_id, frame, direction=None, *, causation_id=None):
        if self.error is not None:
            raise self.error


class Unfolded:
    """Statuses of a log that is never folded."""

    @asynccontextmanager
    async def folding(self, context_id, frame_id):
        yield asyncio.get_running_loop().create_future()


@asynccontextmanager
async def running(service):
    """The service, with all that setting tools needs of it. Yields what follows the tool lists."""
    lists = ToolListFollower(service.registry, None)
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        background = BackgroundTasks(tasks)
        runtime = SimpleNamespace(tool_lists=lists, background=background, statuses=Unfolded())
        service._running = runtime
        yield lists
        await background.end(0.0)


async def names_after(error):
    """The functions of the conversation after a list that is not published for this error."""
    service = Refusing(Settings())
    async with running(service) as lists:
        service.registry.advertise("c", [look])
        service.error = error
        with pytest.raises(type(error)):
            await service.set_tools("c", [search])
        await turns()
        assert not lists._publishing
    return service.registry.advertised("c").names


@pytest.mark.regression("worker 12")
@pytest.mark.parametrize(
    ("error", "names"),
    [
        (ValueError("no JSON"), {"look"}),
        (RecordRefusedError("Not authorized.", [None]), {"look"}),
        (LeaseLostError(), {"look", "search"}),
    ],
    ids=["nothing was sent", "refused", "perhaps sent"],
)
def test_a_list_that_is_not_published_takes_no_handler_away_and_leaves_its_conversation_followed(
    error, names
):
    assert asyncio.run(names_after(error)) == names


@pytest.mark.regression("worker 64")
@pytest.mark.parametrize("context_id", ["\ud800", "a\0", "", "x" * 256], ids=["half", "NUL", "empty", "long"])
def test_the_database_is_not_asked_about_a_conversation_that_cannot_be(context_id):
    """All calls of a process share the question in which this would be, and half a character ends who asks it."""

    async def registered():
        service, changes = Refusing(Settings()), []
        service.registry.watch(lambda: changes.append("changed"))
        async with running(service):
            with pytest.raises(ValueError, match="context_id"):
                await service.set_tools(context_id, [search])
        return changes

    assert asyncio.run(registered()) == []


def handlers(service, *context_ids):
    """What a call of `search` gets in each of these conversations."""
    found = [service.registry.lookup("search", context_id) for context_id in context_ids]
    return [None if item is None else item.function for item in found]


@pytest.mark.regression("worker 16")
@pytest.mark.parametrize("order", ["cd", "dc"])
def test_a_refused_list_puts_back_the_handlers_that_it_replaced(order):
    async def run():
        service, of = Refusing(Settings()), {"c": search, "d": another_search()}
        async with running(service):
            for context_id in order:
                service.registry.advertise(context_id, [of[context_id]])
            before, offers = handlers(service, "c", "d", "any"), service.registry.offers()
            service.error = TooLargeError("Too large.", [None])
            with pytest.raises(TooLargeError):
                await service.set_tools("c", [another_search(), look])
        # A conversation without a list of its own gets the newest, which is the same as before, too.
        assert before == [of["c"], of["d"], of[order[-1]]]
        assert handlers(service, "c", "d", "any") == before
        assert service.registry.offers() == offers

    asyncio.run(run())


class Held(FunctionService):
    """Each of its lists is published when the test says how that ends."""

    def __init__(self):
        super().__init__(Settings())
        self.lists: asyncio.Queue[tuple[list[str], asyncio.Future[None]]] = asyncio.Queue()

    async def push_frame(self, context_id, frame, direction=None, *, causation_id=None):
        end = asyncio.get_running_loop().create_future()
        self.lists.put_nowait(([tool["function"]["name"] for tool in frame.tools], end))
        await end


def test_a_handler_that_is_unregistered_while_its_list_is_refused_is_not_put_back():
    async def run():
        service = Held()
        async with running(service):
            service.registry.advertise("c", [search])
            setting = asyncio.create_task(service.set_tools("c", [another_search()]))
            _, end = await service.lists.get()
            service.unregister_function("search")
            end.set_exception(TooLargeError("Too large.", [None]))
            with pytest.raises(TooLargeError):
                await setting
            assert not service.has_function("search")
            # Its tool is still advertised by the list before, so that list does not register it again.
            service.registry.advertise("c", [search])
            assert not service.has_function("search")

    asyncio.run(run())


@pytest.mark.regression("worker 15")
@pytest.mark.parametrize("error", [None, TooLargeError("Too large.", [None])], ids=["published", "refused"])
def test_lists_of_one_conversation_that_are_set_at_once_take_effect_one_after_the_other(error):
    async def run():
        service = Held()
        async with running(service):
            setting = [asyncio.create_task(service.set_tools("c", [one])) for one in (look, search)]
            names, end = await service.lists.get()
            assert names == ["look"]
            if error is None:
                end.set_result(None)
            else:
                end.set_exception(error)
            names, end = await service.lists.get()
            assert names == ["search"]
            end.set_result(None)
            assert await asyncio.gather(*setting, return_exceptions=True) == [error, None]
        assert service.registry.advertised("c").names == {"search"}

    asyncio.run(run())


@pytest.mark.regression("worker 42")
def test_of_two_lists_that_are_not_folded_yet_the_first_that_is_leaves_the_other_awaited():
    async def run():
        service, folded = Refusing(Settings()), []

        class Folding:
            @asynccontextmanager
            async def folding(self, context_id, frame_id):
                folded.append(asyncio.get_running_loop().create_future())
                yield folded[-1]

        async with running(service) as lists:
            service._running.statuses = Folding()
            await service.set_tools("c", [look])
            await service.set_tools("c", [search])
            await turns()
            awaited = []
            for version, one in enumerate(folded, start=7):
                awaited.append("c" in lists._publishing)
                one.set_result(SimpleNamespace(version=version))
                await turns()
            assert awaited == [True, True]
            assert not lists._publishing
            assert lists._seen == {"c": 8}

    asyncio.run(run())


def test_a_list_waits_for_no_other_conversation_and_sets_nothing_once_the_service_has_stopped():
    async def run():
        service = Held()
        async with running(service):
            first = asyncio.create_task(service.set_tools("c", [look]))
            _, end = await service.lists.get()
            other = asyncio.create_task(service.set_tools("d", [look]))
            _, end_of_other = await service.lists.get()
            end_of_other.set_result(None)
            await other
            given_up, waiting = (asyncio.create_task(service.set_tools("c", [search])) for _ in range(2))
            await asyncio.wait({given_up}, timeout=0)
            given_up.cancel()
            await asyncio.wait({given_up})
            service._running = None
            end.set_result(None)
            await first
            with pytest.raises(NotRunningError):
                await waiting
        assert service.registry.advertised("c").names == {"look"}
        assert service._tools._queues._queues == {}

    asyncio.run(run())
