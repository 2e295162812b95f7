"""The client: publish frames, read contexts back, follow a conversation.

`Client` is for asyncio, `SyncClient` for scripts and notebooks.

async with Client(settings) as client:
    (said,) = await client.publish("ctx-1", LLMRunFrame(), wait=True)
    stored = await client.context("ctx-1", said.version)
"""

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
from frameledger_services.event_log.completing import completed

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
    "completed",
]
