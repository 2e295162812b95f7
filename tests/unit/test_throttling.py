"""A broker that delays a client of ours by a quota is logged, once a minute, and changes no answer."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from frameledger_services.event_log import log_rate_limit, throttling

pytestmark = pytest.mark.regression("fault 318")


class Client:
    """Of `AIOKafkaClient`: the name, and `send`, which returns what was passed for a request."""

    def __init__(self, name):
        self._client_id = name

    async def send(self, node, request, *, group=None):
        return request


def delayed(milliseconds):
    return SimpleNamespace(throttle_time_ms=milliseconds)


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(throttling, "_logged_at", {})
    return [1_000.0]


def test_the_first_delay_in_a_minute_is_logged_for_each_name(clock, caplog):
    def send(name, milliseconds):
        # A new client each time, as one that only asks for topics.
        client = Client(name)
        throttling.log_delays(client, lambda: clock[0])
        answer = delayed(milliseconds)
        assert asyncio.run(client.send(1, answer, group=2)) is answer

    for name, milliseconds in [("a", 0), ("a", 50), ("a", 4_849), ("a", 8_960), ("b", 200)]:
        send(name, milliseconds)
    clock[0] += log_rate_limit.MINUTE
    send("a", 300)
    assert [one.getMessage() for one in caplog.records] == [
        "kafka.throttled client='a' broker=1 seconds=4.849",
        "kafka.throttled client='b' broker=1 seconds=0.2",
        "kafka.throttled client='a' broker=1 seconds=0.3",
    ]


def test_an_answer_that_names_no_delay_passes(clock, caplog):
    client = Client("a")
    throttling.log_delays(client)
    for answer in (None, SimpleNamespace()):
        assert asyncio.run(client.send(1, answer)) is answer
    assert not caplog.records


def test_a_delay_is_also_logged_where_only_the_client_is_installed(clock, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "frameledger_services.logs", None)
    monkeypatch.delattr("frameledger_services.logs", raising=False)
    client = Client("a")
    throttling.log_delays(client, lambda: clock[0])
    asyncio.run(client.send(1, delayed(4_849)))
    assert [(one.name, one.getMessage()) for one in caplog.records] == [
        ("frameledger.kafka", "kafka.throttled client='a' broker=1 seconds=4.849")
    ]
