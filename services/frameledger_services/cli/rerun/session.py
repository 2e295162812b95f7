"""Reruns with one set of options, and the clients and connections that they share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from frameledger_services.client import Client
from frameledger_services.forks import batch, prices
from frameledger_services.forks.compared import ComparedAnswers, compared
from frameledger_services.forks.original import Original, original
from frameledger_services.forks.rerun import Rerunner
from frameledger_services.forks.rerun_model import Changes
from frameledger_services.providers import plugins
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections

SOURCE = "frameledger/rerun"


@dataclass(frozen=True, slots=True)
class RerunOptions:
    """The options of a rerun."""

    settings: Settings
    provider: str | None
    changes: Changes
    times: int
    prices: prices.Prices | None


class RerunSession:
    """A client, database connections, and a client of each provider, which its reruns share."""

    def __init__(
        self, options: RerunOptions, client: Client, connections: Connections, stack: AsyncExitStack
    ) -> None:
        self.connections = connections
        self._options = options
        self._client = client
        self._stack = stack
        self._rerunners: dict[str | None, Rerunner] = {}

    async def rerun(self, run: batch.RunAt) -> ComparedAnswers:
        """Rerun one version with the configured number of repetitions."""
        recorded = await self.connections.read(original, run.context_id, run.version)
        rerunner = self._rerunner(recorded)
        answers = [await rerunner.rerun(recorded) for _ in range(self._options.times)]
        return compared(recorded, answers, self._options.prices)

    def _rerunner(self, recorded: Original) -> Rerunner:
        name = self._options.provider or (recorded.answer.provider if recorded.answer else None)
        if name not in self._rerunners:
            if name is not None:
                plugins.require_key(name, self._options.settings)
            model = OutOfBand(self._options.settings, provider=name)
            self._stack.push_async_callback(model.close)
            self._rerunners[name] = Rerunner(model, self._options.changes, self._publish, time.monotonic)
        return self._rerunners[name]

    async def _publish(self, context_id: str, frames: Sequence[Any], cause: str | None) -> None:
        await self._client.publish(context_id, *frames, causation_id=cause)


@asynccontextmanager
async def rerun_session(options: RerunOptions) -> AsyncIterator[RerunSession]:
    """Yields a session, whose connections and clients are closed at the end of the block."""
    async with AsyncExitStack() as stack:
        connections = Connections(options.settings)
        stack.push_async_callback(connections.close)
        client = await stack.enter_async_context(Client(options.settings, source=SOURCE))
        yield RerunSession(options, client, connections, stack)
