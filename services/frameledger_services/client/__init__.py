"""The client: publish frames, read contexts back, follow a conversation.

`Client` is for asyncio, `SyncClient` for scripts and notebooks.

async with Client(settings) as client:
    (said,) = await client.publish("ctx-1", LLMRunFrame(), wait=True)
    stored = await client.context("ctx-1", said.version)
"""

import warnings
from typing import TYPE_CHECKING, Any

from frameledger_services.client.client import Client, RepeatedWarning
from frameledger_services.client.connections import DatabaseError
from frameledger_services.client.errors import NotPublishedError, NotVisibleError
from frameledger_services.client.misspelled import MisspelledWarning
from frameledger_services.client.published import Published
from frameledger_services.client.reading import (
    NoSuchContextError,
    NoSuchVersionError,
    StoredContext,
    StoredFrame,
)
from frameledger_services.client.sync import SyncClient
from frameledger_services.event_log.frame_defaults import with_defaults

__all__ = [
    "Client",
    "DatabaseError",
    "MisspelledWarning",
    "NoSuchContextError",
    "NoSuchVersionError",
    "NotPublishedError",
    "NotVisibleError",
    "Published",
    "RepeatedWarning",
    "StoredContext",
    "StoredFrame",
    "SyncClient",
    "with_defaults",
]

if not TYPE_CHECKING:  # a module with `__getattr__` has every name there is, for a type checker

    def __getattr__(name: str) -> Any:
        if name != "completed":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn(
            "completed is called with_defaults; the old name goes with 1.0", DeprecationWarning, stacklevel=2
        )
        return with_defaults
