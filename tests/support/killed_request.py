"""A request whose gateway dies: it is handled as by the gateway, in its own process, which kills itself with SIGKILL
after publishing the frame with this number, counted from 1."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import count
from typing import Any

from starlette.requests import Request
from tests.support.processes import Process, preload

from frameledger_services.gateway import publishing
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.ag_ui import routes, run_input
from frameledger_services.gateway.ag_ui.asking import Question
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.gateway.openai import request as requests
from frameledger_services.gateway.openai.asking import Asking
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.service import connected
from frameledger_services.settings import Settings

preload(__name__)


def killed(settings: Settings, api: str, context_id: str, body: bytes, number: int) -> bool:
    """Returns whether the process died; a request that publishes fewer frames completes. `api` is `ag_ui` or
    `openai`."""
    with Process(_asked, settings, api, context_id, body, number) as process:
        code = process.ended()
    assert code in (0, -signal.SIGKILL)
    return code != 0


def _asked(settings: Settings, api: str, context_id: str, body: bytes, number: int, _: Any) -> None:
    asyncio.run(_ask(settings, api, context_id, body, number))


async def _ask(settings: Settings, api: str, context_id: str, body: bytes, number: int) -> None:
    publish = publishing.publish
    counted = count(1)

    async def publish_and_die(*given: Any) -> Any:
        stored = await publish(*given)
        if next(counted) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored

    vars(publishing)["publish"] = publish_and_die
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    caller.set_caller(scope, caller.LOOPBACK)
    async with connected(settings, asyncio.Event()) as dependencies:
        if api == "ag_ui":
            wanted = run_input.read(body)
            frames = RequestFrames(wanted, routes.client_functions(wanted))
            await Question(dependencies, Request(scope), wanted, frames).ask()
        else:
            await Asking(dependencies, Request(scope), requests.read(body), Named(context_id, "client")).ask()
