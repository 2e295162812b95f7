"""Jobs of one key run in order, those of other keys concurrently, with limits on both."""

import asyncio

import pytest

from frameledger_services.keyed_executor import KeyedExecutor


async def settled():
    """Let every task that can go on go on."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


class Jobs:
    """Jobs that are told when to end, and what has become of them."""

    def __init__(self):
        self.begun, self.ended, self.tickets = [], [], {}
        self._may_end = {}

    def named(self, name):
        self._may_end[name] = asyncio.Event()

        async def job(ticket):
            self.begun.append(name)
            self.tickets[name] = ticket
            await self._may_end[name].wait()
            self.ended.append(name)

        return job

    async def end(self, *names):
        for name in names:
            self._may_end[name].set()
        await settled()


def in_lanes(scenario, **limits):
    async def run():
        async with asyncio.TaskGroup() as tasks:
            await scenario(KeyedExecutor(tasks, **limits), Jobs())

    asyncio.run(run())


def test_the_jobs_of_a_key_go_on_one_after_the_other_in_the_order_given():
    async def scenario(executor, jobs):
        for name in ("a1", "a2", "a3"):
            executor.submit("a", jobs.named(name))
        await settled()
        assert jobs.begun == ["a1"]
        await jobs.end("a2", "a1")
        assert jobs.begun == ["a1", "a2", "a3"]
        await jobs.end("a3")
        assert jobs.ended == ["a1", "a2", "a3"]

    in_lanes(scenario, slots=5)


def test_a_slow_job_delays_its_own_key_only():
    async def scenario(executor, jobs):
        for key, name in (("a", "slow"), ("a", "behind"), ("b", "b1"), ("c", "c1")):
            executor.submit(key, jobs.named(name))
        await settled()
        assert jobs.begun == ["slow", "b1", "c1"]
        await jobs.end("b1", "c1", "slow", "behind")

    in_lanes(scenario, slots=5)


def test_a_job_that_releases_the_order_lets_the_next_of_its_key_begin():
    async def scenario(executor, jobs):
        for name in ("a1", "a2", "a3"):
            executor.submit("a", jobs.named(name))
        await settled()
        jobs.tickets["a1"].release_order()
        jobs.tickets["a1"].release_order()
        await settled()
        assert jobs.begun == ["a1", "a2"]
        # a2 has not passed on: that a1 ends changes nothing.
        await jobs.end("a1")
        assert jobs.begun == ["a1", "a2"]
        await jobs.end("a2", "a3")
        assert jobs.begun == ["a1", "a2", "a3"]

    in_lanes(scenario, slots=5, per_key=3)


def test_no_more_jobs_of_one_key_run_at_once_than_are_allowed():
    async def scenario(executor, jobs):
        for name in ("a1", "a2", "a3"):
            executor.submit("a", jobs.named(name))
        await settled()
        jobs.tickets["a1"].release_order()
        await settled()
        jobs.tickets["a2"].release_order()
        await settled()
        assert jobs.begun == ["a1", "a2"]
        await jobs.end("a1")
        assert jobs.begun == ["a1", "a2", "a3"]
        await jobs.end("a2", "a3")

    in_lanes(scenario, slots=5, per_key=2)


def test_running_and_waiting_jobs_use_slots():
    async def scenario(executor, jobs):
        assert executor.free_slots == 3
        for key, name in (("a", "a1"), ("a", "a2"), ("b", "b1")):
            executor.submit(key, jobs.named(name))
        assert executor.free_slots == 0
        with pytest.raises(ValueError, match="all 3 slots"):
            executor.submit("c", jobs.named("c1"))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(executor.wait_for_slot())
            await settled()
            assert not waiting.done()
            await jobs.end("b1")
            assert waiting.done()
        assert executor.free_slots == 1
        await jobs.end("a1", "a2")
        assert executor.free_slots == 3

    in_lanes(scenario, slots=3)


def test_join_returns_once_no_job_runs_and_none_waits():
    async def scenario(executor, jobs):
        await executor.join()
        executor.submit("a", jobs.named("a1"))
        executor.submit("a", jobs.named("a2"))
        async with asyncio.TaskGroup() as tasks:
            idle = tasks.create_task(executor.join())
            await settled()
            await jobs.end("a1")
            assert not idle.done()
            await jobs.end("a2")
            assert idle.done()

    in_lanes(scenario, slots=3)


def test_a_waiting_job_can_be_withdrawn_and_a_running_one_cannot():
    async def scenario(executor, jobs):
        first, second, third = (executor.submit("a", jobs.named(name)) for name in ("a1", "a2", "a3"))
        await settled()
        assert not executor.withdraw(first)
        assert executor.withdraw(second)
        assert not executor.withdraw(second)
        assert executor.free_slots == 1
        await jobs.end("a1")
        assert jobs.begun == ["a1", "a3"]
        await jobs.end("a3")
        assert not executor.withdraw(third)

    in_lanes(scenario, slots=3)


def test_what_a_job_raises_reaches_the_task_group_and_nothing_of_its_key_begins_after_it():
    begun = []

    async def scenario(executor, jobs):
        async def fails(ticket):
            raise LookupError("a bug")

        async def behind(ticket):
            begun.append("behind")

        executor.submit("a", fails)
        executor.submit("a", behind)
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        in_lanes(scenario, slots=3)
    assert raised.group_contains(LookupError, match="a bug")
    assert begun == []


@pytest.mark.regression("worker 9")
def test_a_job_that_is_cancelled_from_inside_lets_the_next_of_its_key_begin():
    async def scenario(executor, jobs):
        async def awaits_a_cancelled_task(ticket):
            inside = asyncio.create_task(asyncio.Event().wait())
            inside.cancel()
            await inside

        executor.submit("a", awaits_a_cancelled_task)
        executor.submit("a", jobs.named("a2"))
        await settled()
        assert jobs.begun == ["a2"]
        await jobs.end("a2")
        assert executor.free_slots == 3

    in_lanes(scenario, slots=3)


def test_jobs_that_wait_do_not_begin_when_the_group_is_cancelled():
    begun = []

    async def run():
        async with asyncio.TaskGroup() as tasks:
            executor, jobs = KeyedExecutor(tasks, slots=3), Jobs()
            executor.submit("a", jobs.named("a1"))
            executor.submit("a", jobs.named("a2"))
            await settled()
            begun.append(jobs.begun)
            asyncio.current_task().cancel()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert begun == [["a1"]]


@pytest.mark.regression("worker 171")
def test_a_job_that_swallows_its_cancellation_is_no_error_of_the_group_and_nothing_of_its_key_begins_after_it():
    """As a handler of an application that cleans up and returns. The group takes no more tasks."""

    async def scenario():
        jobs = Jobs()

        async def swallows(ticket):
            try:
                await jobs.named("a1")(ticket)
            except asyncio.CancelledError:
                ticket.release_order()

        async def run():
            async with asyncio.TaskGroup() as tasks:
                executor = KeyedExecutor(tasks, slots=4, per_key=2)
                executor.submit("a", swallows)
                executor.submit("a", jobs.named("a2"))

        running = asyncio.create_task(run())
        await settled()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled(), running.exception()
        assert jobs.begun == ["a1"]

    asyncio.run(scenario())


def test_ten_thousand_keys_leave_nothing_behind():
    async def scenario(executor, _):
        async def job(ticket):
            ticket.release_order()

        for number in range(10_000):
            await executor.wait_for_slot()
            executor.submit(number, job)
        await executor.join()
        assert executor._keys == {}

    in_lanes(scenario, slots=100)


@pytest.mark.parametrize("limits", [{"slots": 0}, {"slots": 1, "per_key": 0}], ids=str)
def test_limits_that_let_nothing_begin_are_refused(limits):
    with pytest.raises(ValueError, match="at least 1"):
        KeyedExecutor(asyncio.TaskGroup(), **limits)
