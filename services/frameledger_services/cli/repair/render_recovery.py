"""Output of `frameledger recover`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from rich.table import Table

from frameledger_services.cli.terminal import output
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.event_log.topics import MAX_RECORD_BYTES, ROOM, change
from frameledger_services.recovery.diagnosis import PartitionFinding
from frameledger_services.recovery.recover import Examination
from frameledger_services.recovery.republish import Republished


def show(examined: Examination) -> None:
    topic = examined.topic.name
    if examined.generation is None:
        typer.echo(f"No record of {topic} was ever stored in this database: there is nothing to recover.")
        return
    if examined.is_fine:
        typer.echo(f"The log matches the tables: all {examined.topic.partitions} partitions of {topic}.")
        return
    if examined.is_same_topic is False:
        typer.echo(f"{topic} was deleted and recreated: it is another topic with the same name.")
    table = Table(box=None, pad_edge=False)
    table.add_column("partition", justify="right", no_wrap=True)
    table.add_column("stored up to", justify="right", no_wrap=True)
    table.add_column("on the log", justify="right", no_wrap=True)
    table.add_column("what happened", overflow="fold")
    table.add_column("what --apply does", overflow="fold")
    for finding in _listed(examined):
        table.add_row(
            str(finding.stored.partition),
            str(finding.stored.next_offset),
            f"{finding.log.first} to {finding.log.end}",
            _happened(finding),
            _remedy(finding, examined),
        )
    if table.row_count:
        output.console().print(table)
    else:
        typer.echo(
            "It has all stored records of the old topic: --apply continues reading each partition at its stored offset."
        )


def _listed(examined: Examination) -> Sequence[PartitionFinding]:
    """Returns the partitions that differ."""
    return [
        one
        for one in examined.findings
        if one.happened != "fine" or examined.to_republish.get(one.stored.partition)
    ]


def _happened(finding: PartitionFinding) -> str:
    match finding.happened:
        case "lost_tail":
            return f"Kafka lost the stored records from {finding.begins_at} on{_since(finding)}."
        case "expired":
            offsets = f"{finding.stored.next_offset} to {finding.log.first - 1}"
            return f"The records {offsets} expired before they were stored."
        case "another_log":
            return f"It is another log{_same_until(finding)}."
        case "fine":
            return "An earlier recovery did not republish all frames."


def _since(finding: PartitionFinding) -> str:
    return (
        f"; it has other records there now, up to {finding.log.end - 1}"
        if finding.log.end > finding.begins_at
        else ""
    )


def _same_until(finding: PartitionFinding) -> str:
    return f", identical up to {finding.begins_at}" if finding.begins_at > finding.log.first else ""


def _remedy(finding: PartitionFinding, examined: Examination) -> str:
    frames = plural(examined.to_republish.get(finding.stored.partition, 0), "frame")
    match finding.happened:
        case "lost_tail":
            return f"reads from {finding.begins_at}, and publishes {frames} again"
        case "expired":
            return f"reads from {finding.begins_at}; the missing records stay missing"
        case "another_log":
            return f"reads the new log from {finding.begins_at}; stored frames are kept"
        case "fine":
            return f"publishes {frames} again"


def show_done(examined: Examination, generation: int | None, republished: Republished) -> None:
    topic = examined.topic.name
    if examined.needs_generation:
        typer.echo(f"Started generation {generation} of {topic}; projectors switch to it by themselves.")
    if republished.frames:
        typer.echo(f"Published again: {plural(republished.frames, 'frame')}.")
    missing = sum(one.missing for one in examined.findings)
    if missing:
        typer.echo(f"Offsets that stay missing: {missing:,}. The table `recoveries` lists them.")
    if republished.undecodable:
        typer.echo(
            "Not published again, because this release cannot read their bytes: "
            f"{plural(republished.undecodable, 'frame')}.",
            err=True,
        )


def too_large(examined: Examination, republished: Republished) -> tuple[str, str]:
    """Returns the problem and the remedy if some frames exceed the topic's size limit."""
    topic = examined.topic.name
    lines = [
        f"{topic} rejects {plural(republished.too_large, 'frame')} as too large; all others were published again."
    ]
    lines += [
        f"  {one.context_id!r}: frame {one.frame_id}, {one.bytes:,} bytes, stored from "
        f"{one.partition}:{one.offset} of generation {one.generation}"
        for one in republished.named
    ]
    if more := republished.too_large - len(republished.named):
        lines.append(f"  and {more:,} more")
    needed = max(MAX_RECORD_BYTES, *(one.bytes + ROOM for one in republished.named))
    return "\n".join(lines), (
        "Nothing is lost: the frames are stored, and projectors continue. Raise the limit with Kafka's tool, then run "
        f"this command again: {change(topic, 'max.message.bytes', needed)}"
    )


def as_json(examined: Examination) -> dict[str, Any]:
    """Returns the comparison as JSON. Fields are added, never renamed."""
    return {
        "topic": examined.topic.name,
        "fine": examined.is_fine,
        "generation": examined.generation,
        "same_topic": examined.is_same_topic,
        "partitions": [
            {
                "partition": one.stored.partition,
                "happened": one.happened,
                "stored_up_to": one.stored.next_offset,
                "first_offset": one.log.first,
                "end_offset": one.log.end,
                "begins_at": one.begins_at,
                "missing": one.missing,
                "to_put_back": examined.to_republish.get(one.stored.partition, 0),
            }
            for one in examined.findings
        ],
    }


def done_as_json(republished: Republished) -> dict[str, Any]:
    """Returns the republished frames as JSON. Fields are added, never renamed."""
    return {
        "put_back": republished.frames,
        "left": republished.undecodable,
        "too_large": republished.too_large,
        "not_put_back": [
            {
                "context_id": one.context_id,
                "frame_id": str(one.frame_id),
                "partition": one.partition,
                "generation": one.generation,
                "offset": one.offset,
                "bytes": one.bytes,
            }
            for one in republished.named
        ],
    }
