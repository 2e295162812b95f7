"""Waiting for the answers to what was sent."""

import asyncio

import pytest
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger_services.event_log.answers import Answers


def test_who_expects_nothing_does_not_wait():
    asyncio.run(asyncio.wait_for(Answers().all(), IN_PROCESS))


def test_answers_that_came_before_are_not_waited_for():
    async def scenario():
        answers = Answers()
        answers.expect()
        answers.came()
        await asyncio.wait_for(answers.all(), IN_PROCESS)

    asyncio.run(scenario())


def test_the_wait_ends_with_the_last_answer():
    async def scenario():
        answers = Answers()
        for _ in range(3):
            answers.expect()
        answers.came()
        waiting = asyncio.create_task(answers.all())
        await turns(3)
        answers.came()
        await turns(3)
        assert not waiting.done()
        answers.came()
        await asyncio.wait_for(waiting, IN_PROCESS)

    asyncio.run(scenario())


def test_an_answer_may_come_when_nobody_waits_any_more():
    async def scenario():
        answers = Answers()
        answers.expect()
        waiting = asyncio.create_task(answers.all())
        await turns(3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        answers.came()

    asyncio.run(scenario())
