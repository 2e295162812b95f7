"""A service in a program: what becomes of the program's own cancellation while it ends the service."""

import asyncio
from typing import Any

import pytest
from tests.bounds import IN_PROCESS

from frameledger_services.work import BackgroundService


class Worker:
    async def ready(self): ...


class SlowToEnd(BackgroundService):
    """A service that ends once `may_end` is set, with this error if there is one."""

    _worker: Any = Worker()

    def __init__(self, error=None):
        self.is_ending, self.may_end = asyncio.Event(), asyncio.Event()
        self._error = error

    async def run(self, stopping):
        try:
            await stopping.wait()
        finally:
            self.is_ending.set()
            await self.may_end.wait()
            if self._error is not None:
                raise self._error


async def started(error=None):
    service = SlowToEnd(error)
    await service.start()
    return service


@pytest.mark.regression("worker 11")
def test_who_is_cancelled_while_a_service_ends_is_cancelled():
    async def run():
        service = await started()
        task = service._task
        ending = asyncio.create_task(service.cancel())
        async with asyncio.timeout(IN_PROCESS):
            await service.is_ending.wait()
            ending.cancel()
            await asyncio.wait([ending])
            service.may_end.set()
            await asyncio.wait([task])
        return ending.cancelled()

    assert asyncio.run(run())


def test_a_service_that_is_cancelled_has_ended_and_its_error_is_raised():
    async def run(error):
        service = await started(error)
        service.may_end.set()
        async with asyncio.timeout(IN_PROCESS):
            await service.cancel()
            # Nothing runs any more.
            await service.cancel()

    asyncio.run(run(None))
    with pytest.raises(LookupError, match="a bug"):
        asyncio.run(run(LookupError("a bug")))


@pytest.mark.regression("journey 66")
def test_a_service_that_an_error_ended_says_so_when_it_is_started_and_starts_at_the_next_call():
    async def run():
        service = await started(LookupError("a bug"))
        service.may_end.set()
        service._task.cancel()
        async with asyncio.timeout(IN_PROCESS):
            await asyncio.wait([service._task])
            with pytest.raises(LookupError, match="a bug"):
                await service.start()
            service._error = None
            await service.start()
            begun = service._task
            await service.start()
            assert service._task is begun
            assert not begun.done()
            await service.stop()

    asyncio.run(run())
