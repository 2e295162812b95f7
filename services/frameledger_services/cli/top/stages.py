"""Durations of the stages of batches, from the `/metrics` of projectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from frameledger_services.cli import local_request
from frameledger_services.telemetry.metrics import PROJECTOR_BATCH_DURATION, PROJECTOR_BATCH_FRAMES

ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Average durations per batch. Stages without a batch are left out."""

    milliseconds: Mapping[str, float]
    frames: float | None


@dataclass(frozen=True, slots=True)
class Stages:
    """Sums over several projectors since their start."""

    seconds: Mapping[str, float]
    """By stage."""

    batches: Mapping[str, float]
    """By stage: the number of batches."""

    frames: float
    commits: float

    def since(self, before: Stages) -> Spent:
        """Returns the averages since an earlier reading. A restarted projector counts from its start."""
        milliseconds = {}
        for stage, count in self.batches.items():
            batches, seconds = count - before.batches.get(stage, 0.0), self.seconds[stage]
            earlier = before.seconds.get(stage, 0.0)
            if batches < 0:
                batches, earlier = count, 0.0
            if batches:
                milliseconds[stage] = 1_000 * (seconds - earlier) / batches
        commits, frames = self.commits - before.commits, self.frames - before.frames
        if commits < 0:
            commits, frames = self.commits, self.frames
        return Spent(milliseconds, frames / commits if commits else None)


def read(addresses: Iterable[str]) -> Stages | None:
    """Returns the sums of the projectors at these `/metrics` URLs, or None if none answered. Blocks up to
    `ANSWER_SECONDS` for each."""
    texts = [text for address in addresses if (text := _fetched(address)) is not None]
    return parsed(texts) if texts else None


def parsed(texts: Iterable[str]) -> Stages | None:
    """Returns the sums of these metrics texts, or None if none is a projector's."""
    sums: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for text in texts:
        # A page of another kind is not of a projector.
        with suppress(ValueError, IndexError):
            for family in text_string_to_metric_families(text):
                for name, labels, value, *_ in family.samples:
                    stage = labels.get("stage", "")
                    sums[name][stage] = sums[name].get(stage, 0.0) + value
    batches = sums[f"{PROJECTOR_BATCH_DURATION.name}_count"]
    if not batches:
        return None
    return Stages(
        seconds=sums[f"{PROJECTOR_BATCH_DURATION.name}_sum"],
        batches=batches,
        frames=sums[f"{PROJECTOR_BATCH_FRAMES.name}_sum"].get("", 0.0),
        commits=sums[f"{PROJECTOR_BATCH_FRAMES.name}_count"].get("", 0.0),
    )


def _fetched(address: str) -> str | None:
    try:
        with local_request.asked(address, ANSWER_SECONDS) as answer:
            return str(answer.read(), "utf-8", "replace")
    except (OSError, ValueError):
        return None
