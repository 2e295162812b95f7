"""The notifications of batches and their rate, with a connection that records its statements."""

import asyncio
from contextlib import asynccontextmanager

from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger_services import failpoints
from frameledger_services.projector import notifier
from frameledger_services.projector.notifier import Notifier
from frameledger_services.store import progress_channel


class Connection:
    def __init__(self):
        self.said = []

    async def execute(self, _, parameters):
        channel, told = parameters
        assert channel == "frameledger_projected"
        self.said.append(told)


@asynccontextmanager
async def running_notifier():
    connection = Connection()
    made = Notifier(connection, "frames", failpoints.none)
    task = asyncio.create_task(made.run())
    yield made, connection.said
    task.cancel()


def test_a_batch_is_announced_at_once():
    async def run():
        async with running_notifier() as (one, said):
            for offset in (1, 2, 3):
                one.notify({0: offset}, (), soon=False)
                await turns(3)
            assert said == [f"frames 0:{offset} #" for offset in (1, 2, 3)]

    asyncio.run(run())


def test_of_batches_that_are_to_be_announced_soon_the_first_is_at_once_and_the_others_together(monkeypatch):
    monkeypatch.setattr(notifier, "INTERVAL_SECONDS", 3600.0)

    async def run():
        async with running_notifier() as (one, said):
            for offset in range(1, 50):
                one.notify({0: offset, offset % 3 + 1: offset}, (), soon=True)
                await turns(3)
            assert said == ["frames 0:1 2:1 #"]
            one.notify({0: 50}, (), soon=False)
            await turns(3)
            assert said[1:] == ["frames 0:50 3:47 1:48 2:49 #"]

    asyncio.run(run())


def test_the_conversations_of_batches_are_announced_together(monkeypatch):
    monkeypatch.setattr(notifier, "INTERVAL_SECONDS", 3600.0)

    async def run():
        async with running_notifier() as (one, said):
            for offset, names in enumerate(([], ["a"], ["b", "c"]), 1):
                one.notify({0: offset}, names, soon=True)
                await turns(3)
            await one.until_drained()
            first, then = (progress_channel.read_notification(each).conversations for each in said)
            assert first == frozenset()
            assert then == frozenset(map(progress_channel.hash_of, "abc"))

    asyncio.run(run())


def test_those_that_come_seldom_are_announced_one_by_one(monkeypatch):
    monkeypatch.setattr(notifier, "INTERVAL_SECONDS", 0.0)

    async def run():
        async with running_notifier() as (one, said):
            for offset in (1, 2):
                one.notify({0: offset}, (), soon=True)
                await turns(3)
            assert len(said) == 2

    asyncio.run(run())


def test_it_is_not_finished_before_the_last_is_announced(monkeypatch):
    monkeypatch.setattr(notifier, "INTERVAL_SECONDS", 3600.0)

    async def run():
        async with running_notifier() as (one, said):
            await one.until_drained()
            for offset in (6, 7):
                one.notify({0: offset}, (), soon=True)
                await turns(3)
            assert said == ["frames 0:6 #"]
            for _ in range(2):
                await one.until_drained()
                assert said[1:] == ["frames 0:7 #"]

    asyncio.run(run())


def test_what_waits_for_others_does_not_wait_longer_than_a_moment(monkeypatch):
    monkeypatch.setattr(notifier, "INTERVAL_SECONDS", 0.002)

    async def run():
        async with running_notifier() as (one, said):
            for offset in (1, 2):
                one.notify({0: offset}, (), soon=True)
                await turns(1)
            async with asyncio.timeout(IN_PROCESS):
                await one._idle.wait()
            assert said[-1] == "frames 0:2 #"

    asyncio.run(run())
