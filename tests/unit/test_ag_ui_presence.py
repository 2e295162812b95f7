"""The run of an AG-UI client that has left, depending on what the client requests next."""

import asyncio
from collections import Counter

import pytest
from starlette.requests import Request
from tests.support.marks_in_memory import Marks, SlowMarks
from tests.support.turns import turns

from frameledger_services.client import FramesUnacknowledgedError
from frameledger_services.gateway.access.caller import LOOPBACK, Caller, set_caller
from frameledger_services.gateway.ag_ui.presence import Presence
from frameledger_services.gateway.ag_ui.routes import source_of_stop
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.settings import Settings
from frameledger_services.store import client_requests, conversation_state
from frameledger_services.store.client_requests import AskedRun


class Database:
    """Has a conversation whose run `r1` goes on."""

    async def read(self, function, thread_id):
        return {
            conversation_state.goes_on: (True, 5),
            client_requests.last_asked_run: AskedRun(1, "r1"),
        }[function]


class Client:
    """Notes what is published, unless its broker is away."""

    def __init__(self):
        self.published = []
        self.is_away = False

    async def publish(self, context_id, frame, **_):
        if self.is_away:
            raise FramesUnacknowledgedError("The broker is away.", [frame])
        self.published.append(frame.type)


@pytest.mark.regression("gateway 2")
@pytest.mark.parametrize("follows", [True, False])
def test_a_run_is_not_interrupted_while_its_client_comes_back_however_long_that_takes(follows):
    async def run():
        client = Client()
        settings = Settings(gateway_ag_ui_reconnect_secs=0)
        presence = Presence(Dependencies(settings, client, Database(), None, asyncio.Event()), Marks())
        presence.followed("shop", "r1")
        presence.ended("shop", "r1", "gateway", has_left=True)
        with presence.held("shop", "r1"):
            await turns()
            assert client.published == []
            if follows:
                presence.followed("shop", "r1")
        await turns()
        return client.published

    assert asyncio.run(run()) == ([] if follows else ["InterruptionFrame"])


class SlowDatabase(Database):
    async def read(self, function, thread_id):
        await turns(1)
        return await super().read(function, thread_id)


@pytest.mark.regression("gateway 126")
@pytest.mark.parametrize("follows", [True, False])
def test_a_client_that_comes_back_while_it_is_read_whether_its_run_goes_on_is_not_interrupted(follows):
    """The time for coming back is just over."""

    async def run(after):
        client = Client()
        settings = Settings(gateway_ag_ui_reconnect_secs=0)
        presence = Presence(
            Dependencies(settings, client, SlowDatabase(), None, asyncio.Event()), SlowMarks()
        )
        presence.followed("shop", "r1")
        presence.ended("shop", "r1", "gateway", has_left=True)
        await turns(after)
        before = len(client.published)
        with presence.held("shop", "r1"):
            await turns()
            assert len(client.published) == before, after
            if follows:
                presence.followed("shop", "r1")
        await turns(40)
        return before, len(client.published)

    for after in range(20):
        before, published = asyncio.run(run(after))
        assert published == (before if follows else 1), after


@pytest.mark.regression("gateway 126")
def test_a_client_that_comes_back_while_another_one_asks_is_not_interrupted():
    async def run(after):
        client = Client()
        presence = Presence(
            Dependencies(Settings(), client, SlowDatabase(), None, asyncio.Event()), SlowMarks()
        )
        presence.followed("shop", "r1")
        presence.ended("shop", "r1", "gateway", has_left=True)
        asking = asyncio.create_task(presence.requests_run("shop", "r2"))
        await turns(after)
        before = len(client.published)
        with presence.held("shop", "r1"):
            await asking
            return before, len(client.published)

    found = [asyncio.run(run(after)) for after in range(12)]
    assert (found[0], found[-1]) == ((0, 0), (1, 1))
    assert all(before == published for before, published in found), found


def asked_next(run_id):
    """What was published when the client that had left `r1` asked for this run."""

    async def ask():
        client = Client()
        presence = Presence(Dependencies(Settings(), client, Database(), None, asyncio.Event()), Marks())
        presence.followed("shop", "r1")
        presence.ended("shop", "r1", "gateway", has_left=True)
        await presence.requests_run("shop", run_id)
        presence.followed("shop", run_id)
        presence.ended("shop", run_id, "gateway", has_left=False)
        return client.published

    return asyncio.run(ask())


def test_another_request_interrupts_the_run_that_its_client_has_left():
    assert asked_next("r2") == ["InterruptionFrame"]


@pytest.mark.regression("gateway 2")
def test_the_same_request_again_interrupts_nothing():
    assert asked_next("r1") == []


class Gateways:
    """Two, of which a client has left the run `r1` at the first one."""

    def __init__(self, reconnect_secs=0, *, are_slow=False):
        self.client, self.marks = Client(), SlowMarks() if are_slow else Marks()
        dependencies = Dependencies(
            Settings(gateway_ag_ui_reconnect_secs=reconnect_secs),
            self.client,
            SlowDatabase() if are_slow else Database(),
            None,
            asyncio.Event(),
        )
        self.first, self.second = (Presence(dependencies, self.marks) for _ in range(2))
        self.first.followed("shop", "r1")
        self.first.ended("shop", "r1", "gateway", has_left=True)

    @property
    def interruptions(self):
        return self.client.published.count("InterruptionFrame")


@pytest.mark.regression("gateway 13")
@pytest.mark.parametrize("leaves", [True, False])
def test_a_run_whose_client_came_back_to_another_gateway_is_interrupted_when_it_leaves_that_too(leaves):
    async def run():
        gateways = Gateways()
        gateways.second.followed("shop", "r1")
        await turns()
        assert gateways.interruptions == 0
        gateways.second.ended("shop", "r1", "gateway", has_left=leaves)
        await turns()
        assert +gateways.marks.marks == Counter()
        return gateways.interruptions

    assert asyncio.run(run()) == leaves


@pytest.mark.regression("gateway 13")
def test_a_run_is_not_interrupted_while_its_client_comes_back_to_another_gateway():
    async def run():
        gateways = Gateways()
        with gateways.second.held("shop", "r1"):
            await turns()
            return gateways.interruptions

    assert asyncio.run(run()) == 0


@pytest.mark.regression("gateway 13")
@pytest.mark.parametrize(
    ("run_id", "follows", "stops"), [("r2", False, 1), ("r2", True, 0), ("r1", False, 0)]
)
def test_a_client_that_asks_at_another_gateway_interrupts_the_run_that_it_has_left(run_id, follows, stops):
    async def run():
        gateways = Gateways(reconnect_secs=600)
        if follows:
            gateways.first.followed("shop", "r1")
        await gateways.second.requests_run("shop", run_id)
        assert gateways.interruptions == 0
        await gateways.second.waits_for_run("shop", run_id, "gateway")
        return gateways.interruptions

    assert asyncio.run(run()) == stops


@pytest.mark.regression("gateway 132")
def test_another_request_does_not_interrupt_a_run_whose_client_came_back_to_another_gateway():
    async def run():
        gateways = Gateways(reconnect_secs=600)
        gateways.second.followed("shop", "r1")
        await gateways.first.requests_run("shop", "r2")
        return gateways.interruptions

    assert asyncio.run(run()) == 0


@pytest.mark.regression("gateway 133")
@pytest.mark.parametrize("asks", [False, True])
def test_a_client_that_comes_back_to_another_gateway_while_it_is_read_whether_its_run_goes_on_is_not_interrupted(
    asks,
):
    """The time for coming back is just over, or another client asks."""

    async def run(after):
        gateways = Gateways(600 if asks else 0, are_slow=True)
        asking = asyncio.create_task(
            gateways.second.waits_for_run("shop", "r2", "gateway") if asks else turns()
        )
        await turns(after)
        before = gateways.interruptions
        gateways.second.followed("shop", "r1")
        await asking
        await turns()
        return before, gateways.interruptions

    found = [asyncio.run(run(after)) for after in range(12)]
    assert (found[0], found[-1]) == ((0, 0), (1, 1))
    assert all(before == published for before, published in found), found


@pytest.mark.regression("fault 66")
def test_a_run_that_could_not_be_interrupted_is_interrupted_for_the_next_request():
    async def run():
        gateways = Gateways(reconnect_secs=600)
        gateways.client.is_away = True
        with pytest.raises(FramesUnacknowledgedError):
            await gateways.first.requests_run("shop", "r2")
        assert set(+gateways.marks.marks) == {("ag_ui", "left", "shop", "r1")}
        gateways.client.is_away = False
        await gateways.first.requests_run("shop", "r2")
        await gateways.first.requests_run("shop", "r2")
        assert +gateways.marks.marks == Counter()
        return gateways.interruptions

    assert asyncio.run(run()) == 1


@pytest.mark.regression("gateway 5")
@pytest.mark.parametrize(
    ("caller", "by_client", "may_stop"),
    [
        (LOOPBACK, True, True),
        # A phone call that somebody looks on at goes on when that page is closed.
        (LOOPBACK, False, False),
        (Caller("reader", frozenset(("read",))), True, False),
    ],
)
def test_who_leaves_a_run_stops_it_only_if_a_client_requested_it(caller, by_client, may_stop):
    scope = {"type": "http"}
    set_caller(scope, caller)
    source = source_of_stop(Request(scope), AskedRun(1, "r1", by_client=by_client))
    assert (source is not None) == may_stop
