"""The inference service: consumes the runs that are asked for, calls a model, and publishes what it says.

Start with `service`; the life of one run is `answering`. What applications write providers with is `providers`, and
Pipecat's names of it are here too. A program of one's own, with hooks, is in `infra/examples/model.py`.
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
