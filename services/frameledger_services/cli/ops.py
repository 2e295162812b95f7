"""The operations endpoint of `frameledger run`: `/metrics`, `/livez` and `/readyz` on a separate port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from frameledger_services import database, logs, process
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseError, DatabaseRefusedError
from frameledger_services.store.schema import SchemaError
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry import ops_server
from frameledger_services.telemetry.health import AWAY, OK, REFUSED, Health
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics
from frameledger_services.telemetry.metrics_registry import ProcessMetrics

_log = logs.get_logger("ops")


def metrics_of(settings: Settings) -> Metrics:
    """Returns the metrics of this process, or a no-op recorder if no metrics port is set."""
    return NO_METRICS if settings.metrics_port is None else ProcessMetrics()


def run_service(
    settings: Settings, metrics: Metrics, serve: Callable[[asyncio.Event], Awaitable[None]]
) -> None:
    """Run a service until a signal, like `process.run_service`, with the operations endpoint if the settings name a
    port. Raises what `run_service` raises, and `OpsAddressError`."""

    async def watched(stopping: asyncio.Event) -> None:
        port = settings.metrics_port
        if port is None or not isinstance(metrics, ProcessMetrics):
            await serve(stopping)
            return
        connections = Connections(settings, "frameledger ops", most=1)
        health = Health(checks(settings, connections), stopping)
        metrics.watch(listed.READY, health.by_check)
        host = settings.metrics_host
        try:
            async with health.ticking():
                with ops_server.serving(host, port, metrics, health):
                    _log.info("ops.started", address=f"{host}:{port}")
                    await serve(stopping)
        finally:
            await connections.close()

    process.run_service(watched)


def checks(settings: Settings, connections: Connections) -> dict[str, Callable[[], Awaitable[str]]]:
    """Returns the readiness checks of every service: the database with this release's schema, and the frames topic."""

    async def ask_database() -> str:
        # Opening a connection checks the schema.
        try:
            await connections.read(database.ping)
        except SchemaError:
            return "The database has the schema of another release."
        except DatabaseRefusedError:
            return REFUSED
        except DatabaseError:
            return AWAY
        return OK

    async def ask_log() -> str:
        topic = TopicNames(settings.topic_prefix).frames
        try:
            async with broker.connect(settings) as brokers:
                return OK if await brokers.find(topic) is not None else "The frames topic does not exist."
        except BrokerError:
            return AWAY

    return {"database": ask_database, "log": ask_log}
