"""The checks of `doctor` on topics: they exist with the expected configuration, and their replicas are in sync."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import TopicDescription, problems, topic_specs, unwritable
from frameledger_services.settings import Settings


async def described(settings: Settings) -> dict[str, TopicDescription]:
    """Returns our topics that exist. Raises `BrokerError` and `SettingsError`."""
    async with broker.connect(settings) as brokers:
        return await brokers.describe([topic.name for topic in topic_specs(settings)], configs=True)


def findings(settings: Settings, topics: Mapping[str, TopicDescription]) -> Iterator[Finding]:
    """Yields the findings about the described topics."""
    wrong = problems(topic_specs(settings), topics)
    for sentence in wrong:
        yield Finding("topics", "fail", sentence, "See `frameledger topics`.")
    if not wrong:
        yield Finding("topics", "ok", f"All {len(topics)} topics exist with the expected configuration.")
    for topic in topics.values():
        yield from copies(topic)


def copies(topic: TopicDescription) -> Iterator[Finding]:
    """Yields the effects of brokers that are down on a topic."""
    stopped = {number: why for number in topic.states if (why := unwritable(topic, [number])) is not None}
    behind = [
        number
        for number, state in sorted(topic.states.items())
        if state.in_sync < state.copies and number not in stopped
    ]
    if stopped:
        first = min(stopped)
        finding = f"Nothing can be published to {numbered(sorted(stopped))} of {topic.name}: {stopped[first]}"
        yield Finding("copies", "fail", finding, "Restart the brokers that are down.")
    if behind:
        finding = f"Replicas of {numbered(behind)} of {topic.name} are down or out of sync; publishing works."
        yield Finding("copies", "warn", finding, "Restart the brokers that are down.")


def numbered(numbers: Sequence[int]) -> str:
    """Returns the partitions by their numbers, at most ten."""
    shown = ", ".join(map(str, numbers[:10])) + (" ..." if len(numbers) > 10 else "")
    return f"partition{'' if len(numbers) == 1 else 's'} {shown}"
