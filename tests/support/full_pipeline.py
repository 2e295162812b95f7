"""A pipeline with a projector, a scripted model, and a worker with the demo's functions, each in its own process.

For tests of clients outside: a terminal, a front end, or a client of another provider's API.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.bounds import PROGRAM
from tests.support import databases
from tests.support.forked_command import Command
from tests.support.killable import projector
from tests.support.pipeline import made as pipeline_made
from tests.support.polling import pause

from frameledger_services.settings import PREFIX, Settings


class Service:
    """A service in a process of its own, which is killed at the end because calls of the demo outlast a test."""

    def __init__(self, environment: Mapping[str, str], *words: str) -> None:
        self._words, self._environment = words, environment
        self.begin()

    def begin(self) -> None:
        """Start the process, also after a kill."""
        self._process = Command(self._words, self._environment)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()


@dataclass(frozen=True)
class FullPipeline:
    """The running pipeline."""

    settings: Settings
    environment: dict[str, str]
    """The environment of commands."""

    script: Path
    inference: Service

    @property
    def address(self) -> str:
        """The address of the database."""
        assert self.settings.database_url is not None
        return self.settings.database_url.get_secret_value()

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Returns the rows of a query."""
        with psycopg.connect(self.address) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def until(self, query: str, *parameters: Any) -> None:
        """Wait until the only value of this query is true."""
        end = time.monotonic() + PROGRAM
        with psycopg.connect(self.address, autocommit=True) as connection:
            while not connection.execute(query.encode(), parameters).fetchall()[0][0]:
                assert time.monotonic() < end, f"not within {PROGRAM:g} s: {query}"
                pause()

    def context(self, context_id: str) -> dict[str, Any]:
        """Returns the stored context."""
        query = "SELECT context_at(context_id, version) FROM contexts WHERE context_id = %s"
        [(found,)] = self.rows(query, context_id)
        return dict(found)


@contextmanager
def made(
    bootstrap_servers: str,
    database_server: str,
    template: str,
    folder: Path,
    script: Mapping[str, Any],
    *options: str,
    **also: Any,
) -> Iterator[FullPipeline]:
    """Yields a pipeline once both services are alive. `options` are command-line options of the inference service,
    `also` are settings of both services."""
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    with databases.made(database_server, template=template) as (_, address):
        pipeline = pipeline_made(bootstrap_servers, address, None)
        with projector(pipeline.settings):
            set_here = {
                "kafka_bootstrap_servers": bootstrap_servers,
                "database_url": address,
                "topic_prefix": pipeline.settings.topic_prefix,
                "data_dir": folder,
                **also,
            }
            inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
            environment = inherited | {
                f"{PREFIX}{name.upper()}": str(value) for name, value in set_here.items()
            }
            words = ("run", "inference", "--provider", "scripted", "--script", str(path), *options)
            with (
                running(environment, *words) as inference,
                running(environment, "run", "functions", "--module", "frameledger_services.demo.tools"),
            ):
                answered = FullPipeline(
                    pipeline.settings.model_copy(update=also), environment, path, inference
                )
                answered.until("SELECT count(*) = 2 FROM live_workers()")
                yield answered


@contextmanager
def running(environment: Mapping[str, str], *words: str) -> Iterator[Service]:
    service = Service(environment, *words)
    try:
        yield service
    finally:
        service.kill()
