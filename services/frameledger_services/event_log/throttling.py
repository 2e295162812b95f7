"""Logs that a broker throttles a client of ours by a quota. Otherwise only slow answers would show it.

If a client exceeds its quota, the broker answers at once, and then does not read from its connection for a while. The
answer contains that time, but aiokafka ignores it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from frameledger_services.event_log.log_rate_limit import MINUTE

MIN_DELAY_MS = 100
"""Shorter delays are not logged. A quota for requests delays by at most a second, one for bytes may delay longer."""

_logged_at: dict[str, float] = {}
"""The time of the last log line by client name, because some clients exist for less than a minute."""


def log_delays(client: Any, now: Callable[[], float] = time.monotonic) -> None:
    """Make an `AIOKafkaClient` log the first delay in a minute."""
    send = client.send

    @wraps(send)
    async def sent(node: Any, request: Any, **options: Any) -> Any:
        answer = await send(node, request, **options)
        # A producer that waits for no acknowledgement gets None.
        delay: int = getattr(answer, "throttle_time_ms", 0)
        if delay >= MIN_DELAY_MS and now() - _logged_at.get(client._client_id, float("-inf")) >= MINUTE:
            _logged_at[client._client_id] = now()
            _log_delay(client._client_id, node, delay / 1000)
        return answer

    client.send = sent


def _log_delay(client: str, broker: Any, seconds: float) -> None:
    try:
        from frameledger_services import logs
    except ModuleNotFoundError:  # The client alone is installed without structlog.
        message = "kafka.throttled client=%r broker=%s seconds=%s"
        logging.getLogger("frameledger.kafka").warning(message, client, broker, seconds)
    else:
        log = logs.get_logger("kafka")
        log.warning("kafka.throttled", client=client, broker=broker, seconds=seconds)
