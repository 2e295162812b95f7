"""Makes brokers of tests start in half the time: Java stores the loaded classes in a file, created once per checkout.

Java, its options and the jars are those of the product; the file is Java's own AOT cache. Without a matching file, Java
starts as usual. The file is created while the first tests that need a broker run, which takes three times as long as a
start, and is kept in pytest's cache (`.pytest_cache`). It is created from a broker that was used as tests use one,
which makes the requests of a test to a new broker a tenth faster than after a mere start.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.bounds import ON_SERVERS, PROGRAM

from frameledger_services.embedded import java, kafka, ports
from frameledger_services.embedded.jars import read_lock
from frameledger_services.embedded.running import running

OPTIONS = "JDK_JAVA_OPTIONS"
"""The variable with options for every Java that this process or its children start."""

ROUNDS, RECORDS = 10, 20
"""The use of the broker before it writes the file: the number of rounds, and of records in each."""

KEPT = 2
"""The number of files that are kept, because other branches may have another Java or other jars."""


def use(config: pytest.Config) -> None:
    """Let every broker of this run use the file once it exists."""
    if file := _place(config):
        # A Java that cannot use the file would log three lines about it.
        os.environ.setdefault(OPTIONS, f"-XX:AOTCache={file} -Xlog:disable")


@contextmanager
def made(config: pytest.Config) -> Iterator[None]:
    """Create the file during the block if it does not exist and no other process creates it."""
    file = _place(config)
    if file is None or file.exists():
        yield
        return
    # What clients log while topics are created helps to find out why there is no file.
    with file.with_suffix(".log").open("wb") as log:
        making = subprocess.Popen(
            [sys.executable, "-m", __name__, str(file)], cwd=config.rootpath, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        making.wait()


def _place(config: pytest.Config) -> Path | None:
    """Returns the path of the file for the packaged Java, these jars and these options. None without the packaged Java,
    because an older one does not know the option, and without pytest's cache."""
    packaged = java._packaged_java()
    if packaged is None or not packaged.exists() or not hasattr(config, "cache"):
        return None
    # Without the path of this Java: the environments of the bridges have the same Java, and use the same file.
    release = (packaged.parents[1] / "release").read_text(encoding="utf-8")
    jars = java.default_cache() / f"kafka-{read_lock().kafka}"
    made_of = f"{release} {jars} {kafka.JVM_OPTIONS} {Path(__file__).read_text()}"
    return config.cache.mkdir("java") / f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.aot"


def _make(file: Path) -> None:
    """Run a broker that writes the file when it stops."""
    unfinished = file.with_suffix(".unfinished")
    with TemporaryDirectory() as folder:
        # Before the command is built: with the product's own archive, which an earlier `up` may have left, Java fails.
        os.environ[OPTIONS] = f"-XX:AOTCacheOutput={unfinished} -Xlog:disable"
        server = kafka.prepare(Path(folder), ports.choose(0), software=java.packaged())
        # It writes the file once it has stopped.
        with running(replace(server.program, stop_within=PROGRAM)):
            asyncio.run(_used(server.bootstrap_servers))
    unfinished.rename(file)
    for old in sorted(file.parent.glob("*.aot"), key=lambda one: one.stat().st_mtime)[: -KEPT - 1]:
        old.unlink()


async def _used(bootstrap_servers: str) -> None:
    """Create topics, and write and read as the services do: in transactions, and in groups."""
    # Imported here because every process of a run imports this module, and only one process per checkout needs them.
    from frameledger_services.event_log import broker
    from frameledger_services.event_log.topics import TopicNames, topic_specs
    from frameledger_services.settings import Settings

    async with asyncio.timeout(ON_SERVERS):
        for number in range(ROUNDS):
            settings = Settings(
                kafka_bootstrap_servers=bootstrap_servers, topic_prefix=f"{number}.", topic_partitions=4
            )
            async with broker.connect(settings) as brokers:
                await brokers.create_missing(topic_specs(settings))
            await _written_and_read(bootstrap_servers, TopicNames(settings.topic_prefix).frames)


async def _written_and_read(bootstrap_servers: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=topic) as producer,
        producer.transaction(),
    ):
        for number in range(RECORDS):
            await producer.send_and_wait(topic, b"value", b"%d" % number)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        left = RECORDS
        while left:
            found = await consumer.getmany(timeout_ms=200)
            left -= sum(map(len, found.values()))
        await consumer.commit()


def main(file: Path) -> None:
    """Create the file, unless another process does."""
    with file.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not file.exists():
            os.environ.pop(OPTIONS, None)
            _make(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
