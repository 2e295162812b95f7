"""Prepares every aiokafka client of ours: failover, logged delays, and a limit on the log lines of an outage."""

from __future__ import annotations

from aiokafka.client import AIOKafkaClient

from frameledger_services.event_log.failover import enable_failover
from frameledger_services.event_log.log_rate_limit import limit_connection_logs
from frameledger_services.event_log.throttling import log_delays


def prepare(client: AIOKafkaClient) -> None:
    """Prepare a client that is not connected yet. Only this client changes, not its class."""
    log_delays(client)
    enable_failover(client)
    # Last, so that it is the first to see a request for a connection.
    limit_connection_logs(client)
