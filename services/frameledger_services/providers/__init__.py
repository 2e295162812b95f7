"""Providers: clients of model APIs. A request goes in, frames come out. They do not depend on Kafka or PostgreSQL.

Start with `service`: `LLMService` is the base class of every provider. `adapter` is the interface of classes that write
requests. `plugins.create` creates a provider by its name.
"""

from frameledger_services import extras

with extras.needed("openai", "anthropic", "services"):
    from frameledger_services.providers.adapter import LLMAdapter, Prompt
    from frameledger_services.providers.errors import (
        ProviderError,
        UnmappableError,
        WebsocketReconnectedError,
    )
    from frameledger_services.providers.request import Request
    from frameledger_services.providers.service import LLMService
    from frameledger_services.providers.settings import LLMSettings

__all__ = [
    "LLMAdapter",
    "LLMService",
    "LLMSettings",
    "Prompt",
    "ProviderError",
    "Request",
    "UnmappableError",
    "WebsocketReconnectedError",
]
