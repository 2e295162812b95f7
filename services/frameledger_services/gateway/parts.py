"""What the routes work with, made once for the process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from frameledger_services.client import Client
from frameledger_services.gateway.hub import Hub
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections


@dataclass(frozen=True, slots=True)
class Parts:
    """Settings and connections, shared by all requests. Nothing is connected before it is needed."""

    settings: Settings
    client: Client
    """Publishes, and waits for what it published."""

    database: Connections
    """Reads: `await parts.database.read(function, *arguments)`."""

    hub: Hub
    """Gives streams what they wait for."""

    stopping: asyncio.Event
    """Set when the process drains: long answers end, and `/readyz` says no."""
