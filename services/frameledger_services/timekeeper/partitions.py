"""The state of each partition: how far it is stored, where its log ends, and since when its work may be judged. Pure.

While a partition catches up with its log, its effects are held and no worker may take its work. Then all work is
requested at once, some of it long after it was stored. So rules for work without a claim also count from the first
sweep that saw the partition released (`TimeLimits.after_release`).

A timekeeper that has just started does not know since when a partition is released, nor which outages came before: of a
broker, of a database, of a machine that was off or suspended. It counts from its own first sweep.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from frameledger_services.timekeeper.limits import TimeLimits


class Partitions:
    """The partitions of one timekeeper. Times are of the loop's clock."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        """The ends of the logs at the last check; none for a partition that is unreachable or hidden, nor during an
        outage."""

        self.known: set[int] = set()
        """The partitions whose end offsets are to be read: those that are stored, and those that were before. One whose
        effects are held may lose its leader meanwhile."""

        self._reached: Mapping[int, int] = {}
        self._released_since: dict[int, float] = {}
        """Since when each partition's effects have not been held."""

        self._away: set[int] = set()
        """Partitions that did not answer at the last check, or whose log is not the one that was stored."""

        self._answers_since: float | None = None
        """When the last outage of the broker ended, or this timekeeper first reached it; None during an outage."""

        self._back_since: dict[int, float] = {}
        """When each partition came back that had been unreachable while others answered."""

    def note_stored(self, reached: Mapping[int, int], now: float) -> None:
        """Record the next offset of each partition whose effects are not held."""
        self._reached = reached
        self._released_since = {one: self._released_since.get(one, now) for one in reached}
        self.known.update(reached)

    def judged(self, limits: TimeLimits, now: float) -> dict[TimeLimits, list[int]]:
        """Returns the partitions that are stored up to the end that their log had at the last check, grouped by the
        limits that apply to them now."""
        found: dict[TimeLimits, list[int]] = {}
        for partition, end in self.ends.items():
            if self._answers_since is not None and self._reached.get(partition, -1) >= end:
                since = max(self._answers_since, self._back_since.get(partition, self._answers_since))
                ours = limits.after_outage(now - since)
                ours = ours.after_release(now - self._released_since[partition])
                found.setdefault(ours, []).append(partition)
        return found

    def note_ends(self, answers: Mapping[int, int], now: float, hidden: Container[int] = ()) -> set[int]:
        """Record the end offsets that a check of the logs returned. Returns the partitions that did not answer it, but
        answered the one before. The newest records of `hidden` partitions cannot be read, so these are not judged."""
        # A log that is shorter than what is stored of it has lost records, or its topic was recreated: no projector
        # reads it before `frameledger recover`, so what it has by now is not known.
        answers = {one: end for one, end in answers.items() if end >= self._reached.get(one, 0)}
        if self._answers_since is None:
            self._answers_since = now
        self._back_since |= dict.fromkeys(self._away & answers.keys(), now)
        away = self.known - answers.keys()
        lost, self._away = away - self._away, away
        self.ends = {one: answers[one] for one in self._reached if one in answers and one not in hidden}
        return lost

    def note_outage(self) -> None:
        """Record that no partition answers."""
        self.ends, self._answers_since = {}, None
