"""The client: publish frames, read contexts back, follow a conversation.

`Client` is for asyncio, `SyncClient` for scripts and notebooks. Both find the servers through the environment, or the
stack that `frameledger up` runs in this folder or a parent folder. `HttpClient` and `SyncHttpClient` do the same
through a gateway, for machines that reach neither Kafka nor PostgreSQL; they need the extra `http`.

    async with Client() as client:
        (published,) = await client.publish("ctx-1", LLMRunFrame(), wait=True)
        stored = await client.context("ctx-1", published.version)

Every error that they raise derives from `FrameledgerError`, and from the class that says what to do: `TransientError`,
`RefusedError`, `NotFoundError` or `ConfigurationError`. Invalid calls raise TypeError, ValueError or RuntimeError.
`services/errors.md` lists all errors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frameledger.errors import (
    ConfigurationError,
    FrameledgerError,
    NotFoundError,
    RefusedError,
    TransientError,
)
from frameledger_services.client.client import Client
from frameledger_services.client.conversations import Conversations
from frameledger_services.client.erasing import NotErasedError, Places, Receipt
from frameledger_services.client.errors import (
    ContextChangedError,
    ConversationParkedError,
    FrameRejectedError,
    FramesRefusedError,
    FramesUnacknowledgedError,
    GatewayAnswerError,
    GatewayUnavailableError,
    NotPermittedError,
    NotPublishedError,
    NotVisibleError,
)
from frameledger_services.client.forking import Fork, ForkRefusedError
from frameledger_services.client.frame_inputs import EncodedFrame
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.publication import RepeatedWarning
from frameledger_services.client.reading import (
    ContextErasedError,
    NoSuchContextError,
    NoSuchVersionError,
    StoredContext,
    StoredFrame,
)
from frameledger_services.client.spelling import MisspelledWarning
from frameledger_services.client.sync import SyncClient
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.frame_defaults import with_defaults
from frameledger_services.extras import MissingExtraError
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store.connections import DatabaseError, DatabaseUnavailableError
from frameledger_services.store.schema import SchemaError

if TYPE_CHECKING:
    from frameledger_services.client.http.client import HttpClient
    from frameledger_services.client.http.sync import SyncHttpClient
    from frameledger_services.providers.errors import ProviderError
    from frameledger_services.providers.plugins import NoSuchProviderError

__all__ = [
    "BrokerError",
    "Client",
    "ConfigurationError",
    "ContextChangedError",
    "ContextErasedError",
    "ConversationParkedError",
    "Conversations",
    "DatabaseError",
    "DatabaseUnavailableError",
    "EncodedFrame",
    "Fork",
    "ForkRefusedError",
    "FrameRejectedError",
    "FrameledgerError",
    "FramesRefusedError",
    "FramesUnacknowledgedError",
    "GatewayAnswerError",
    "GatewayUnavailableError",
    "HttpClient",
    "MissingExtraError",
    "MisspelledWarning",
    "NoSuchContextError",
    "NoSuchProviderError",
    "NoSuchVersionError",
    "NotErasedError",
    "NotFoundError",
    "NotPermittedError",
    "NotPublishedError",
    "NotVisibleError",
    "Places",
    "ProviderError",
    "PublishedFrame",
    "Receipt",
    "RefusedError",
    "RepeatedWarning",
    "SchemaError",
    "Settings",
    "SettingsError",
    "StoredContext",
    "StoredFrame",
    "SyncClient",
    "SyncHttpClient",
    "TransientError",
    "with_defaults",
]

if not TYPE_CHECKING:  # a module with `__getattr__` has every name there is, for a type checker
    # Imported when used: most clients use neither a model nor a gateway. Each takes a fifth of a second and an extra.
    _LAZY = {
        "ProviderError": "providers.errors",
        "NoSuchProviderError": "providers.plugins",
        "HttpClient": "client.http.client",
        "SyncHttpClient": "client.http.sync",
    }

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(f"frameledger_services.{_LAZY[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
