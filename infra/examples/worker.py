"""The same functions, run by a few lines of Python instead of the command: `python worker.py` in this folder."""

from my_tools import app_resources, registry

from frameledger_services import process
from frameledger_services.functions import FunctionService
from frameledger_services.settings import Settings

if __name__ == "__main__":
    service = FunctionService(Settings.from_env(), registry, service="worker", app_resources=app_resources)

    @service.event_handler("on_function_calls_cancelled")
    async def on_function_calls_cancelled(service, function_calls):
        print("cancelled:", *(call.tool_call_id for call in function_calls), flush=True)

    process.run_service(service.run)
