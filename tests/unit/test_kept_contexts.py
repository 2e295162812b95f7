"""The gateway's cache of contexts: its size, its expiry, and its revalidation."""

import asyncio

import httpx
import prometheus_client
import pytest
from tests.support.gateway import AWAY, served
from tests.support.turns import turns

from frameledger_services.gateway import kept_contexts
from frameledger_services.gateway.app import create_app
from frameledger_services.gateway.kept_contexts import KeptContexts
from frameledger_services.gateway.metrics import RequestMetrics
from frameledger_services.gateway.service import connected
from frameledger_services.settings import Settings
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.store.context_json import ContextJson
from frameledger_services.telemetry.metrics_registry import ProcessMetrics


def with_kept(most_bytes, work):
    async def run():
        kept = KeptContexts(most_bytes)
        result = work(kept)
        return await result if asyncio.iscoroutine(result) else result

    return asyncio.run(run())


def test_a_context_is_found_by_the_newest_tag_alone():
    def work(kept):
        kept.keep("a", '"1"', b"one")
        assert kept.get("a", '"1"') == b"one"
        assert kept.get("b", '"1"') is None
        assert kept.get("a", '"2"') is None
        # What is not the newest any more is not kept.
        assert kept.get("a", '"1"') is None
        assert kept.bytes == 0

    with_kept(100, work)


def test_what_was_kept_first_goes_first_and_what_is_too_large_is_not_kept():
    def work(kept):
        for name in "abc":
            kept.keep(name, '"1"', 40 * name.encode())
        assert [name for name in "abc" if name in kept] == ["b", "c"]
        kept.keep("b", '"2"', 101 * b"b")
        assert [name for name in "abc" if name in kept] == ["c"]
        kept.drop("c")
        kept.drop("c")
        assert kept.bytes == 0
        kept.keep("a", '"1"', b"one")
        kept.clear()
        assert ("a" in kept, kept.bytes) == (False, 0)

    with_kept(100, work)


def test_nothing_is_kept_if_there_is_no_room():
    def work(kept):
        kept.keep("a", '"1"', b"x")
        assert "a" not in kept

    with_kept(0, work)


def test_nothing_stays_longer_than_its_time_though_nobody_asks(monkeypatch):
    monkeypatch.setattr(kept_contexts, "SECONDS", 0.0)

    async def work(kept):
        for name in "abc":
            kept.keep(name, '"1"', b"words")
            await turns(1)
        while kept.bytes:
            await turns(1)
        assert not any(name in kept for name in "abc")
        kept.keep("d", '"1"', b"words")
        while "d" in kept:
            await turns(1)

    with_kept(100, work)


@pytest.mark.parametrize(
    ("error", "problem", "is_kept"),
    [
        (DatabaseUnavailableError("It is away."), (503, "/problems/database-away"), False),
        (ValueError("It is a bug."), (500, "/problems/internal-error"), True),
    ],
)
def test_a_read_that_fails_on_the_short_way_is_answered_by_the_long_one_without_trying_again(
    error, problem, is_kept, caplog
):
    asked = []

    class Failing:
        async def read(self, moment):
            asked.append(moment)
            raise error

    async def run():
        async with connected(Settings(**AWAY), asyncio.Event()) as dependencies:
            object.__setattr__(dependencies, "contexts", Failing())
            dependencies.kept.keep("b", '"1"', b"words")
            transport = httpx.ASGITransport(served(dependencies), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                answer = await http.get("/v1/contexts/a")
            # A database that was away may be another one when it is back.
            assert ("b" in dependencies.kept) == is_kept
            return answer

    answer = asyncio.run(run())
    assert (answer.status_code, answer.json()["type"]) == problem
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("gateway.request_failed" in caplog.text) == is_kept
    assert len(asked) == 1


def test_a_read_on_the_short_way_is_counted_under_its_route():
    class Empty:
        async def read(self, moment):
            return ContextJson(
                0, 0, 0, 0, None, 0, None, None, b"", b"", b"", None, None, None, None, None, None
            )

    async def run():
        async with connected(Settings(**AWAY), asyncio.Event()) as dependencies:
            object.__setattr__(dependencies, "contexts", Empty())
            counted = ProcessMetrics()
            app = RequestMetrics(served(dependencies), counted, create_app(dependencies).routes)
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as http:
                assert (await http.get("/v1/contexts/a")).json()["messages"] == []
            return prometheus_client.generate_latest(counted.registry).decode()

    assert 'route="/v1/contexts/{context_id}"' in asyncio.run(run())
