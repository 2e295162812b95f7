"""A broker that answers, and names no coordinator for consumer groups: nobody can join one.

So answers a cluster on which no broker leads the partition of `__consumer_offsets` that has the group, and one on which
the user has no right to the group.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient


def refuse(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> asyncio.Queue[None]:
    """Clients of this process that ask for the coordinator of a group get this error. Returns a queue with an item for
    each time that one asked."""
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def no_coordinator(*_: Any) -> None:
        asked.put_nowait(None)
        raise error

    monkeypatch.setattr(AIOKafkaClient, "coordinator_lookup", no_coordinator)
    return asked
