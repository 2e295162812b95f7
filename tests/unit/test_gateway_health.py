"""`/readyz` of the gateway: however often it is asked, database and log are asked once in a while."""

import asyncio

import pytest
from tests.support.gateway import AWAY, with_app
from tests.support.polling import look_again

from frameledger_services.gateway import health
from frameledger_services.settings import Settings
from frameledger_services.telemetry.health import OK


@pytest.fixture
def asked(monkeypatch):
    """Which servers were asked, in order. They answer after a turn of the event loop."""
    asked: list[str] = []

    def check(name):
        async def answer(_):
            asked.append(name)
            await look_again(0.0)
            return OK

        return answer

    monkeypatch.setattr(health, "_database", check("database"))
    monkeypatch.setattr(health, "_log", check("log"))
    return asked


@pytest.mark.regression("gateway 50")
def test_many_that_ask_make_one_check_for_all(asked):
    async def ask(http):
        answers = await asyncio.gather(*(http.get("/readyz") for _ in range(20)))
        assert {one.status_code for one in answers} == {200}
        assert (await http.get("/readyz")).json()["checks"] == {"database": OK, "log": OK, "draining": "no"}

    with_app(Settings(**AWAY), ask)
    assert sorted(asked) == ["database", "log"]


def test_what_was_found_is_not_kept_for_ever(asked, monkeypatch):
    monkeypatch.setattr(health, "KEPT_SECONDS", 0.0)

    async def ask(http):
        for _ in range(2):
            assert (await http.get("/readyz")).status_code == 200

    with_app(Settings(**AWAY), ask)
    assert sorted(asked) == ["database", "database", "log", "log"]
