"""The dependencies that all routes share, created once for the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from frameledger_services.client import Client
from frameledger_services.gateway import problems
from frameledger_services.gateway.kept_contexts import KeptContexts
from frameledger_services.gateway.live.hub import Hub
from frameledger_services.gateway.shared_marks import SharedMarks
from frameledger_services.settings import Settings
from frameledger_services.store import context_json
from frameledger_services.store.connections import Connections
from frameledger_services.store.context_json import ContextHead, ContextJson, WantedContext
from frameledger_services.store.shared_reads import SharedReads

MAX_HEADS = 128
"""The maximum number of contexts whose newest versions one statement reads. Each is one small row."""

SLOW_SECONDS = 0.01
"""Such a statement takes one or two milliseconds. If one takes this long, another one is started in parallel."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Settings and connections, shared by all requests. Nothing is connected before it is needed."""

    settings: Settings
    client: Client
    """Publishes, and waits for what it published."""

    database: Connections
    """Reads: `await dependencies.database.read(function, *arguments)`."""

    hub: Hub
    """Delivers frames to streams."""

    stopping: asyncio.Event
    """Set when the process drains: long responses end, and `/readyz` reports that it is not ready."""

    contexts: SharedReads[WantedContext, ContextJson | None] = field(init=False)
    heads: SharedReads[WantedContext, ContextHead | None] = field(init=False)
    newest: SharedReads[str, ContextHead | None] = field(init=False)
    """Contexts, heads at a moment, and newest heads, each read for many requests in one statement."""

    kept: KeptContexts = field(init=False)
    """The cache of recently read contexts."""

    marks: SharedMarks = field(init=False)
    """The marks of what clients follow, on this gateway and on others."""

    def __post_init__(self) -> None:
        """Create the fields that depend on others."""
        begun_within = self.settings.gateway_database_wait_secs
        contexts = SharedReads(self.database, context_json.contexts, begun_within=begun_within)
        heads = SharedReads(self.database, context_json.heads, begun_within=begun_within)
        newest = SharedReads(
            self.database,
            context_json.newest,
            begun_within=begun_within,
            most_at_once=MAX_HEADS,
            patience=SLOW_SECONDS,
        )
        object.__setattr__(self, "contexts", contexts)
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "newest", newest)
        object.__setattr__(self, "kept", KeptContexts(self.settings.gateway_kept_mb << 20))
        object.__setattr__(self, "marks", SharedMarks(self.settings, self.database))

    def check_not_stopping(self, headers: Mapping[str, str] | None = None) -> None:
        """Raise the problem `draining`, with these headers, if the process drains."""
        if self.stopping.is_set():
            raise problems.draining(headers)
