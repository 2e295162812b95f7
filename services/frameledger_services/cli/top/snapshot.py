"""One look at an installation, and what two of them say together: rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from psycopg import AsyncConnection

from frameledger_services.cli.doctor import waiting, work
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.top.stages import Stages
from frameledger_services.store import activity, partition_progress, serving
from frameledger_services.store.activity import Finished, InProgress, WentWrong

MINUTE = 60
MOST_LINES = 8


@dataclass(frozen=True, slots=True)
class Service:
    """All live workers of one service."""

    service: str
    workers: int
    slots: int
    busy: int


@dataclass(frozen=True, slots=True)
class Road:
    """How far the log is stored."""

    partitions: int
    read: int
    """Partitions that a live projector reads."""

    projectors: int
    stored: int
    """Records that were read since the topic began."""

    gap: int
    """Records on the log that are not stored, as of when their projectors last looked."""

    lag_seconds: float
    """The age of the oldest of what is stored last, where there is a gap."""


@dataclass(frozen=True, slots=True)
class Look:
    """What there is at one moment."""

    at: datetime
    clock: float
    road: Road
    finished: Finished
    services: Sequence[Service]
    in_progress: Sequence[InProgress]
    went_wrong: Sequence[WentWrong]
    needs: Sequence[Finding]
    """What waits for somebody, in the words of `frameledger doctor`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What `frameledger top --once --json` prints."""

    at: datetime
    seconds: float
    """Between the two looks that the rates are from."""

    records_per_second: float
    road: Road
    stages: Mapping[str, float] | None
    """Milliseconds of a batch in each stage, in that time; None if no projector's metrics were read."""

    frames_of_a_batch: float | None
    finished: Finished
    services: Sequence[Service]
    in_progress: Sequence[InProgress]
    went_wrong: Sequence[WentWrong]
    needs: Sequence[Finding]


async def look(connection: AsyncConnection[Any], topic: str) -> Look:
    """Returns what there is now. A dozen statements on indexes of what is open; none grows with the archive."""
    reach = await partition_progress.progress(connection, topic)
    needs = [finding async for finding in waiting.findings(connection)]
    needs += [finding async for finding in work.findings(connection)]
    return Look(
        datetime.now(UTC),
        monotonic(),
        Road(
            partitions=len(reach),
            read=sum(one.is_owned for one in reach),
            projectors=len({one.owner for one in reach if one.is_owned}),
            stored=sum(one.next_offset for one in reach),
            gap=sum(one.gap or 0 for one in reach),
            lag_seconds=max((one.lag_seconds or 0.0 for one in reach), default=0.0),
        ),
        await activity.finished(connection, MINUTE),
        _services(await serving.workers(connection)),
        await activity.in_progress(connection, MOST_LINES),
        await activity.went_wrong(connection, MOST_LINES),
        [finding for finding in needs if finding.state != "ok"],
    )


def sample(before: Look, now: Look, stages: tuple[Stages, Stages] | None) -> Sample:
    """Returns the later look, with what happened between the two."""
    seconds = now.clock - before.clock
    spent = None if stages is None else stages[1].since(stages[0])
    return Sample(
        now.at,
        seconds,
        # Fewer than before: the topic was made again meanwhile.
        max(0, now.road.stored - before.road.stored) / seconds if seconds else 0.0,
        now.road,
        None if spent is None else spent.milliseconds,
        None if spent is None else spent.frames,
        now.finished,
        now.services,
        now.in_progress,
        now.went_wrong,
        now.needs,
    )


def _services(workers: Sequence[serving.LiveWorker]) -> list[Service]:
    names = sorted({one.service for one in workers})
    of = {name: [one for one in workers if one.service == name] for name in names}
    return [
        Service(name, len(found), sum(one.slots for one in found), sum(one.busy for one in found))
        for name, found in of.items()
    ]
