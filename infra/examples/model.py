"""An inference service inside your own program, with hooks: run `python model.py` in this folder.

It does the same as `frameledger run inference`, with the same settings: FRAMELEDGER_INFERENCE_PROVIDER selects the
provider; the default here is the scripted model.
"""

import asyncio
import signal

from frameledger_services.inference import InferenceService
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings


async def main():
    settings = Settings.from_env()
    model = plugins.create(settings.inference_provider or "scripted", settings)
    model.append_system_instruction("Answer in one sentence.")

    @model.event_handler("on_function_calls_started")
    async def on_function_calls_started(model, function_calls):
        print("calls:", *(call.function_name for call in function_calls), flush=True)

    @model.event_handler("on_completion_timeout")
    async def on_completion_timeout(model):
        print(f"{model.provider} timed out", flush=True)

    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await InferenceService(settings, model).run(stopping)


if __name__ == "__main__":
    asyncio.run(main())
