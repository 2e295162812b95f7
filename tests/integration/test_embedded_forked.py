"""Services that `frameledger up` forks: they look, end and are restarted like newly started processes."""

import os
import signal
import sys

import psutil
import pytest
from tests.bounds import PROGRAM
from tests.integration.test_embedded_up import Folder, assert_ready, by_name, servers_of_this_run, working
from tests.support.processes import children_with

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

SERVICES = ("projector", "timekeeper", "gateway")


@pytest.fixture
def folder(kafka, database, tmp_path):
    with working(tmp_path, **servers_of_this_run(kafka, database)) as made:
        up = made.run("up", "--detach")
        assert up.returncode == 0, up.stdout + up.stderr
        yield made


def test_services_are_forked_from_one_process_and_look_as_if_they_had_been_started(folder):
    supervisor = psutil.Process(folder.status()["supervisor"])
    assert supervisor.cmdline()[1:4] == ["-m", "frameledger_services", "up"]
    server = fork_server(folder)
    for name in SERVICES:
        process = folder.processes()[name]
        service = psutil.Process(process["pid"])
        assert service.parent() == server
        assert service.cmdline() == [sys.executable, "-m", "frameledger_services", "run", name]
        assert service.name() == os.path.basename(sys.executable)
        environment = service.environ()
        assert process["metrics"].endswith(f":{environment['FRAMELEDGER_METRICS_PORT']}/metrics")
        assert environment["FRAMELEDGER_TOPIC_PREFIX"] == folder.environment["FRAMELEDGER_TOPIC_PREFIX"]
        assert service.cwd() == str(folder.path)
        assert os.getsid(service.pid) == service.pid
        log = folder.path / ".frameledger" / "logs" / f"{name}.log"
        assert {os.readlink(f"/proc/{service.pid}/fd/{number}") for number in (1, 2)} == {str(log)}
        assert os.readlink(f"/proc/{service.pid}/fd/0") == os.devnull
        # The log begins with the service's own first line, not with output from before the fork.
        assert log.read_text(encoding="utf-8").startswith('{"event":"ops.started"')


@pytest.mark.long
def test_a_service_that_ends_is_forked_again_and_it_is_said_how_it_ended(folder):
    server = fork_server(folder)
    first = folder.processes()["projector"]["pid"]
    restarted(folder, "projector", signal.SIGKILL)
    assert psutil.Process(folder.processes()["projector"]["pid"]).parent() == server
    # Its pid is free again, so it was reaped.
    assert not psutil.pid_exists(first)
    restarted(folder, "timekeeper", signal.SIGTERM)
    said = (folder.path / ".frameledger" / "logs" / "up.log").read_text(encoding="utf-8")
    assert "projector: backing off, ended with signal 9; restarting in 0.5 s" in said
    assert "timekeeper: backing off, ended with exit code 0; restarting in 0.5 s" in said


@pytest.mark.long
def test_without_the_fork_server_services_stop_in_order_and_are_started_by_the_supervisor(folder):
    supervisor = psutil.Process(folder.status()["supervisor"])
    before = folder.processes()
    fork_server(folder).kill()
    folder.until(lambda status: status["running"] and all(one["restarts"] for one in services(status)))
    for name, process in folder.processes().items():
        if name in SERVICES:
            assert psutil.Process(process["pid"]).parent() == supervisor
    # Each ended before it was restarted. It is reaped by the machine's first process, maybe a moment later.
    folder.until(lambda _: not any(psutil.pid_exists(before[name]["pid"]) for name in SERVICES))
    # They received SIGTERM and stopped; they were not killed.
    assert "gateway.stopped" in (folder.path / ".frameledger" / "logs" / "gateway.log").read_text("utf-8")
    assert folder.run("down").returncode == 0
    assert folder.living() == []


@pytest.mark.long
def test_a_supervisor_that_is_killed_takes_the_fork_server_and_the_services_along(folder):
    status = folder.status()
    server = fork_server(folder)
    # Even a stopped one.
    server.suspend()
    left = [server, *(psutil.Process(one["pid"]) for one in services(status))]
    psutil.Process(status["supervisor"]).kill()
    _, alive = psutil.wait_procs(left, timeout=PROGRAM)
    assert [one for one in alive if is_running(one)] == []


def services(status):
    return [one for one in status["processes"] if one["name"] in SERVICES]


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def fork_server(folder: Folder) -> psutil.Process:
    [found] = children_with(psutil.Process(folder.status()["supervisor"]), "(fork server)")
    return found


def restarted(folder, name, number):
    """Send a service a signal, and wait until its replacement is ready."""
    before = folder.processes()[name]["pid"]
    os.kill(before, number)
    folder.until(lambda status: status["running"] and by_name(status)[name]["pid"] != before)
    assert_ready(folder.processes()[name])
