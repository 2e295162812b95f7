"""A tool list that cannot be published: what stays registered, and that its conversation is still followed."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.bounds import IN_PROCESS

from frameledger_services.event_log.producer import RecordRefusedError
from frameledger_services.functions import FunctionService
from frameledger_services.functions.call_state import BackgroundTasks
from frameledger_services.functions.tool_lists import ToolListFollower
from frameledger_services.settings import Settings
from frameledger_services.work import LeaseLostError


async def look(text: str):
    """Looks."""


async def search(text: str):
    """Searches."""


class Refusing(FunctionService):
    """It publishes, or raises at once, before the tasks that it started have begun."""

    error: Exception | None = None

    async def push_frame(self, context_id, frame, direction=None, *, causation_id=None):
        if self.error is not None:
            raise self.error


class Unfolded:
    """Statuses of a log that is never folded."""

    def folding(self, context_id, frame_id):
        return asyncio.timeout(None)


async def names_after(error):
    """The functions of the conversation after a list that is not published for this error."""
    service = Refusing(Settings())
    lists = ToolListFollower(service.registry, None)
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        background = BackgroundTasks(tasks)
        running = SimpleNamespace(tool_lists=lists, background=background, statuses=Unfolded())
        service._running = running  # type: ignore[assignment]  # all that setting tools needs of it
        service.registry.advertise("c", [look])
        service.error = error
        with pytest.raises(type(error)):
            await service.set_tools("c", [search])
        assert lists._publishing == set()
        await background.end(0.0)
    return service.registry.advertised_names("c")


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
