"""Jobs of one key in order, many keys at once, a limit on both."""

import asyncio

import pytest

from frameledger_services.lanes import Lanes


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
        self.begun, self.ended, self.lanes = [], [], {}
        self._may_end = {}

    def named(self, name):
        self._may_end[name] = asyncio.Event()

        async def job(lane):
            self.begun.append(name)
            self.lanes[name] = lane
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
            await scenario(Lanes(tasks, **limits), Jobs())

    asyncio.run(run())


def test_the_jobs_of_a_key_go_on_one_after_the_other_in_the_order_given():
    async def scenario(lanes, jobs):
        for name in ("a1", "a2", "a3"):
            lanes.start("a", jobs.named(name))
        await settled()
        assert jobs.begun == ["a1"]
        await jobs.end("a2", "a1")
        assert jobs.begun == ["a1", "a2", "a3"]
        await jobs.end("a3")
        assert jobs.ended == ["a1", "a2", "a3"]

    in_lanes(scenario, at_once=5)


def test_a_slow_job_holds_back_nobody_but_its_own_key():
    async def scenario(lanes, jobs):
        for key, name in (("a", "slow"), ("a", "behind"), ("b", "b1"), ("c", "c1")):
            lanes.start(key, jobs.named(name))
        await settled()
        assert jobs.begun == ["slow", "b1", "c1"]
        await jobs.end("b1", "c1", "slow", "behind")

    in_lanes(scenario, at_once=5)


def test_a_job_that_passes_its_lane_on_lets_the_next_of_its_key_begin_behind_it():
    async def scenario(lanes, jobs):
        for name in ("a1", "a2", "a3"):
            lanes.start("a", jobs.named(name))
        await settled()
        jobs.lanes["a1"].pass_on()
        jobs.lanes["a1"].pass_on()
        await settled()
        assert jobs.begun == ["a1", "a2"]
        # a2 has not passed on: that a1 ends changes nothing.
        await jobs.end("a1")
        assert jobs.begun == ["a1", "a2"]
        await jobs.end("a2", "a3")
        assert jobs.begun == ["a1", "a2", "a3"]

    in_lanes(scenario, at_once=5, per_key=3)


def test_of_one_key_no_more_go_on_at_once_than_are_allowed():
    async def scenario(lanes, jobs):
        for name in ("a1", "a2", "a3"):
            lanes.start("a", jobs.named(name))
        await settled()
        jobs.lanes["a1"].pass_on()
        await settled()
        jobs.lanes["a2"].pass_on()
        await settled()
        assert jobs.begun == ["a1", "a2"]
        await jobs.end("a1")
        assert jobs.begun == ["a1", "a2", "a3"]
        await jobs.end("a2", "a3")

    in_lanes(scenario, at_once=5, per_key=2)


def test_places_are_taken_by_what_goes_on_and_by_what_waits():
    async def scenario(lanes, jobs):
        assert lanes.free == 3
        for key, name in (("a", "a1"), ("a", "a2"), ("b", "b1")):
            lanes.start(key, jobs.named(name))
        assert lanes.free == 0
        with pytest.raises(ValueError, match="all 3 places"):
            lanes.start("c", jobs.named("c1"))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(lanes.wait_free())
            await settled()
            assert not waiting.done()
            await jobs.end("b1")
            assert waiting.done()
        assert lanes.free == 1
        await jobs.end("a1", "a2")
        assert lanes.free == 3

    in_lanes(scenario, at_once=3)


def test_it_is_idle_when_nothing_goes_on_and_nothing_waits():
    async def scenario(lanes, jobs):
        await lanes.idle()
        lanes.start("a", jobs.named("a1"))
        lanes.start("a", jobs.named("a2"))
        async with asyncio.TaskGroup() as tasks:
            idle = tasks.create_task(lanes.idle())
            await settled()
            await jobs.end("a1")
            assert not idle.done()
            await jobs.end("a2")
            assert idle.done()

    in_lanes(scenario, at_once=3)


def test_what_waits_can_be_dropped_and_what_goes_on_cannot():
    async def scenario(lanes, jobs):
        first, second, third = (lanes.start("a", jobs.named(name)) for name in ("a1", "a2", "a3"))
        await settled()
        assert not lanes.drop(first)
        assert lanes.drop(second)
        assert not lanes.drop(second)
        assert lanes.free == 1
        await jobs.end("a1")
        assert jobs.begun == ["a1", "a3"]
        await jobs.end("a3")
        assert not lanes.drop(third)

    in_lanes(scenario, at_once=3)


def test_what_a_job_raises_reaches_the_task_group_and_nothing_of_its_key_begins_after_it():
    begun = []

    async def scenario(lanes, jobs):
        async def fails(lane):
            raise LookupError("a bug")

        async def behind(lane):
            begun.append("behind")

        lanes.start("a", fails)
        lanes.start("a", behind)
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        in_lanes(scenario, at_once=3)
    assert raised.group_contains(LookupError, match="a bug")
    assert begun == []


def test_ten_thousand_keys_leave_nothing_behind():
    async def scenario(lanes, _):
        async def job(lane):
            lane.pass_on()

        for number in range(10_000):
            await lanes.wait_free()
            lanes.start(number, job)
        await lanes.idle()
        assert lanes._keys == {}

    in_lanes(scenario, at_once=100)


@pytest.mark.parametrize("limits", [{"at_once": 0}, {"at_once": 1, "per_key": 0}], ids=str)
def test_limits_that_let_nothing_begin_are_refused(limits):
    with pytest.raises(ValueError, match="at least 1"):
        Lanes(asyncio.TaskGroup(), **limits)
