"""The providers of the contract suite, each with a fake server that plays the same scripts.

A factory takes a `Script`, whose first reply its server sends to every request, and yields the service and the server.
Steps mean the same for all providers: text and thoughts arrive in pieces, calls in pieces that are interleaved where
the protocol allows it, and failures are those of the protocol (a status, a stream that is cut, silence).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.bounds import IN_PROCESS
from tests.contracts.websocket_model import PlainWebsocketLLMService, serving
from tests.contracts.wire.scripts import said

from frameledger_services.bench.inference import model_server
from frameledger_services.providers import LLMService
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService


@dataclass(frozen=True)
class Running:
    service: LLMService[Any]
    open_streams: Callable[[], int]
    """Returns the number of answers that the server is sending."""

    keeps_thoughts: bool = True
    """Whether thoughts come with signatures of the model and are stored under the provider's name."""

    retry_after: bool = True
    """Whether the protocol can say when to retry."""


Factory = Callable[[Script], AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Running]:
    service = ScriptedLLMService(script=script)
    yield Running(service, lambda: service.open_streams)


@asynccontextmanager
async def websocket(script: Script) -> AsyncIterator[Running]:
    async with serving(script) as (server, address):
        yield Running(PlainWebsocketLLMService(address=address), lambda: server.open_streams)


@asynccontextmanager
async def openai(script: Script) -> AsyncIterator[Running]:
    async with model_server.serving(said(script.replies[0])) as server:
        service = OpenAILLMService(api_key="sk-test", base_url=server.openai_base_url)
        yield Running(service, lambda: server.open_streams, keeps_thoughts=False)


@asynccontextmanager
async def anthropic(script: Script) -> AsyncIterator[Running]:
    async with model_server.serving(said(script.replies[0])) as server:
        service = AnthropicLLMService(api_key="sk-test", base_url=server.anthropic_base_url)
        yield Running(service, lambda: server.open_streams)


PROVIDERS: dict[str, Factory] = {
    "scripted": scripted,
    "websocket": websocket,
    "openai": openai,
    "anthropic": anthropic,
}


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds, by iterations of the event loop. Fails after the deadline."""
    async with asyncio.timeout(IN_PROCESS):
        turn = asyncio.Event()
        while not holds():
            asyncio.get_running_loop().call_later(0.001, turn.set)
            await turn.wait()
            turn.clear()
