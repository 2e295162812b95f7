"""The notifications of batches and their rate, with a connection that records its statements."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.bounds import IN_PROCESS
from tests.support.loop_clock import LoopClock
from tests.support.turns import turns

from frameledger_services import failpoints
from frameledger_services.projector import notifier
from frameledger_services.projector.notifier import Notifier
from frameledger_services.store import progress_channel

INTERVALS = {False: notifier.INTERVAL_SECONDS, True: notifier.BACKLOG_INTERVAL_SECONDS}
"""By whether there is a backlog."""


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


@pytest.mark.parametrize("backlog", [False, True])
def test_batches_that_come_seldom_are_announced_at_once(backlog):
    async def run():
        async with running_notifier() as (one, said):
            clock = LoopClock()
            for offset in (1, 2, 3):
                one.notify({0: offset}, (), backlog=backlog)
                await turns(3)
                clock.seconds += INTERVALS[backlog]
            assert said == [f"frames 0:{offset} #" for offset in (1, 2, 3)]

    asyncio.run(run())


@pytest.mark.parametrize("backlog", [False, True])
def test_of_the_batches_of_an_interval_the_first_is_announced_at_once_and_the_others_together(backlog):
    async def run():
        async with running_notifier() as (one, said):
            clock = LoopClock()
            for offset in range(1, 50):
                one.notify({0: offset, offset % 3 + 1: offset}, (), backlog=backlog)
                await turns(3)
            assert said == ["frames 0:1 2:1 #"]
            clock.seconds += INTERVALS[backlog] * 0.9
            await turns(3)
            assert len(said) == 1
            clock.seconds += INTERVALS[backlog] * 0.2
            await turns(3)
            assert said[1:] == ["frames 0:49 3:47 1:48 2:49 #"]

    asyncio.run(run())


def test_a_single_frame_does_not_wait_for_the_interval_of_a_backlog():
    async def run():
        async with running_notifier() as (one, said):
            clock = LoopClock()
            one.notify({0: 1}, (), backlog=True)
            await turns(3)
            for offset, backlog in ((2, True), (3, False), (4, True)):
                one.notify({0: offset}, (), backlog=backlog)
            await turns(3)
            assert said == ["frames 0:1 #"]
            clock.seconds += INTERVALS[False] * 1.1
            await turns(3)
            assert said[1:] == ["frames 0:4 #"]

    asyncio.run(run())


def test_the_conversations_of_batches_are_announced_together(monkeypatch):
    monkeypatch.setattr(notifier, "BACKLOG_INTERVAL_SECONDS", 3600.0)

    async def run():
        async with running_notifier() as (one, said):
            for offset, names in enumerate(([], ["a"], ["b", "c"]), 1):
                one.notify({0: offset}, names, backlog=True)
                await turns(3)
            await one.until_drained()
            first, then = (progress_channel.read_notification(each).conversations for each in said)
            assert first == frozenset()
            assert then == frozenset(map(progress_channel.hash_of, "abc"))

    asyncio.run(run())


def test_it_is_not_finished_before_the_last_is_announced(monkeypatch):
    monkeypatch.setattr(notifier, "BACKLOG_INTERVAL_SECONDS", 3600.0)

    async def run():
        async with running_notifier() as (one, said):
            await one.until_drained()
            for offset in (6, 7):
                one.notify({0: offset}, (), backlog=True)
                await turns(3)
            assert said == ["frames 0:6 #"]
            for _ in range(2):
                await one.until_drained()
                assert said[1:] == ["frames 0:7 #"]

    asyncio.run(run())


def test_what_waits_for_others_does_not_wait_longer_than_a_moment(monkeypatch):
    monkeypatch.setattr(notifier, "BACKLOG_INTERVAL_SECONDS", 0.002)

    async def run():
        async with running_notifier() as (one, said):
            for offset in (1, 2):
                one.notify({0: offset}, (), backlog=True)
                await turns(1)
            async with asyncio.timeout(IN_PROCESS):
                await one._idle.wait()
            assert said[-1] == "frames 0:2 #"

    asyncio.run(run())
