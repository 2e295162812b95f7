"""A request that waits for the answer before it, at a gateway that stops."""

import asyncio
from types import SimpleNamespace

import pytest

from frameledger_services.gateway import conversation_gate
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings


class ClosedHub:
    """A hub that is closed: `next` of its followers returns None at once."""

    def follow(self, *_):
        async def nothing(_):
            return None

        return SimpleNamespace(next=nothing, close=lambda: None)


def test_nothing_is_waited_for_at_a_gateway_that_stops():
    async def wait():
        dependencies = Dependencies(Settings(), None, None, ClosedHub(), asyncio.Event())
        dependencies.stopping.set()
        await conversation_gate.wait_for_change(dependencies, "shop", 3, conversation_gate.deadline())

    with pytest.raises(ProblemError) as problem:
        asyncio.run(wait())
    assert problem.value.word == "draining"
