"""A function service inside your own program: run `python worker.py` in this folder."""

import asyncio
import signal

from my_tools import app_resources, registry

from frameledger_services.functions import FunctionService
from frameledger_services.settings import Settings


async def main():
    service = FunctionService(Settings.from_env(), registry, service="worker", app_resources=app_resources)

    @service.event_handler("on_function_calls_cancelled")
    async def on_function_calls_cancelled(service, function_calls):
        print("cancelled:", *(call.tool_call_id for call in function_calls), flush=True)

    # The service installs no signal handlers: the program decides how it stops.
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await service.run(stopping)


if __name__ == "__main__":
    asyncio.run(main())
