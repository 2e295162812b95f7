"""What the timekeeper knows of each partition: where its log ends, and since when it may be judged. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from frameledger_services.timekeeper.limits import TimeLimits


class Partitions:
    """The partitions of one timekeeper. Times are of the loop's clock."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        """Where the logs ended at the last look; nothing of a partition without a leader, nor during an outage."""

        self._known: set[int] = set()
        self._away: set[int] = set()
        """Partitions that did not answer at the last look."""

        self._answers_since: float | None = float("-inf")
        """When the last outage of the broker ended; None while it is away."""

        self._back_since: dict[int, float] = {}
        """When each partition came back that had been away alone."""

    def to_ask(self, reached: Iterable[int]) -> set[int]:
        """Returns the partitions whose ends are to be looked up: those that are stored, and those that were before. One
        whose effects are held may lose its leader meanwhile."""
        self._known.update(reached)
        return self._known

    def looked(self, reached: Iterable[int], answers: Mapping[int, int], now: float) -> set[int]:
        """Note the answers of a look at the ends. Returns the partitions that answer no more."""
        if self._answers_since is None:
            self._answers_since = now
        self._back_since |= dict.fromkeys(self._away & answers.keys(), now)
        away = self._known - answers.keys()
        lost, self._away = away - self._away, away
        self.ends = {partition: answers[partition] for partition in reached if partition in answers}
        return lost

    def outage(self) -> None:
        """Note that no partition answers."""
        self.ends, self._answers_since = {}, None

    def judged(
        self, reached: Mapping[int, int], limits: TimeLimits, now: float
    ) -> dict[TimeLimits, list[int]]:
        """Returns the partitions that are stored up to the end that their log had at the last look, by the limits that
        apply to them now."""
        found: dict[TimeLimits, list[int]] = {}
        for partition, end in self.ends.items():
            if self._answers_since is not None and reached.get(partition, 0) >= end:
                since = max(self._answers_since, self._back_since.get(partition, self._answers_since))
                found.setdefault(limits.after_outage(now - since), []).append(partition)
        return found
