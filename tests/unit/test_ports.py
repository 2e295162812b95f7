"""Which port an embedded server gets, and the error if the requested one is in use."""

import os
import random
import socket
import subprocess
import sys

import psutil
import pytest
from tests.bounds import IN_PROCESS

from frameledger_services.embedded import ports
from frameledger_services.embedded.command_programs import CommandPrograms
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.settings import Settings

SETTING = "FRAMELEDGER_POSTGRES_PORT"


@pytest.fixture
def held():
    """A port that this process listens on."""
    with socket.socket() as listening:
        listening.bind((ports.HOST, 0))
        listening.listen()
        yield listening.getsockname()[1]


def refused(port, monkeypatch, tmp_path, first, last):
    outgoing = tmp_path / "ip_local_port_range"
    outgoing.write_text(f"{first}\t{last}\n")
    monkeypatch.setattr(ports, "OUTGOING", outgoing)
    with pytest.raises(EmbeddedError) as refusal:
        ports.choose(port, explicit=True, setting=SETTING)
    return refusal.value


@pytest.mark.parametrize("name", ["gateway", "kafka", "postgres"])
def test_what_has_another_port_than_the_usual_one_keeps_it_once_that_is_free(
    name, tmp_path, held, monkeypatch
):
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(ports, "_reserved", set())
    chosen = CommandPrograms(Settings(), tmp_path, {}).port(name, None, held)
    assert chosen != held
    with socket.socket() as usual:
        usual.bind((ports.HOST, 0))
        free = usual.getsockname()[1]
    assert CommandPrograms(Settings(), tmp_path, {}).port(name, None, free) == chosen


@pytest.mark.regression("journey 80")
def test_a_service_that_is_new_in_a_directory_leaves_the_others_their_ports(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(ports, "_reserved", set())
    monkeypatch.setattr(ports, "is_free", lambda _: True)
    monkeypatch.setattr(ports, "_lock", lambda _: True)
    first = CommandPrograms(Settings(), tmp_path, {})
    without = [first.port(name, None, 18091 + place) for place, name in enumerate(["timekeeper", "gateway"])]
    again = CommandPrograms(Settings(), tmp_path, {})
    names = ["timekeeper", "inference", "gateway"]
    with_inference = [again.port(name, None, 18091 + place) for place, name in enumerate(names)]
    assert (without, with_inference) == ([18091, 18092], [18091, 18093, 18092])


@pytest.mark.regression("journey 80")
def test_two_services_that_were_given_one_port_get_two(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(ports, "_reserved", set())
    monkeypatch.setattr(ports, "is_free", lambda _: True)
    monkeypatch.setattr(ports, "_lock", lambda _: True)
    for name in ("inference", "gateway"):
        (tmp_path / "run" / f"{name}.port").write_text("18093", encoding="ascii")
    programs = CommandPrograms(Settings(), tmp_path, {})
    assert [programs.port(name, None, 18093) for name in ("inference", "gateway")] == [18094, 18093]


@pytest.mark.regression("journey 21")
def test_a_port_that_is_in_use_is_refused_with_who_has_it(held, monkeypatch, tmp_path):
    refusal = refused(held, monkeypatch, tmp_path, 1, 2)
    assert f"Port {held} on 127.0.0.1 is in use by process {os.getpid()} (" in refusal.problem
    assert "outgoing" not in refusal.problem
    assert f"Set {SETTING} to another port" in refusal.remedy


def test_of_a_server_with_many_connections_only_who_listens_is_named(monkeypatch, tmp_path):
    with socket.create_server((ports.HOST, 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection((ports.HOST, port)) as _, listening.accept()[0] as accepted:
            # As PostgreSQL does it, where each connection has a process.
            serving = subprocess.Popen(
                [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[accepted.fileno()]
            )
        try:
            assert serving.pid in {one.pid for one in psutil.net_connections("tcp") if one.laddr.port == port}
            refusal = refused(port, monkeypatch, tmp_path, 1, 2)
        finally:
            serving.communicate(b"\n", timeout=IN_PROCESS)
    assert f"is in use by process {os.getpid()} (" in refusal.problem
    assert str(serving.pid) not in refusal.problem


@pytest.mark.regression("journey 21")
def test_a_port_of_outgoing_connections_is_said_to_be_one(held, monkeypatch, tmp_path):
    refusal = refused(held, monkeypatch, tmp_path, held - 1, held + 1)
    assert f"uses the ports {held - 1} to {held + 1} for outgoing" in refusal.problem
    assert f"Set {SETTING} to a port below {held - 1}" in refusal.remedy


def test_a_port_that_nobody_asked_for_is_replaced_by_a_free_one(held):
    chosen = ports.choose(held)
    assert chosen != held
    assert ports.is_free(chosen)


def test_of_two_processes_that_choose_the_same_free_port_one_gets_it():
    # One that the kernel usually gives to no connection, and that no server of the suite is given.
    free = next(port for port in random.sample(range(20_000, 32_000), 1_000) if ports.is_free(port))
    choosing = f"""
from frameledger_services.embedded import ports
print(ports.choose({free}), flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", choosing], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == f"{free}\n"
        assert ports.is_free(free), "its server has not begun yet"
        assert ports.choose(free) != free
        other.communicate("\n")
    assert ports.choose(free) == free


def test_any_port_is_none_that_the_kernel_gives_to_others_and_none_that_was_chosen_before(
    monkeypatch, tmp_path
):
    outgoing = tmp_path / "ip_local_port_range"
    first, last = ports.DYNAMIC[0], ports.DYNAMIC[-3]
    outgoing.write_text(f"{first}\t{last}\n")
    monkeypatch.setattr(ports, "OUTGOING", outgoing)
    chosen = [ports.choose(0) for _ in range(3)]
    assert len(set(chosen)) == 3
    # What is left is soon used up by this machine's other processes; then it is any other.
    assert {port for port in chosen if port > last} <= {last + 1, last + 2}


def test_of_two_processes_that_want_any_port_each_has_its_own(monkeypatch, tmp_path):
    """There is one port left that the kernel gives nobody."""
    outgoing = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "OUTGOING", outgoing)
    outgoing.write_text("32768\t60999\n")
    left = ports.choose(0)
    outgoing.write_text(f"{ports.DYNAMIC[0]}\t{left - 1}\n")
    choosing = f"""
from pathlib import Path
from frameledger_services.embedded import ports
ports.OUTGOING, ports.DYNAMIC = Path({str(outgoing)!r}), range({left}, {left + 1})
print(ports.choose(0), flush=True)
"""
    other = subprocess.run([sys.executable, "-c", choosing], capture_output=True, text=True, check=True)
    assert int(other.stdout) != left
    assert ports.is_free(left), "its server has not begun yet"


def test_whose_process_listens_on_a_port_is_known_by_its_arguments(held):
    assert ports.is_held_by(held, psutil.Process().cmdline()[-1])
    assert not ports.is_held_by(held, "/another/server.properties")
