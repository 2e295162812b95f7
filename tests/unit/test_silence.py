"""The silence of a provider is measured only while our event loop runs."""

import asyncio

import pytest

from frameledger_services.providers import silence as module
from frameledger_services.providers.silence import LOOKS, Silence, hear

SECS = 8.0


class Clock:
    """The loop's clock, which moves when it is told to."""

    def __init__(self, loop):
        self.now = loop.time()
        loop.time = lambda: self.now

    async def goes_on(self, secs, turns=3):
        """Time passes, and the loop comes round a few times after that."""
        self.now += secs
        loop = asyncio.get_running_loop()
        for _ in range(turns):
            turned = loop.create_future()
            loop.call_soon(turned.set_result, None)
            await turned


async def waiting(heard):
    async with Silence(SECS):
        await heard.wait()


def tried(story):
    async def life():
        clock, heard = Clock(asyncio.get_running_loop()), asyncio.Event()
        task = asyncio.create_task(waiting(heard))
        await clock.goes_on(0)
        await story(clock, heard, task)

    asyncio.run(life())


@pytest.mark.regression("trial m5")
def test_what_came_while_the_loop_was_busy_for_longer_than_the_limit_came_in_time():
    async def story(clock, heard, task):
        for _ in range(LOOKS - 1):
            await clock.goes_on(10 * SECS)
        heard.set()
        await clock.goes_on(0)
        assert task.done()
        await task

    tried(story)


def test_a_provider_that_says_nothing_while_the_loop_looks_is_silent():
    async def story(clock, heard, task):
        for _ in range(LOOKS - 1):
            await clock.goes_on(SECS / LOOKS + 0.001)
        assert not task.done()
        await clock.goes_on(SECS / LOOKS + 0.001)
        with pytest.raises(TimeoutError):
            await task

    tried(story)


async def seeing_signs(silence, arrived):
    async with silence:
        while True:
            await arrived.wait()
            arrived.clear()
            hear()


def ended(signs):
    """How often the loop looked until it was silence, with a sign of life before each of the first so many looks; and
    whether there were signs up to its end."""

    async def life():
        clock, arrived = Clock(asyncio.get_running_loop()), asyncio.Event()
        silence, looks = Silence(SECS), 0
        task = asyncio.create_task(seeing_signs(silence, arrived))
        await clock.goes_on(0)
        while not task.done():
            if looks < signs:
                arrived.set()
                await clock.goes_on(0)
            looks += 1
            await clock.goes_on(SECS / LOOKS + 0.001)
        with pytest.raises(TimeoutError):
            await task
        assert silence.expired()
        return looks, silence.had_signs

    return asyncio.run(life())


@pytest.mark.regression("worker 92")
def test_a_sign_of_life_starts_it_again():
    assert ended(signs=LOOKS) == (2 * LOOKS, False)


@pytest.mark.regression("worker 92")
def test_of_signs_of_life_alone_it_lasts_no_longer_than_the_longest_silence(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_SILENCE", 5 * SECS)
    assert ended(signs=100 * LOOKS) == (5 * LOOKS, True)
