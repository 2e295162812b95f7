"""The budget of concurrent requests."""

import asyncio

import pytest
from tests.bounds import IN_PROCESS

from frameledger_services.event_log.budget import Budget


async def settled():
    """Let every task that can go on go on."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def test_what_fits_is_given_at_once_and_the_rest_waits_its_turn():
    async def scenario():
        budget, order = Budget(10), []

        async def take(name, amount):
            await budget.take(amount)
            order.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name, amount in [("a", 6), ("b", 6), ("c", 1)]:
                tasks.create_task(take(name, amount))
            await settled()
            # The small one does not overtake: a large one would wait for ever.
            assert order == ["a"]
            budget.give(6)
        assert order == ["a", "b", "c"]

    asyncio.run(scenario())


def test_what_is_larger_than_the_budget_is_given_when_nothing_else_is_under_way():
    async def scenario():
        budget = Budget(10)
        await budget.take(3)
        large = asyncio.ensure_future(budget.take(100))
        await settled()
        assert not large.done()
        budget.give(3)
        await large

    asyncio.run(scenario())


@pytest.mark.parametrize("granted_first", [False, True])
def test_whoever_is_cancelled_while_waiting_has_taken_nothing(granted_first):
    async def scenario():
        budget = Budget(10)
        await budget.take(10)
        gone = asyncio.ensure_future(budget.take(10))
        await settled()
        if granted_first:
            budget.give(10)
            gone.cancel()
        else:
            gone.cancel()
            await settled()
            budget.give(10)
        with pytest.raises(asyncio.CancelledError):
            await gone
        async with asyncio.timeout(IN_PROCESS):
            await budget.take(10)

    asyncio.run(scenario())


@pytest.mark.regression("fault 59")
@pytest.mark.parametrize("amounts", [(10, 2), (4,)], ids=["two at once", "one, and room"])
def test_whoever_is_cancelled_as_room_is_made_is_told_that_it_is_cancelled(amounts):
    async def scenario():
        budget = Budget(10)
        await budget.take(8)
        waiting = [asyncio.ensure_future(budget.take(amount)) for amount in amounts]
        await settled()
        for one in waiting:
            one.cancel()
        if len(waiting) == 1:
            budget.give(8)
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * len(amounts)
        if len(waiting) > 1:
            budget.give(8)
        async with asyncio.timeout(IN_PROCESS):
            await budget.take(10)

    asyncio.run(scenario())


def test_a_cancelled_one_in_front_lets_the_next_one_in():
    async def scenario():
        budget = Budget(10)
        await budget.take(5)
        front, behind = asyncio.ensure_future(budget.take(10)), asyncio.ensure_future(budget.take(5))
        await settled()
        front.cancel()
        async with asyncio.timeout(IN_PROCESS):
            await behind

    asyncio.run(scenario())
