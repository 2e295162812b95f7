"""The checks behind `/livez` and `/readyz`."""

import asyncio

from tests.bounds import IN_PROCESS

from frameledger_services.telemetry import health
from frameledger_services.telemetry.health import AWAY, OK, Health


def ask(checks, stopping=None):
    """Returns the readiness that another thread gets while the event loop runs."""

    async def ticking():
        asked = Health(checks, stopping)
        async with asked.ticking():
            return await asyncio.to_thread(asked.readiness), asked.is_live

    return asyncio.run(ticking())


async def well():
    return OK


async def away():
    return AWAY


async def hangs():
    await asyncio.Event().wait()


def test_it_is_ready_if_every_check_says_so():
    found, is_live = ask({"database": well, "log": well})
    assert found.is_ready
    assert is_live
    assert found.checks == {"loop": OK, "database": OK, "log": OK}


def test_one_check_that_fails_is_named():
    found, _ = ask({"database": well, "log": away})
    assert not found.is_ready
    assert found.checks["log"] == AWAY


def test_a_check_that_hangs_is_away(monkeypatch):
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.01)
    found, _ = ask({"log": hangs})
    assert found.checks["log"] == AWAY


def test_a_process_that_drains_is_given_no_work():
    stopping = asyncio.Event()
    assert ask({}, stopping)[0].is_ready
    stopping.set()
    assert not ask({}, stopping)[0].is_ready


def test_it_is_not_asked_again_for_a_moment(monkeypatch):
    monkeypatch.setattr(health, "KEPT_SECONDS", IN_PROCESS)
    monkeypatch.setattr(health, "LIVE_SECONDS", IN_PROCESS)
    asked = []

    async def counted():
        asked.append(1)
        return OK

    async def twice():
        one = Health({"log": counted})
        async with one.ticking():
            await asyncio.to_thread(one.readiness)
            await asyncio.to_thread(one.readiness)

    asyncio.run(twice())
    assert asked == [1]


def test_a_loop_that_stands_still_is_not_live_and_nobody_waits_for_it(monkeypatch):
    monkeypatch.setattr(health, "LIVE_SECONDS", 0.0)
    found, is_live = ask({"log": hangs})
    assert not is_live
    assert found.checks == {"loop": "It does not run."}
