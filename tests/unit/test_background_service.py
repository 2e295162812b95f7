"""A service in a program: the program's own cancellation while it stops the service is not lost."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.pq import TransactionStatus
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger_services import work
from frameledger_services.functions import FunctionService
from frameledger_services.inference import service as inference
from frameledger_services.inference.service import InferenceService
from frameledger_services.providers.scripted import ScriptedLLMService
from frameledger_services.settings import Settings
from frameledger_services.store import connections
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


@pytest.mark.regression("fault 156")
def test_an_inference_service_that_is_started_again_reads_by_connections_that_it_keeps(monkeypatch):
    opened = []

    class Connection:
        info = SimpleNamespace(transaction_status=TransactionStatus.IDLE)

        async def close(self): ...

    async def connect(*_):
        opened.append(Connection())
        return opened[-1]

    async def nothing(connection): ...

    async def reads_twice(worker, stopping):
        for _ in range(2):
            await service._connections.read(nothing)

    monkeypatch.setattr(connections, "connect", connect)
    monkeypatch.setattr(work.Worker, "run", reads_twice)
    service = InferenceService(Settings(), ScriptedLLMService())

    async def run():
        async with asyncio.timeout(IN_PROCESS):
            for _ in range(2):
                await service.run(asyncio.Event())

    asyncio.run(run())
    assert len(opened) == 2


@pytest.mark.regression("worker 121")
def test_a_stop_reaches_an_answer_whose_provider_took_the_first_cancellation_for_something_else(monkeypatch):
    monkeypatch.setattr(inference, "CANCEL_AGAIN_SECONDS", 0.01)

    async def takes_one(begun, may_end):
        with suppress(asyncio.CancelledError):
            begun.set()
            await asyncio.Event().wait()
        await may_end.wait()

    async def run():
        begun, may_end = asyncio.Event(), asyncio.Event()
        stopping = asyncio.create_task(inference._unless(begun, takes_one(begun, may_end)))
        stopped, _ = await asyncio.wait([stopping], timeout=IN_PROCESS)
        may_end.set()
        await stopping
        return stopping in stopped

    assert asyncio.run(run())


@pytest.mark.regression("worker 180")
@pytest.mark.parametrize("kind", [InferenceService, FunctionService])
def test_a_service_that_still_ends_is_not_started_again(kind, monkeypatch):
    """The end of its first run would close the model and the connections of the second."""
    may_end = asyncio.Event()

    class Model(ScriptedLLMService):
        starts = 0

        async def start(self, frame=None):
            self.starts += 1
            await may_end.wait()

    async def drains(worker, stopping):
        await stopping.wait()

    monkeypatch.setattr(work.Worker, "run", drains)

    async def run():
        model = Model()
        service = kind(Settings(), model) if kind is InferenceService else kind(Settings(), llm=model)
        async with asyncio.timeout(IN_PROCESS):
            first = asyncio.create_task(service.run(asyncio.Event()))
            await turns()
            second = asyncio.create_task(service.run(asyncio.Event()))
            await turns()
            starts = model.starts
            for task in (first, second):
                task.cancel()
            await asyncio.wait([first, second])
        return starts, None if second.cancelled() else second.exception()

    starts, error = asyncio.run(run())
    assert starts == 1
    assert isinstance(error, RuntimeError)
