"""The receipt of an erasure: what was deleted, and what was not, where, and until when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import typer

from frameledger_services.cli.terminal import escape
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.topics import days
from frameledger_services.client import Receipt
from frameledger_services.event_log.topics import TopicNames


def print_json(receipt: Receipt, names: TopicNames, retention_ms: str | None, copies: Sequence[str]) -> None:
    """Print the receipt as JSON. `retention_ms` is `retention.ms` of the frames topic, `copies` the forks."""
    times = {
        name: None if at is None else at.isoformat()
        for name, at in (("erased_at", receipt.erased_at), ("logged_at", receipt.logged_at))
    }
    frame_id = None if receipt.frame_id is None else str(receipt.frame_id)
    values = asdict(receipt) | times | {"chain": receipt.chain.hex(), "frame_id": frame_id}
    on_kafka = {"topic": names.frames, "retention_ms": retention_ms}
    del values["places"]
    places = [on_kafka | asdict(place) for place in receipt.places]
    typer.echo(json.dumps(values | {"kept_on_kafka": places, "forks": list(copies)}))


def print_lines(receipt: Receipt, names: TopicNames, retention_ms: str | None, copies: Sequence[str]) -> None:
    """Print the receipt as text. The arguments are those of `print_json`."""
    for line in _lines(receipt, names, retention_ms, copies):
        typer.echo(escape.printable(line))


def _lines(
    receipt: Receipt, names: TopicNames, retention_ms: str | None, copies: Sequence[str]
) -> Iterator[str]:
    frames = plural(receipt.frame_count, "frame")
    after = f"If the id is used again, its versions continue after {receipt.version}."
    yield f"Erased {receipt.context_id}: {frames}. {after}"
    yield f"  when   {_utc(receipt.erased_at)}"
    yield f"  who    {receipt.requested_by or 'not recorded'}; deleted by {receipt.erased_by}"
    yield f"  why    {receipt.why}"
    is_on_log = receipt.frame_id is not None
    yield (
        f"  log    {names.frames}, partition {receipt.partition}, offset {receipt.offset}"
        if is_on_log
        else "  log    no record: it was deleted by erase() in SQL"
    )
    yield f"  chain  {receipt.chain.hex()}"
    yield "Not erased:"
    for place in receipt.places:
        again = "" if place.generation == 1 else f", generation {place.generation}"
        yield (
            f"  {place.records:,} records on Kafka: {names.frames}, partition {place.partition}, between offsets "
            f"{place.first_offset} and {place.last_offset}{again};"
        )
        yield f"  {_until(receipt.logged_at, retention_ms)}."
    yield f"  Its effects and dead letters, if any, on {names.inference}, {names.function_calls} and"
    yield f"  {names.dead_letters}; backups of the database; exported files."
    for copy in copies:
        yield f"  {copy}, which was forked from it, is a separate conversation: erase it separately."
    if is_on_log:
        yield "  A rebuild from Kafka applies the erasure: it does not restore the conversation."
    else:
        yield "  A rebuild from Kafka restores the conversation: no erasure is on the log. --force publishes one."


def _until(logged_at: datetime | None, retention_ms: str | None) -> str:
    """Returns how long Kafka keeps the records written before this time."""
    if retention_ms is None:
        return "kept until the topic's retention ends"
    if not retention_ms.isdigit() or logged_at is None:
        ends = (
            ""
            if retention_ms != "-1"
            else "; set FRAMELEDGER_FRAMES_RETENTION_DAYS, and retention.ms of the topic"
        )
        return f"kept {days(retention_ms)}{ends}"
    kept = f"kept {days(retention_ms)}"
    try:
        until = logged_at + timedelta(milliseconds=int(retention_ms))
    except OverflowError:
        # Beyond the year 9999: Kafka takes any number of milliseconds that 64 bits hold.
        return kept
    return f"{kept}: until {_utc(until)}, and until its segment ends"


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
