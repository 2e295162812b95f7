"""The lag of the projectors by partition, for `frameledger status`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import psycopg
from pydantic import SecretStr
from rich.table import Table
from rich.text import Text

from frameledger_services import database
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.settings_sources import read_running
from frameledger_services.store import partition_progress, schema
from frameledger_services.store.partition_progress import PartitionProgress

ANSWER_SECONDS = 3


def reach(settings: Settings) -> list[PartitionProgress] | None:
    """Returns the progress of each partition. None if no database is configured or running, or if it does not answer
    quickly or has another schema; `doctor` says why."""
    running = read_running(settings.data_dir).get("database_url")
    if settings.database_url is None:
        if running is None:
            return None
        settings = settings.model_copy(update={"database_url": SecretStr(running)})
    try:
        return asyncio.run(_reach(settings))
    except (psycopg.Error, schema.SchemaError, TimeoutError):
        return None


def table(partitions: Sequence[PartitionProgress]) -> Table:
    """Returns the progress as a table."""
    rows = Table(box=None, pad_edge=False)
    for heading in ("partition", "next offset", "gap", "lag"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column("read by", overflow="fold")
    for partition in partitions:
        rows.add_row(
            str(partition.partition),
            str(partition.next_offset),
            "" if partition.gap is None else f"{partition.gap:,}",
            "" if partition.lag_seconds is None else f"{partition.lag_seconds:,.0f} s",
            Text(partition.owner or "") if partition.is_owned else Text("nobody", "red"),
        )
    return rows


def as_json(partitions: Sequence[PartitionProgress] | None) -> list[dict[str, Any]] | None:
    """Returns the progress as JSON. Fields are added, never renamed."""
    return None if partitions is None else [asdict(one) for one in partitions]


async def _reach(settings: Settings) -> list[PartitionProgress]:
    async with (
        asyncio.timeout(ANSWER_SECONDS + 1),
        await database.connect(settings, "frameledger status") as connection,
    ):
        await schema.check(connection)
        return await partition_progress.progress(connection, TopicNames(settings.topic_prefix).frames)
