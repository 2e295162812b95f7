"""A PostgreSQL primary with an asynchronous streaming standby, both of the embedded package, and a failover.

The standby can be kept from receiving more. What is committed from then on is lost when it is promoted, as it is when a
primary dies before it has sent its last commits.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import make_conninfo
from tests.bounds import ON_SERVERS
from tests.support.polling import pause

from frameledger_services.embedded import ports, postgres, postgres_user
from frameledger_services.embedded.directory import make
from frameledger_services.embedded.postgres import PostgresServer
from frameledger_services.embedded.running import start, stop, wait_until_ready

SETTINGS = {"fsync": "off", "wal_level": "replica", "max_wal_senders": "5", "hot_standby": "on"}
PASSWORDS = "postgres.pgpass"


class Pair:
    """The two servers. `address` names both, and connects to the one that accepts writes."""

    def __init__(self, directory: Path) -> None:
        self._processes: dict[str, tuple[PostgresServer, subprocess.Popen[bytes]]] = {}
        self.primary = postgres.prepare(directory / "primary", ports.choose(0), settings=SETTINGS)
        try:
            self._start("primary", self.primary)
            self.standby = _copied(self.primary, directory / "primary", directory / "standby")
            self._start("standby", self.standby)
        except BaseException:
            self.stop()
            raise
        hosts = ",".join(str(one.program.address) for one in (self.primary, self.standby))
        self.address = (
            f"postgresql://{postgres.USER}@{hosts}/{postgres.DATABASE}?sslmode=disable"
            f"&passfile={quote(str(directory / 'primary' / PASSWORDS))}&target_session_attrs=read-write"
        )

    def until_the_standby_has(self, question: str, *parameters: Any) -> None:
        """Wait until a query returns true on the standby too."""
        until = time.monotonic() + ON_SERVERS
        while not self._answer(question, parameters):
            assert time.monotonic() < until, question
            pause()

    def withhold(self) -> None:
        """Let the standby receive nothing from now on."""
        with psycopg.connect(self.standby.dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
        self.until_the_standby_has("SELECT count(*) = 0 FROM pg_stat_wal_receiver")

    def fail_over(self) -> None:
        """Kill the primary and promote the standby with what it has received."""
        _, process = self._processes.pop("primary")
        process.kill()
        process.wait()
        with psycopg.connect(self.standby.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        self.until_the_standby_has("SELECT NOT pg_is_in_recovery()")

    def stop(self) -> None:
        for server, process in self._processes.values():
            stop(server.program, process)

    def _start(self, name: str, server: PostgresServer) -> None:
        process = start(server.program)
        self._processes[name] = server, process
        wait_until_ready(server.program, process)

    def _answer(self, question: str, parameters: Any) -> Any:
        with psycopg.connect(self.standby.dsn, autocommit=True) as connection:
            row = connection.execute(question, parameters).fetchone()
            return row is not None and row[0]


def _copied(primary: PostgresServer, of: Path, directory: Path) -> PostgresServer:
    """Returns the program of a standby that is copied from the running primary, and follows it once it is started."""
    make(directory)
    place = postgres_user.find_place(postgres.installation(18), directory.resolve() / "postgres")
    # If it runs as a system user, it can neither create the folder nor read the password file.
    password = (of / PASSWORDS).read_text(encoding="ascii").splitlines()[0].rpartition(":")[2]
    address = make_conninfo(primary.dsn, password=password)
    copying = replace(
        primary.program,
        argv=(
            *(str(place.binaries / "pg_basebackup"), "--pgdata", str(place.data), "--dbname", address),
            *("--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream"),
        ),
    )
    place.data.mkdir(mode=0o700, parents=True)
    place.give(place.data)
    copied = subprocess.run(
        copying.command(), cwd=place.data.parent, timeout=ON_SERVERS, capture_output=True, check=False
    )
    assert copied.returncode == 0, copied.stderr.decode()
    shutil.copy(of / PASSWORDS, directory / PASSWORDS)
    return postgres.prepare(directory, ports.choose(0), settings=SETTINGS)


@contextmanager
def pair(directory: Path) -> Iterator[Pair]:
    """Yields a primary and its standby."""
    made = Pair(directory)
    try:
        yield made
    finally:
        made.stop()
