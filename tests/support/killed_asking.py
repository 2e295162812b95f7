"""A request whose gateway dies: it is asked as the gateway asks it, in a process of its own, which kills itself with
SIGKILL behind the frame of that number, counted from 1.

Its arguments are the settings (pickled, in base64), `ag_ui` or `openai`, the conversation, the body, and the number.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import signal
import subprocess
import sys
from itertools import count
from typing import Any

from starlette.requests import Request
from tests.bounds import PROGRAM

from frameledger_services.gateway.access import caller
from frameledger_services.gateway.ag_ui import routes, run_input
from frameledger_services.gateway.ag_ui.asking import Question
from frameledger_services.gateway.openai import request as requests
from frameledger_services.gateway.openai.asking import Asking
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.service import connected
from frameledger_services.settings import Settings


def killed(settings: Settings, api: str, context_id: str, body: bytes, number: int) -> bool:
    """Returns whether it died; a request that says fewer frames comes to its end."""
    pickled = base64.b64encode(pickle.dumps(settings)).decode()
    words = [pickled, api, context_id, body.decode(), str(number)]
    done = subprocess.run([sys.executable, "-m", "tests.support.killed_asking", *words], timeout=PROGRAM)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


async def _ask(settings: Settings, api: str, context_id: str, body: bytes, number: int) -> None:
    counted = count(1)

    def die_behind(put: Any) -> Any:
        async def publish(*given: Any) -> Any:
            stored = await put(*given)
            if next(counted) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return stored

        return publish

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    caller.set_caller(scope, caller.LOOPBACK)
    async with connected(settings, asyncio.Event()) as parts:
        if api == "ag_ui":
            # Its class has slots, and this one of it has not.
            wanted = run_input.read(body)
            question = type("Dying", (Question,), {})(parts, Request(scope), wanted, routes.brought(wanted))
            vars(question)["_publish"] = die_behind(question._publish)
            await question.ask()
        else:
            asking = Asking(parts, Request(scope), requests.read(body), Named(context_id, "client"))
            vars(asking)["_put"] = die_behind(asking._put)
            await asking.ask()


if __name__ == "__main__":
    pickled, api, context_id, body, number = sys.argv[1:]
    settings = pickle.loads(base64.b64decode(pickled))
    asyncio.run(_ask(settings, api, context_id, body.encode(), int(number)))
