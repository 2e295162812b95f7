"""Positions of dead letters as the command line reads and prints them: PARTITION:OFFSET."""

from __future__ import annotations

import re
from typing import NoReturn

import typer

from frameledger.record import FIRST_GENERATION, LogPosition
from frameledger_services.cli.terminal import output
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store.dead_letters import DeadLetter

_WHERE = re.compile(r"(?:(\d{1,10}):)?(\d{1,10}):(\d{1,19})", re.ASCII)


def topic(settings: Settings) -> str:
    """Returns the topic whose dead letters are shown."""
    return TopicNames(settings.topic_prefix).frames


def parse(settings: Settings, written: str) -> LogPosition:
    """Parses a position as `written` returns it."""
    match = _WHERE.fullmatch(written)
    if match is None:
        raise typer.BadParameter(
            f"{written!r} is not PARTITION:OFFSET, like 3:118, nor GENERATION:PARTITION:OFFSET, like 2:3:118",
            param_hint="PARTITION:OFFSET",
        )
    generation, partition, offset = (int(number or FIRST_GENERATION) for number in match.groups())
    if max(generation, partition) >= 2**31 or offset >= 2**63:
        raise typer.BadParameter(f"{written!r} is not a position on a topic", param_hint="PARTITION:OFFSET")
    return LogPosition(topic(settings), partition, offset, generation)


def written(place: LogPosition | DeadLetter) -> str:
    """Returns the position of a record, with the topic's generation if it is not the first."""
    where = f"{place.partition}:{place.offset}"
    return where if place.generation == FIRST_GENERATION else f"{place.generation}:{where}"


def of(letter: DeadLetter) -> LogPosition:
    """Returns the position of a dead letter."""
    return LogPosition(letter.topic, letter.partition, letter.offset, letter.generation)


def refuse_missing(place: LogPosition) -> NoReturn:
    """End the command: there is no dead letter at this position."""
    output.fail(
        f"There is no dead letter at {written(place)} of {place.topic}.",
        "`frameledger dlq list` lists them.",
    )
