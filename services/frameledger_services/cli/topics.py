"""`frameledger topics`: the topics on the broker, listed, created and checked."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import psycopg
import typer
from rich.table import Table

from frameledger_services import database
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.event_log.broker import connect
from frameledger_services.event_log.topics import TopicDescription, TopicSpec, problems, topic_specs
from frameledger_services.projector import topic_identity
from frameledger_services.settings import Settings

commands = typer.Typer()


@commands.command()
def topics(
    create: Annotated[bool, typer.Option("--create", help="Create missing topics.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List the topics with their configuration problems.

    Compares the broker's configuration with the settings (`frameledger config`), and the frames topic with the one that
    the database was filled from, if the database is reachable. Exit code 1 if there is a problem.

    Example: `FRAMELEDGER_TOPIC_PREFIX=staging. frameledger topics --create`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        ours = topic_specs(settings)
        descriptions, created = asyncio.run(_described(settings, ours, create))
        wrong = problems(ours, descriptions) + _changed(settings, descriptions.get(ours[0].name))
    if as_json:
        listed = [_as_json(topic, descriptions.get(topic.name), topic.name in created) for topic in ours]
        typer.echo(json.dumps({"topics": listed, "problems": wrong}, indent=2))
    else:
        _print(ours, descriptions, created, wrong)
    if wrong:
        raise typer.Exit(1)


async def _described(
    settings: Settings, ours: tuple[TopicSpec, ...], create: bool
) -> tuple[dict[str, TopicDescription], set[str]]:
    async with connect(settings) as broker:
        created = await broker.create_missing(ours) if create else []
        return await broker.describe([topic.name for topic in ours], configs=True), set(created)


def _changed(settings: Settings, frames: TopicDescription | None) -> list[str]:
    """Returns problems of the frames topic according to the database; none if it is not reachable or not migrated."""
    if frames is None or settings.database_url is None:
        return []
    try:
        difference = asyncio.run(_difference(settings, frames))
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.Error as error:
        typer.echo(f"Not compared with the database: {str(error).strip()}", err=True)
        return []
    return [] if difference is None else [difference]


async def _difference(settings: Settings, frames: TopicDescription) -> str | None:
    async with await database.connect(settings, "frameledger topics") as connection:
        return await topic_identity.difference(connection, frames)


def _as_json(topic: TopicSpec, description: TopicDescription | None, is_created: bool) -> dict[str, object]:
    return {
        "topic": topic.name,
        "exists": description is not None,
        "created": is_created,
        "partitions": None if description is None else description.partitions,
        "replication": None if description is None else description.replication,
        "topic_id": None
        if description is None or description.topic_id is None
        else str(description.topic_id),
        "config": None
        if description is None
        else {name: description.config.get(name) for name in topic.config},
    }


def _print(
    ours: tuple[TopicSpec, ...],
    descriptions: dict[str, TopicDescription],
    created: set[str],
    wrong: list[str],
) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("topic", no_wrap=True)
    for heading in ("partitions", "copies", "kept", "largest"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for topic in ours:
        description = descriptions.get(topic.name)
        if description is None:
            table.add_row(topic.name, *"----", "missing")
        else:
            retention_ms, largest = (
                description.config.get("retention.ms", "?"),
                description.config.get("max.message.bytes", "?"),
            )
            table.add_row(
                topic.name,
                str(description.partitions),
                str(description.replication),
                days(retention_ms),
                _mebibytes(largest),
                "created" if topic.name in created else "",
            )
    output.console().print(table)
    for sentence in wrong:
        typer.echo(sentence, err=True)


def days(milliseconds: str) -> str:
    """Returns a topic's `retention.ms` as text."""
    if not milliseconds.isdigit():
        return "for ever" if milliseconds == "-1" else milliseconds
    count = int(milliseconds) / 86_400_000
    return "1 day" if count == 1 else f"{count:g} days"


def _mebibytes(count: str) -> str:
    return f"{int(count) / 2**20:.2f} MiB" if count.isdigit() else count
