"""What the routes work with, made once for the process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from frameledger_services.client import Client
from frameledger_services.gateway.live.hub import Hub
from frameledger_services.settings import Settings
from frameledger_services.store import context_json
from frameledger_services.store.connections import Connections
from frameledger_services.store.context_json import ContextHead, ContextJson, Moment
from frameledger_services.store.shared_reads import SharedReads


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

    contexts: SharedReads[Moment, ContextJson | None] = field(init=False)
    heads: SharedReads[Moment, ContextHead | None] = field(init=False)
    """Contexts and which ones there are, read for many requests in one statement."""

    def __post_init__(self) -> None:
        """The shared reads are made of the rest."""
        begun_within = self.settings.gateway_database_wait_secs
        contexts = SharedReads(self.database, context_json.contexts, begun_within=begun_within)
        heads = SharedReads(self.database, context_json.heads, begun_within=begun_within)
        object.__setattr__(self, "contexts", contexts)
        object.__setattr__(self, "heads", heads)
