"""What every aiokafka client of ours has: failover, and a log of what happens to it, without the noise of an outage."""

from __future__ import annotations

from aiokafka.client import AIOKafkaClient

from frameledger_services.event_log.failover import with_failover
from frameledger_services.event_log.log_rate_limit import rate_limited_connections
from frameledger_services.event_log.throttling import with_logged_delays


def prepare(client: AIOKafkaClient) -> None:
    """Prepare a client that is not connected yet. Only this client changes, not its class."""
    with_logged_delays(client)
    with_failover(client)
    # Last, so that it is the first to see a request for a connection.
    rate_limited_connections(client)
