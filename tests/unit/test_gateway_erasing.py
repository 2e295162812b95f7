"""What is answered to an erasure that Kafka did not take."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from frameledger.frames import LLMContextEraseFrame
from frameledger_services.client import BrokerError, FramesUnacknowledgedError
from frameledger_services.gateway import erase
from frameledger_services.gateway.access.caller import LOOPBACK
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings
from frameledger_services.store.context_json import ContextHead


@pytest.mark.regression("gateway 104")
@pytest.mark.parametrize(
    ("error", "unpublished"),
    [
        (BrokerError("away"), []),
        (FramesUnacknowledgedError("away", [LLMContextEraseFrame(id="e-1", why="8113")]), ["e-1"]),
    ],
    ids=["not sent", "not acknowledged"],
)
def test_of_an_erasure_it_is_said_that_nothing_is_known_to_be_published(error, unpublished):
    async def fails(*_, **__):
        raise error

    async def read(_):
        return ContextHead(3, 3, 0, 0, None)

    scope = {
        "type": "http",
        "query_string": b"why=8113",
        "headers": [],
        "path_params": {"context_id": "shop"},
        "frameledger.caller": LOOPBACK,
    }
    dependencies = SimpleNamespace(
        settings=Settings(),
        heads=SimpleNamespace(read=read),
        client=SimpleNamespace(erase=fails),
        kept=SimpleNamespace(drop=lambda _: None),
    )
    with pytest.raises(ProblemError) as problem:
        asyncio.run(erase._erase(dependencies, Request(scope)))
    assert problem.value.word == "log-away"
    assert problem.value.members == {"published": [], "unpublished": unpublished}
