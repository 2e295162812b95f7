"""`frameledger up`, `down`, `status` and `config` as a person runs them, in folders of their own."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest import mock

import psutil
import psycopg
import pytest
from tests.bounds import PROGRAM
from tests.support.polling import pause
from tests.support.shared_memory import segments_of
from tests.support.tiers import long
from tests.support.topic_prefixes import topic_prefix
from typer.testing import CliRunner

from frameledger_services import data_directory
from frameledger_services.cli import application
from frameledger_services.embedded import directory, kafka, ports
from frameledger_services.embedded.program import EmbeddedError

NAME = "FRAMELEDGER_PROJECTOR_INSTANCE_ID"


def environment(pid: int) -> dict[str, str]:
    """Returns a process's environment. It is empty for a moment while the process executes the program (exec)."""
    deadline = time.monotonic() + PROGRAM
    while not (found := psutil.Process(pid).environ()):
        assert time.monotonic() < deadline, pid
        pause()
    return found


class Folder:
    """A folder in which somebody works: the command line in it, as processes."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.path = path
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FRAMELEDGER_")}
        self.environment = inherited | environment

    def run(self, *words: str, within: str = ".") -> subprocess.CompletedProcess[str]:
        options = self.options(capture_output=True, cwd=self.path / within)
        return subprocess.run(self.command(*words), timeout=PROGRAM, **options)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words), **self.options(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )

    def command(self, *words):
        return [sys.executable, "-m", "frameledger_services", *words]

    def options(self, **options):
        return {"cwd": self.path, "env": self.environment, "text": True, **options}

    def asked(self, *words, within="."):
        """Returns the result of a command that only reads. It runs in this process, which has imported it already: a
        process of its own takes half a second of CPU time, and these commands are repeated."""
        with chdir(self.path / within), mock.patch.dict(os.environ, self.environment, clear=True):
            return CliRunner().invoke(application(), words)

    def status(self):
        return json.loads(self.asked("status", "--json").stdout)

    def processes(self):
        return by_name(self.status())

    def until(self, wanted):
        """Returns the status as soon as `wanted` is true of it."""
        deadline = time.monotonic() + PROGRAM
        while not wanted(status := self.status()):
            assert time.monotonic() < deadline, status
            pause()
        return status

    def database(self) -> psycopg.Connection:
        config = json.loads(self.asked("config", "--json").stdout)
        return psycopg.connect(config["FRAMELEDGER_DATABASE_URL"]["value"], autocommit=True)

    def living(self) -> list[psutil.Process]:
        """Every process that works somewhere below this folder."""
        below = []
        for process in psutil.process_iter():
            try:
                if Path(process.cwd()).is_relative_to(self.path):
                    below.append(process)
            except psutil.Error:
                continue
        return below


def by_name(status):
    """Returns the processes of one status by name. Two statuses would show two moments."""
    return {process["name"]: process for process in status["processes"]}


@contextmanager
def working(path, **environment):
    """Yields a working folder, and stops everything that runs in it at the end of the block."""
    made = Folder(path, **environment)
    try:
        yield made
    finally:
        made.run("down")
    assert made.living() == []


def answered(address):
    """Returns the response of this address, without a retry."""
    with urllib.request.urlopen(address) as answer:
        return answer.read()


def assert_ready(process):
    """Assert that a process is ready now, without waiting for it."""
    assert json.loads(answered(process["metrics"].replace("/metrics", "/readyz")))["ready"]
    assert 'frameledger_ready{check="database"} 1.0' in answered(process["metrics"]).decode()


def servers_of_this_run(kafka, database):
    """Settings by which `up` has only services to start."""
    return {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "FRAMELEDGER_DATABASE_URL": database,
        "FRAMELEDGER_TOPIC_PREFIX": topic_prefix(),
        "FRAMELEDGER_TOPIC_PARTITIONS": "4",
    }


@pytest.fixture
def folder(tmp_path):
    with working(tmp_path) as made:
        yield made


@pytest.fixture
def ports_of_its_own(folder):
    """Reserve ports that no other process takes while a killed server restarts. The usual ports may be taken by another
    `up` of this machine whenever they are free."""
    stored = folder.path / ".frameledger" / "run"
    stored.mkdir(parents=True)
    for name in ("postgres", "kafka"):
        (stored / f"{name}.port").write_text(str(ports.choose(0)))


@pytest.mark.usefixtures("ports_of_its_own")
def test_it_starts_says_where_is_found_survives_sigkill_of_everything_and_stops_without_a_trace(folder):
    up = folder.run("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    processes = folder.processes()
    assert folder.status()["running"]
    assert all(processes[name]["address"] in up.stdout for name in ("postgres", "kafka"))
    page = f"{processes['gateway']['address']}/"
    assert f"in a browser: {page}" in up.stdout
    assert b"<title>Frameledger</title>" in answered(page)
    for name in ("projector", "timekeeper", "gateway"):
        assert processes[name]["metrics"] in up.stdout
        assert_ready(processes[name])
    assert kafka.answers(*split(processes["kafka"]["address"]))

    config = json.loads(folder.asked("config", "--json").stdout)
    assert config["FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS"]["value"] == processes["kafka"]["address"]
    assert config["FRAMELEDGER_DATABASE_URL"]["source"] == "frameledger up"
    with folder.database() as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS number")

    again = folder.run("up")
    assert again.returncode == 1
    assert "is already running" in again.stderr
    assert "frameledger down" in again.stderr

    # Commands in a folder below use it; elsewhere, errors name it.
    (folder.path / "below").mkdir()
    below = folder.asked("config", "--json", within="below")
    assert json.loads(below.stdout)["FRAMELEDGER_DATABASE_URL"]["source"] == "frameledger up"
    elsewhere = folder.run("show", "a", within="..")
    assert (elsewhere.returncode, str(folder.path) in elsewhere.stderr) == (1, True), elsewhere.stderr

    pids = [folder.status()["supervisor"], *(process["pid"] for process in processes.values())]
    for pid in filter(None, pids):
        psutil.Process(pid).kill()
    folder.until(lambda status: status["supervisor"] is None)
    left = folder.asked("status")
    assert left.exit_code == 1
    assert "frameledger down" in left.stdout

    assert folder.run("up", "--detach").returncode == 0
    # The servers keep their ports. The gateway takes the usual one if no other `up` of this machine has it just now.
    again = folder.processes()
    assert again.keys() == processes.keys()
    for name in ("postgres", "kafka"):
        assert again[name]["address"] == processes[name]["address"]
    servers = [one["postgres"]["pid"] for one in (processes, again)]
    with folder.database() as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (1,)

    down = folder.run("down")
    assert (down.returncode, folder.living()) == (0, [])
    assert not segments_of(*servers)
    assert sorted(path.name for path in (folder.path / ".frameledger" / "run").iterdir()) == [
        "gateway.port",
        "gateway_metrics.port",
        "kafka.port",
        "lock",
        "name",
        "postgres.port",
        "projector_metrics.port",
        "timekeeper_metrics.port",
    ]
    assert folder.run("down").returncode == 0
    assert folder.asked("status").exit_code == 1


@pytest.mark.long
def test_in_the_foreground_it_says_what_it_restarts_and_ctrl_c_stops_it_beside_another_one(
    folder, tmp_path_factory
):
    """At the end the other one is killed: `down` ends what it leaves behind, even frozen processes."""
    with working(tmp_path_factory.mktemp("other")) as other:
        assert other.run("up", "--detach").returncode == 0
        up = folder.start("up")
        lines = iter(up.stdout.readline, "")
        assert any("Stop: Ctrl-C" in line for line in lines)
        here, there = folder.processes(), other.processes()
        assert len({found[name]["address"] for found in (here, there) for name in ("postgres", "kafka")}) == 4

        names = [environment(found["projector"]["pid"])[NAME] for found in (here, there)]
        assert len(set(names)) == 2
        for name in ("postgres", "projector"):
            psutil.Process(here[name]["pid"]).kill()
            folder.until(
                lambda status, name=name: (
                    status["running"] and by_name(status)[name]["pid"] != here[name]["pid"]
                )
            )
        assert folder.processes()["postgres"]["restarts"] == 1
        # The same name, so the group does not wait for the session timeout of its predecessor.
        assert environment(folder.processes()["projector"]["pid"])[NAME] == names[0]
        with folder.database() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)

        up.send_signal(signal.SIGINT)
        rest, _ = up.communicate(timeout=PROGRAM)
        assert up.returncode == 0
        assert folder.status()["processes"] == []
        assert "postgres: backing off, ended with signal 9; restarting in 0.5 s" in rest
        assert folder.living() == []

        status = other.status()
        assert status["running"]
        frozen = psutil.Process(there["kafka"]["pid"])
        frozen.suspend()
        psutil.Process(status["supervisor"]).kill()
        other.until(lambda status: status["supervisor"] is None)
        assert frozen.is_running()
        down = other.run("down")
        assert down.returncode == 0
        assert "kafka" in down.stdout
        # Where no process is a parent to orphans, a zombie stays.
        assert not frozen.is_running() or frozen.status() == psutil.STATUS_ZOMBIE
        assert other.living() == []


@pytest.mark.long
def test_servers_that_are_set_are_used_and_not_started(tmp_path, kafka, empty_database):
    folder = Folder(
        tmp_path,
        FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        FRAMELEDGER_DATABASE_URL=empty_database,
    )
    for words in (["up"], ["up", "--detach"]):
        up = folder.start(*words)
        assert any("Stop: " in line for line in iter(up.stdout.readline, ""))
        processes = folder.processes()
        servers = [processes[name] for name in ("kafka", "postgres")]
        assert [(server["state"], server["pid"]) for server in servers] == [("external", None)] * 2
        assert folder.status()["running"]
        assert folder.run("down").returncode == 0
        up.communicate(timeout=PROGRAM)
        assert up.returncode == 0
    assert folder.living() == []


def test_no_command_shows_a_password(tmp_path):
    folder = Folder(
        tmp_path,
        FRAMELEDGER_KAFKA_SASL_PASSWORD="hush",
        FRAMELEDGER_DATABASE_URL="postgresql://me:hush@db/x",
    )
    for words in (["config"], ["config", "--json"]):
        shown = folder.run(*words)
        assert shown.returncode == 0
        assert "user=me" in shown.stdout
        assert "hush" not in shown.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", [long("KAFKA"), "POSTGRES"])
def test_a_busy_port_that_was_asked_for_is_an_error_with_its_remedy(tmp_path, name):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        folder = Folder(tmp_path, **{f"FRAMELEDGER_{name}_PORT": str(port)})
        for words in (["up"], ["up", "--detach"]):
            up = folder.run(*words)
            assert up.returncode == 1
            assert f"Port {port} on 127.0.0.1 is in use" in up.stderr
            assert f"FRAMELEDGER_{name}_PORT" in up.stderr
    assert folder.living() == []


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("FRAMELEDGER_DATA_DIR", "a file", "cannot be created"),
        long("FRAMELEDGER_JAVA", "no java", "There is no Java at no java"),
        long("FRAMELEDGER_KAFKA_HOME", ".", "is not a Kafka installation"),
        ("FRAMELEDGER_KAFKA_PROT", "1", "Did you mean FRAMELEDGER_KAFKA_PORT?"),
    ],
)
def test_what_keeps_it_from_starting_is_said_with_exit_code_1(tmp_path, variable, value, problem):
    (tmp_path / "a file").write_bytes(b"")
    folder = Folder(tmp_path, **{variable: value})
    up = folder.run("up")
    assert (up.returncode, problem in up.stderr) == (1, True), up.stderr
    assert "Traceback" not in up.stderr
    assert folder.living() == []


def test_nobody_else_can_read_what_is_kept(tmp_path):
    with directory.claimed(tmp_path / "data"):
        pass
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir() if path.is_dir()
    }
    assert modes == {"run": 0o700, "logs": 0o700}
    assert (tmp_path / "data").stat().st_mode & 0o006 == 0


def test_a_directory_of_another_user_is_an_error_with_its_remedy(tmp_path, monkeypatch):
    with directory.claimed(tmp_path):
        assert directory.is_claimed(tmp_path)
    assert not directory.is_claimed(tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    # Root is allowed everything, so the refusal is simulated.
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(EmbeddedError, match="belongs to another user"):
        directory.is_claimed(tmp_path)
    with (
        pytest.raises(EmbeddedError, match="Permission denied") as caught,
        directory.claimed(tmp_path),
    ):
        pytest.fail("it is closed")
    assert "--data-dir" in caught.value.remedy


@pytest.mark.regression("journey 100")
def test_a_process_that_asks_whether_an_up_runs_is_taken_for_none(tmp_path, monkeypatch):
    """Every client and command checks the lock, and holds it for a moment."""
    with directory.claimed(tmp_path):
        pass
    asking = os.open(tmp_path / data_directory.RUN / data_directory.LOCK, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert not directory.is_claimed(tmp_path)
    assert not data_directory.is_running(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(asking))
    with directory.claimed(tmp_path):
        assert data_directory.is_running(tmp_path)


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path):
    with (
        pytest.raises(EmbeddedError, match="MB are free") as caught,
        directory.claimed(tmp_path, least_space=2**80),
    ):
        pytest.fail("a disk with that much space")
    assert "--data-dir" in caught.value.remedy


def split(address):
    host, _, port = address.partition(":")
    return host, int(port)
