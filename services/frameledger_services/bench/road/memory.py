"""Memory of the projector in megabytes while the number of conversations grows.

The resident memory of a projector process after all conversations, compared with a tenth of them. Each conversation has
a few frames and then no more.
"""

from __future__ import annotations

import psutil

from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.processes import PROJECTOR, running
from frameledger_services.bench.road.progress import until_projected
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import one_after_another
from frameledger_services.bench.road.throughput import publish

FRAME_BYTES = 355
EACH = 3
EARLIER = 10
WITHIN = 600.0


async def measure(servers: Servers, *, contexts: int) -> list[Figure]:
    """Returns the megabytes after `contexts` conversations, compared with a tenth of them."""
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
        try:
            count = await publish(settings, one_after_another(contexts, EACH, FRAME_BYTES))
            async with running(settings, *PROJECTOR) as process:
                projector = psutil.Process(process.pid)
                await until_projected(settings, count // EARLIER, process, within=WITHIN)
                early = projector.memory_info().rss / 1e6
                await until_projected(settings, count, process, within=WITHIN)
                late = projector.memory_info().rss / 1e6
        finally:
            await servers.delete_topics(settings)
    return [
        Figure(
            name=f"memory after {contexts:,} conversations / {contexts // EARLIER:,}",
            value=late,
            unit="MB",
            yardstick=early,
            ratio=late / early,
            goal=1.2,
            bound="at most",
        )
    ]
