"""A broker that responds but names no coordinator for consumer groups, so that nobody can join one. A cluster responds
like this if no broker leads the group's partition of `__consumer_offsets`, or if the user has no right to the group.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient


def refuse(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> asyncio.Queue[None]:
    """Let every request for the coordinator of a group in this process fail with this error. Returns a queue with an
    item for each such request."""
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def no_coordinator(*_: Any) -> None:
        asked.put_nowait(None)
        raise error

    monkeypatch.setattr(AIOKafkaClient, "coordinator_lookup", no_coordinator)
    return asked
