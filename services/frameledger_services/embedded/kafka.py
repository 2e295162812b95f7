"""The embedded Apache Kafka: one node in KRaft mode, formatted once in a data directory, started as a `Program`.

It runs on a packaged Java with verified jars (`jars`). `kafka/data` has the log, `kafka/tmp` is emptied at each start,
and `kafka/*.properties` are rewritten at each start.
"""

import base64
import os
import re
import shutil
import socket
import struct
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from frameledger_services.embedded import class_archive, java, ports
from frameledger_services.embedded.broker_settings import LOG4J, broker_settings
from frameledger_services.embedded.directory import make
from frameledger_services.embedded.program import EmbeddedError, Program, failed
from frameledger_services.embedded.running import running as running_program

PREFERRED_PORT = 19092
PARTITIONS = 8
"""Default number of partitions of a topic on the embedded broker."""
# Chosen for a quick start on one machine; nothing is left in shared folders after a SIGKILL.
JVM_OPTIONS = (
    *("-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"),
    *("-XX:-UsePerfData", "-Djava.awt.headless=true"),
)
ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""Java reads and writes names of files in the encoding of the locale. In ASCII, that of `LC_ALL=C`, it finds no folder
with other letters in its path."""


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """A formatted broker: its program, and its address when it runs."""

    program: Program
    bootstrap_servers: str
    version: str
    archive: tuple[Program, Path, Path] | None = None
    """Arguments for `class_archive.make`, if the archive should be created now."""


def prepare(
    directory: Path,
    port: int,
    *,
    software: java.Software,
    settings: Mapping[str, str] | None = None,
    is_reused: bool = False,
) -> KafkaServer:
    """Format `directory`/kafka if necessary, and return the broker to start on `port`.

    Takes a second the first time. An interrupted format leaves nothing behind. `settings` are additional broker
    settings. With `is_reused` the broker will be started here again, so a class archive is worth creating. Raises
    `EmbeddedError` for data of a newer or another major version, a full disk, or a Java that does not run.
    """
    directory = directory.resolve()
    home, log = directory / "kafka", directory / "logs" / "kafka.log"
    make(directory)
    for folder in (home, home / "tmp"):
        folder.mkdir(mode=0o700, exist_ok=True)
    (home / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
    if (home / "data").exists():
        _check_version(home, software.kafka)
    else:
        _format(home, software, log)

    properties = {
        **broker_settings(Path("data"), port, controller_port=ports.choose(0)),
        **(settings or {}),
    }
    _write_properties(home / "server.properties", properties)
    address = f"{ports.HOST}:{port}"
    options, archive = _class_archive(home, software, log) if is_reused else ((), None)
    program = Program(
        name="kafka",
        argv=_java(home, software, "kafka.Kafka", str(home / "server.properties"), options=options),
        directory=home,
        log=log,
        environment=ENVIRONMENT,
        address=address,
        is_ready=lambda: (
            answers(ports.HOST, port) and ports.is_held_by(port, str(home / "server.properties"))
        ),
        sweep=lambda: _sweep(home / "tmp"),
        owns_directory=True,
        opens_by_path=True,
    )
    return KafkaServer(program, address, software.kafka, archive)


@contextmanager
def running(
    directory: Path,
    *,
    port: int = 0,
    software: Callable[[], java.Software] = java.packaged,
    settings: Mapping[str, str] | None = None,
) -> Iterator[KafkaServer]:
    """Run a broker during the block, on a free port by default. The data is kept."""
    server = prepare(directory, ports.choose(port), software=software(), settings=settings)
    with running_program(server.program):
        yield server


def answers(host: str, port: int) -> bool:
    """Returns whether a broker answers an ApiVersions request at this address. Takes up to two seconds."""
    # ApiVersions version 0, which every broker answers.
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)


def _format(home: Path, software: java.Software, log: Path) -> None:
    """Format a temporary folder and rename it when it is complete, so that there is never a partial log."""
    unfinished = home / "data.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    _write_properties(
        home / "format.properties", broker_settings(Path(unfinished.name), 9092, controller_port=9093)
    )
    arguments = ("format", "--cluster-id", cluster_id(), "--config", str(home / "format.properties"))
    command = _java(home, software, "kafka.tools.StorageTool", *arguments, "--standalone")
    try:
        with log.open("ab") as output:
            began = output.tell()
            result = subprocess.run(
                command,
                cwd=home,
                env={**os.environ, **ENVIRONMENT},
                stdout=output,
                stderr=output,
                timeout=120,
                check=False,
            )
        if result.returncode != 0:
            raise failed("Kafka", f"could not create its files in {home}", log, began)
        (home / "VERSION").write_text(software.kafka + "\n", encoding="ascii")
        unfinished.rename(home / "data")
    finally:
        (home / "format.properties").unlink(missing_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)


def _class_archive(
    home: Path, software: java.Software, log: Path
) -> tuple[tuple[str, ...], tuple[Program, Path, Path] | None]:
    """Returns Java options to write the list of classes if there is none yet, and the arguments to create the archive
    from that list if there is one. Neither if the archive exists or cannot be created."""
    if software.archive is None or not class_archive.is_wanted(software.archive):
        return (), None
    if not class_archive.is_learned(home):
        return class_archive.options_to_learn(), None
    maker = class_archive.maker(_java(home, software), home, software.archive, log)
    return (), (maker, home, software.archive)


def cluster_id(draw: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """Returns a new cluster id of 22 characters. It does not start with `-`, which would look like an option."""
    while (name := base64.urlsafe_b64encode(draw().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return name


def _sweep(temporary: Path) -> None:
    """Delete native libraries, which the broker unpacks there and leaves behind when it is killed."""
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()


def _check_version(home: Path, version: str) -> None:
    try:
        made_by = (home / "VERSION").read_text(encoding="ascii").strip()
    except FileNotFoundError as error:
        raise EmbeddedError(
            f"{home} is not a complete data folder of Kafka: the file VERSION is missing.",
            "Restore that folder from a backup, delete the data directory, or use another one (--data-dir).",
        ) from error
    made, runs = _minor(made_by), _minor(version)
    # Kafka starts on data that an older minor version formatted. On data of a newer one it ends with a stack trace,
    # because it does not know that version of the metadata.
    if made > runs or made[:1] != runs[:1]:
        raise EmbeddedError(
            f"{home} was created by Kafka {made_by}; this Frameledger runs {version}.",
            f"Set FRAMELEDGER_KAFKA_HOME to an installed Kafka {'.'.join(map(str, made))}, or choose a new data "
            "directory (--data-dir).",
        )


def _minor(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:2]]


def _java(home: Path, software: java.Software, *main: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the Java command with our options and the broker's classes. `main` is the class and its arguments."""
    properties = (
        f"-Djava.io.tmpdir={home / 'tmp'}",
        # As a URI: a path is taken for a list at its commas, and its `${...}` are replaced.
        f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}",
    )
    classpath = os.pathsep.join(map(str, software.jars))
    return (
        str(software.java),
        *JVM_OPTIONS,
        *software.options,
        *(class_archive.options_of_start(software.archive) if software.archive and main else ()),
        *properties,
        *options,
        "-cp",
        classpath,
        *main,
    )


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    # Names are plain. A value is written as `java.util.Properties.load` reads it, in ASCII.
    lines = (f"{name}={_escaped(value)}\n" for name, value in properties.items())
    path.write_text("".join(lines), encoding="ascii")


def _escaped(value: str) -> str:
    escaped = ""
    for (unit,) in struct.iter_unpack(">H", value.encode("utf-16-be")):
        if unit == ord("\\"):
            escaped += "\\\\"
        elif ord(" ") < unit < 127 or (unit == ord(" ") and escaped):
            escaped += chr(unit)
        else:
            # Also a blank at the start, which would be skipped.
            escaped += f"\\u{unit:04x}"
    return escaped
