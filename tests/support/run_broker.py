"""The Kafka of a run: one for all processes of xdist, which its first process has started while the others collect
(`tests.shared_broker`), or that of a process that runs alone.

Nobody may stop or freeze it: a test that needs that breaks a broker of its own, or the way to this one (`wire`).
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
from tests.support.formatted import formatted
from tests.support.polling import pause

from frameledger_services.embedded import kafka

HOUR_MS = "3600000"
TOLD = "broker"
"""The name under which xdist's processes are told the file in which the first one writes the address of the broker."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The Kafka of a run, as its tests see it."""

    bootstrap_servers: str

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])


@contextmanager
def running(directory: Path, config: pytest.Config) -> Iterator[Broker]:
    """The embedded Kafka, during the block. Its jars come from the user's cache; the very first run downloads them."""
    # As rarely as by default it tells itself that it lives: nobody kills this one. Nor does it write twice a second
    # that there is nothing new, which is half of what a broker costs while nobody uses it, nor look each second at
    # hundreds of partitions for what is not on a disk that it has only for as long as it lives.
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
    """The broker that the first process of this run has started, once it is ready; None in a process that runs alone.
    Raises `AssertionError` with what kept it from starting."""
    if (told := getattr(config, "workerinput", {}).get(TOLD)) is None:
        return None
    file, until = Path(told), time.monotonic() + PROGRAM
    while not file.exists():
        assert time.monotonic() < until, "the broker of this run does not start"
        pause()
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    assert "failed" not in found, f"the broker of this run did not start\n{found['failed']}"
    return Broker(found["bootstrap_servers"])


def tell(file: Path, said: dict[str, str]) -> None:
    """Tell the other processes the address of the broker, or why it did not start."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(said), encoding="utf-8")
    unfinished.rename(file)
