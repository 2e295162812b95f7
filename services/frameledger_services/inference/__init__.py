"""The inference service: consumes requested runs, calls a model, and publishes its answer.

Start with `service`; `answering` answers one run. Applications write providers with `providers`, whose classes are also
here, under Pipecat's names. `infra/examples/model.py` is an application's own program with hooks.
"""

from frameledger_services import extras

with extras.needed("services"):
    from frameledger_services.inference.service import InferenceService
    from frameledger_services.providers.errors import WebsocketReconnectedError
    from frameledger_services.providers.service import LLMService
    from frameledger_services.providers.settings import LLMSettings
    from frameledger_services.providers.websocket import WebsocketLLMService

__all__ = [
    "InferenceService",
    "LLMService",
    "LLMSettings",
    "WebsocketLLMService",
    "WebsocketReconnectedError",
]
