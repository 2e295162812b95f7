"""The client: publish frames, read contexts back, follow a conversation.

`Client` is for asyncio, `SyncClient` for scripts and notebooks.

async with Client(settings) as client:
    await client.publish("ctx-1", LLMRunFrame(), wait=True)
    stored = await client.context("ctx-1")
"""

from frameledger_services.client.client import Client, NotPublishedError, NotVisibleError
from frameledger_services.client.connections import DatabaseError
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
    "NoSuchContextError",
    "NoSuchVersionError",
    "NotPublishedError",
    "NotVisibleError",
    "StoredContext",
    "StoredFrame",
    "SyncClient",
    "completed",
]
