"""The topic of the frames as a projector has to find it."""

from __future__ import annotations

from contextlib import suppress

from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import TopicDescription, time_problem
from frameledger_services.settings import Settings


async def described(settings: Settings, topic: str) -> TopicDescription:
    """The topic, which is there, and whose records have their broker's time: publishers' times are in any order, and
    may be none that a database can keep. Raises `BrokerError`."""
    async with broker.connect(settings) as brokers:
        found = (await brokers.describe([topic])).get(topic)
        with suppress(broker.BrokerError):
            # Not everybody may ask for this.
            found = (await brokers.describe([topic], configs=True)).get(topic)
    if found is None:
        raise broker.BrokerError(f"The topic {topic} is not there: `frameledger topics --create`.")
    problem = time_problem(found)
    if problem is not None:
        raise broker.BrokerError(problem)
    return found
