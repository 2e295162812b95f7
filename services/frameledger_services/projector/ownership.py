"""What a projector owns: its partitions, each with the epoch that fences others, and their topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frameledger.errors import FencedError
from frameledger.record import FIRST_GENERATION


@dataclass(slots=True)
class OwnedPartition:
    """A partition that this projector owns, and the position up to which it is stored."""

    partition: int
    epoch: int
    next_offset: int
    end_offset: int | None = None
    generation: int = FIRST_GENERATION
    held_until: int | None = None
    """The offset up to which its effects are held back (`held_effects`); None if they are not."""


OwnedPartitions = Mapping[int, OwnedPartition]
"""Owned partitions by number."""


class ProjectorFencedError(FencedError):
    """Another projector has taken over these partitions, or wrote to them. Nothing of the batch was stored.

    Remedy: Discard the state of these partitions in memory. The projector does so by itself and joins the group again.
    """

    def __init__(self, partitions: set[int]) -> None:
        super().__init__(f"partitions {sorted(partitions)} belong to another projector")
        self.partitions = partitions


@dataclass(frozen=True, slots=True)
class ProjectorTopics:
    """The topics of a projector, and the number of partitions of the frames' topic."""

    frames: str
    dead_letters: str
    effects: Mapping[str, str]
    partitions: int
    group: str = "projector"
    """The consumer group that reads the frames."""
