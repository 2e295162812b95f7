"""The class archive of the embedded broker: recorded by the first start, created after the second, used by the
third."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.bounds import ON_SERVERS
from tests.support import java_archive
from tests.support.polling import pause
from tests.support.processes import children_with

from frameledger_services.embedded import class_archive, java, kafka, ports
from frameledger_services.embedded.program import Program
from frameledger_services.embedded.running import running, start


@pytest.fixture(autouse=True)
def _java_is_told_nothing(monkeypatch):
    """The tests use their own archive for brokers, and Java accepts only one."""
    monkeypatch.delenv(java_archive.OPTIONS, raising=False)


MAKES = """
import signal, sys
open(sys.argv[1], "w").write("half")
match sys.argv[2:]:
    case ["waits"]: signal.pause()
    case ["fails"]: sys.exit(1)
"""


def prepare(folder):
    software = replace(java.packaged(), archive=folder / "cache.jsa")
    return kafka.prepare(folder, ports.choose(0), software=software, is_reused=True)


def until_it_writes(file):
    end = time.monotonic() + ON_SERVERS
    while not (file.exists() and file.stat().st_size):
        assert time.monotonic() < end
        pause()


def check_that_java_starts(server):
    """Start Java with the broker's options. It rejects invalid ones before it loads a class of the broker."""
    options = server.program.argv[: server.program.argv.index("-cp")]
    subprocess.run([*options, "-version"], check=True, timeout=ON_SERVERS, cwd=server.program.directory)


@pytest.mark.long
def test_a_broker_that_stops_in_order_leaves_what_makes_the_archive_and_the_next_one_begins_with_it(tmp_path):
    process = start(prepare(tmp_path).program)
    try:
        until_it_writes(tmp_path / "kafka" / class_archive.LIST)
    finally:
        process.kill()
        process.wait(ON_SERVERS)
    # Killed, it did not write the complete list, so the next start begins to learn again.
    learning = prepare(tmp_path)
    assert learning.archive is None
    with running(learning.program):
        pass
    assert not (tmp_path / "cache.jsa").exists()

    making = prepare(tmp_path)
    asyncio.run(class_archive.make(*making.archive))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("cache")] == ["cache.jsa"]
    begun = prepare(tmp_path)
    assert begun.archive is None
    with running(begun.program) as process:
        mapped = {one.path for one in psutil.Process(process.pid).memory_maps()}
    assert str(tmp_path / "cache.jsa") in mapped

    # A file that is no archive, like that of another Java, is not used, and nothing else changes.
    (tmp_path / "cache.jsa").write_bytes(b"no archive")
    unused = prepare(tmp_path)
    assert f"-XX:SharedArchiveFile={tmp_path / 'cache.jsa'}" in unused.program.argv
    check_that_java_starts(unused)


@pytest.mark.long
def test_where_the_environment_says_where_classes_are_from_we_say_nothing(tmp_path, monkeypatch):
    assert java.packaged().archive is not None
    for said in ("-XX:AOTCache=theirs.aot", "-Xshare:off", "-Xmx1g -XX:SharedArchiveFile=theirs.jsa"):
        monkeypatch.setenv(java_archive.OPTIONS, said)
        assert java.packaged().archive is None
    check_that_java_starts(kafka.prepare(tmp_path, ports.choose(0), software=java.packaged(), is_reused=True))


def test_another_java_or_another_jar_has_an_archive_of_its_own(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    for name, text in (("release", "25"), ("lib/modules", "m"), ("a.jar", "a")):
        (tmp_path / name).write_text(text, encoding="ascii")
    jar = tmp_path / "a.jar"

    def place():
        return class_archive.place(tmp_path, tmp_path / "bin" / "java", [jar])

    first = place()
    assert place() == first
    (tmp_path / "release").write_text("26", encoding="ascii")
    second = place()
    jar.write_text("ab", encoding="ascii")
    assert len({first, second, place()}) == 3


def test_one_that_is_not_finished_is_never_in_its_place_and_its_maker_ends_with_who_waits_for_it(tmp_path):
    archive = tmp_path / "cache.jsa"
    (tmp_path / class_archive.LIST).write_bytes(class_archive.COMPLETE)

    async def cancelled():
        making = asyncio.create_task(class_archive.make(maker(tmp_path, archive, "waits"), tmp_path, archive))
        unfinished = class_archive.unfinished(archive)
        async with asyncio.timeout(ON_SERVERS):
            while not unfinished.exists():
                await asyncio.to_thread(pause)
        [process] = children_with(psutil.Process(), str(unfinished))
        making.cancel()
        with suppress(asyncio.CancelledError):
            await making
        return process

    process = asyncio.run(cancelled())
    assert not process.is_running()
    # The list is kept, so the archive is created after the next start.
    assert sorted(path.name for path in tmp_path.iterdir()) == [class_archive.LIST, "log"]


def test_one_that_cannot_be_made_is_learned_anew_and_the_oldest_are_forgotten(tmp_path):
    archive = tmp_path / "cache.jsa"
    (tmp_path / class_archive.LIST).write_bytes(class_archive.COMPLETE)
    asyncio.run(class_archive.make(maker(tmp_path, archive, "fails"), tmp_path, archive))
    assert [path.name for path in tmp_path.iterdir()] == ["log"]

    for number in range(class_archive.KEPT + 1):
        archive = tmp_path / f"{number}.jsa"
        asyncio.run(class_archive.make(maker(tmp_path, archive), tmp_path, archive))
    assert len(list(tmp_path.glob("*.jsa"))) == class_archive.KEPT
    assert not (tmp_path / "0.jsa").exists()


def test_one_that_others_can_write_is_not_used(tmp_path):
    archive = tmp_path / "cache.jsa"
    archive.write_bytes(b"classes")
    archive.chmod(0o644)
    assert class_archive.options_of_start(archive) != ()
    archive.chmod(0o664)
    assert class_archive.options_of_start(archive) == ()


def test_what_a_killed_maker_left_goes_with_the_next_one(tmp_path):
    (tmp_path / class_archive.LIST).write_bytes(class_archive.COMPLETE)
    abandoned = tmp_path / f"other.1234{class_archive.UNFINISHED}"
    beside = tmp_path / f"other.5678{class_archive.UNFINISHED}"
    for file in (abandoned, beside):
        file.touch()
    long_ago = beside.stat().st_mtime - 2 * class_archive.ABANDONED_SECONDS
    os.utime(abandoned, (long_ago, long_ago))
    archive = tmp_path / "cache.jsa"
    asyncio.run(class_archive.make(maker(tmp_path, archive), tmp_path, archive))
    assert archive.exists()
    assert beside.exists()
    assert not abandoned.exists()


def maker(folder: Path, archive: Path, *words: str) -> Program:
    argv = (sys.executable, "-c", MAKES, str(class_archive.unfinished(archive)), *words)
    return Program("maker", argv, folder, folder / "log", launch_options=("--nice=19",))
