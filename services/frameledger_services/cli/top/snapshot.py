"""Snapshots of an installation, and the rates between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from frameledger_services.cli.doctor import waiting, work
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.top.stages import Stages
from frameledger_services.database_types import Connection
from frameledger_services.store import activity, partition_progress, serving
from frameledger_services.store.activity import Finished, InProgress, WentWrong

MINUTE = 60
MAX_LINES = 8


@dataclass(frozen=True, slots=True)
class Service:
    """All live workers of one service."""

    service: str
    workers: int
    slots: int
    busy: int


@dataclass(frozen=True, slots=True)
class Road:
    """How much of the log is stored."""

    partitions: int
    read: int
    """Partitions that a running projector reads."""

    projectors: int
    stored: int
    """Records read since the start of the topic."""

    gap: int
    """Records on the log that are not stored, at the projectors' latest check."""

    lag_seconds: float
    """Largest age of the last stored record among partitions with a gap."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one moment."""

    at: datetime
    clock: float
    road: Road
    finished: Finished
    services: Sequence[Service]
    in_progress: Sequence[InProgress]
    went_wrong: Sequence[WentWrong]
    needs: Sequence[Finding]
    """Problems, as `frameledger doctor` reports them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A snapshot with rates, as `frameledger top --once --json` prints it."""

    at: datetime
    seconds: float
    """Time between the two snapshots of the rates."""

    records_per_second: float
    road: Road
    stages: Mapping[str, float] | None
    """Milliseconds per batch in each stage during that time; None if no projector's metrics were read."""

    frames_of_a_batch: float | None
    finished: Finished
    services: Sequence[Service]
    in_progress: Sequence[InProgress]
    went_wrong: Sequence[WentWrong]
    needs: Sequence[Finding]


async def take_snapshot(connection: Connection, topic: str) -> Snapshot:
    """Returns the current state. Takes a dozen statements on indexes of open work; their cost does not grow with the
    archive."""
    reach = await partition_progress.progress(connection, topic)
    needs = [finding async for finding in waiting.findings(connection)]
    needs += [finding async for finding in work.findings(connection)]
    return Snapshot(
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
        await activity.in_progress(connection, MAX_LINES),
        await activity.went_wrong(connection, MAX_LINES),
        [finding for finding in needs if finding.state != "ok"],
    )


def sample(before: Snapshot, now: Snapshot, stages: tuple[Stages, Stages] | None) -> Sample:
    """Returns the later snapshot with the rates since the earlier one."""
    seconds = now.clock - before.clock
    spent = None if stages is None else stages[1].since(stages[0])
    return Sample(
        now.at,
        seconds,
        # Negative if the topic was recreated in between.
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
        Service(name, len(members), sum(one.slots for one in members), sum(one.busy for one in members))
        for name, members in of.items()
    ]
