"""The broker of a test run: one for all processes of xdist, which the main process starts while the others collect
(`tests.shared_broker`), or one for a process that runs alone.

No test may stop or freeze it: such a test uses a broker of its own, or a `tcp_proxy` to this one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.bounds import PROGRAM
from tests.support import java_archive
from tests.support.formatted_broker import formatted
from tests.support.polling import pause

from frameledger_services.embedded import kafka

HOUR_MS = "3600000"
ADDRESS_FILE = "broker"
"""The key in xdist's `workerinput` of the file to which the main process writes the address of the broker."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker."""

    bootstrap_servers: str

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])


@contextmanager
def running(directory: Path, config: pytest.Config) -> Iterator[Broker]:
    """Yields the embedded Kafka. Its jars come from the user's cache; the very first run downloads them."""
    # Kafka's default intervals for heartbeats, longer than the product's, because no test kills this broker; no records
    # that only say that there is nothing new, which are half of the cost of an idle broker; and no flush of hundreds of
    # partitions each second, because nothing has to survive the run.
    rarely = {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "metadata.max.idle.interval.ms": "0",
        "log.flush.scheduler.interval.ms": HOUR_MS,
        "replica.high.watermark.checkpoint.interval.ms": HOUR_MS,
    }
    with java_archive.made(config), kafka.running(formatted(directory), settings=rarely) as server:
        yield Broker(server.bootstrap_servers)


def of_this_run(config: pytest.Config) -> Broker | None:
    """Returns the broker that the main process of this run has started, once it is ready, or None in a process that
    runs alone. Raises `AssertionError` with the reason if it did not start."""
    if (path := getattr(config, "workerinput", {}).get(ADDRESS_FILE)) is None:
        return None
    file, until = Path(path), time.monotonic() + PROGRAM
    while not file.exists():
        assert time.monotonic() < until, "the broker of this run does not start"
        pause()
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    assert "failed" not in found, f"the broker of this run did not start\n{found['failed']}"
    return Broker(found["bootstrap_servers"])


def write_address(file: Path, said: dict[str, str]) -> None:
    """Write the address of the broker, or the reason why it did not start, for the other processes."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(said), encoding="utf-8")
    unfinished.rename(file)
