"""How `doctor` reports answers of servers, and missing answers."""

import ast
import asyncio
import re
import socket
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from unittest import mock

import psycopg
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.cli.doctor import checks, partitions, processes, servers, topics
from frameledger_services.cli.top import command as top
from frameledger_services.cli.top import stages
from frameledger_services.embedded import directory, record
from frameledger_services.event_log.topics import PartitionState, TopicDescription
from frameledger_services.settings import Settings
from frameledger_services.store.partition_progress import PartitionProgress
from frameledger_services.store.server import Server
from frameledger_services.telemetry.health import AWAY

QUIET = Server(
    is_read_only=False,
    is_standby=False,
    sees_all=True,
    asynchronous=0,
    synchronous=1,
    waiting=0,
    waiting_seconds=0.0,
    oldest_seconds=1.0,
    oldest="psql (pid 7)",
)
READ = [PartitionProgress(number, 5, 0, 0.0, "here/1", True) for number in range(2)]


def topic(*states, **config):
    return TopicDescription("llm.frames", len(states), 3, None, config, dict(enumerate(states)))


def whole(number):
    return [PartitionState(1, 3, 3)] * number


def test_a_server_in_order_is_nothing_to_speak_of():
    assert list(servers.of(QUIET)) == []


@pytest.mark.regression("trial C6", "fault 16")
@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"is_read_only": True, "is_standby": True}, "fail", "This database is a standby"),
        ({"is_read_only": True}, "fail", "set to read only"),
        (
            {"waiting": 3, "waiting_seconds": 12.0},
            "fail",
            "3 commits wait for a standby, the longest for 12 s",
        ),
        ({"asynchronous": 2}, "warn", "2 standbys are asynchronous"),
        ({"sees_all": False}, "ok", "are unknown"),
        ({"oldest_seconds": 3_700.0}, "warn", "A transaction of psql (pid 7) has been open for 3,700 s"),
    ],
)
def test_what_a_server_says_is_told(change, state, said):
    (finding,) = servers.of(replace(QUIET, **change))
    assert finding.state == state
    assert said in finding.found


@pytest.mark.regression("journey 51")
@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("FATAL:  sorry, too many clients already", r"^Raise its max_connections"),
        ('FATAL:  too many connections for role "worker"', r"^Raise its max_connections"),
        ("FATAL:  remaining connection slots are reserved for roles", r"^Raise its max_connections"),
        ('FATAL:  password authentication failed for user "worker"', r"^The server runs"),
        ("Connection refused", r"^Start it, or set FRAMELEDGER_DATABASE_URL"),
    ],
)
def test_a_database_that_refuses_a_session_with_a_reason_is_not_to_be_started(tmp_path, said, remedy):
    settings = Settings(data_dir=tmp_path, database_url=SecretStr("postgresql://db-1/frameledger"))
    error = psycopg.OperationalError(f'connection to server at "db-1" failed: {said}')
    assert re.search(remedy, servers.connect_to_database(settings, error))


@pytest.mark.regression("journey 132")
@pytest.mark.parametrize(
    ("error", "state", "remedy"),
    [
        (
            psycopg.OperationalError('FATAL:  password authentication failed for user "worker"'),
            "external",
            "The",
        ),
        (psycopg.OperationalError("Connection refused"), "external", "Start it"),
        (psycopg.OperationalError("Connection refused"), "running", "`frameledger up`"),
        (
            psycopg.OperationalError("FATAL:  the database system is starting up"),
            "running",
            "`frameledger up`",
        ),
        (psycopg.errors.AdminShutdown("terminating connection"), "running", "`frameledger up`"),
        (
            psycopg.errors.QueryCanceled("canceling statement due to statement timeout"),
            "running",
            "The server runs",
        ),
    ],
)
def test_up_starts_again_only_the_servers_that_it_started(tmp_path, error, state, remedy):
    settings = Settings(data_dir=tmp_path, database_url=SecretStr("postgresql://db-1/frameledger"))
    with directory.claimed(tmp_path):
        server = record.Process(name="postgres", state=record.State(state))
        up = record.Record(pid=1, started=0.0, phase=record.Phase.READY, processes=(server,))
        record.write_record(tmp_path, up)
        assert servers.connect_to_database(settings, error).startswith(remedy)


@pytest.mark.regression("journey 133")
def test_what_set_a_database_to_read_only_may_be_a_full_disk():
    (finding,) = servers.of(replace(QUIET, is_read_only=True))
    assert finding.remedy.startswith("Check its disk")
    (finding,) = servers.of(replace(QUIET, is_read_only=True, is_standby=True))
    assert finding.remedy.startswith("Use the address of the primary")


@pytest.mark.regression("trial C6")
def test_partitions_below_their_copies_are_told():
    some_away = topic(PartitionState(1, 3, 3), PartitionState(2, 3, 2), **{"min.insync.replicas": "2"})
    (finding,) = topics.copies(some_away)
    assert (finding.state, "partition 1 of llm.frames" in finding.found) == ("warn", True)
    too_many_away = topic(PartitionState(1, 3, 1), PartitionState(None, 3, 0), **{"min.insync.replicas": "2"})
    (finding,) = topics.copies(too_many_away)
    assert finding.state == "fail"
    assert "partitions 0, 1" in finding.found
    assert list(topics.copies(topic(*whole(2)))) == []


@pytest.mark.regression("trial C6")
def test_that_nobody_reads_is_said_with_what_could_not_be_asked():
    said = partitions.owners("llm.frames", [], topic(*whole(2)), pooled=False).found
    assert said == "No projector has ever read llm.frames."
    for away in (None, topic(PartitionState(None, 3, 0), PartitionState(1, 3, 3))):
        assert "may be waiting" in partitions.owners("llm.frames", [], away, pooled=False).found
    unknown = partitions.owners("llm.frames", READ, None, pooled=False)
    assert unknown.state == "ok"
    assert "according to the tables" in unknown.found


@pytest.mark.regression("trial C6")
def test_sessions_behind_a_pooler_are_no_proof_of_projectors():
    finding = partitions.owners("llm.frames", READ, topic(*whole(2)), pooled=True)
    assert finding.state == "warn"
    assert "a pooler keeps the sessions of stopped projectors" in finding.found
    assert partitions.owners("llm.frames", READ, topic(*whole(2)), pooled=False).state == "ok"


@pytest.mark.regression("fault 269")
def test_newest_records_that_a_quota_keeps_back_are_not_waited_for(monkeypatch):
    async def kept_back(*_):
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(partitions, "last_records", kept_back)
    monkeypatch.setattr(partitions, "SAMPLE_SECONDS", 0.0)
    finding = asyncio.run(partitions.partitioners(Settings(), topic(*whole(2))))
    assert (finding.check, finding.state) == ("forwarding", "warn")
    assert "a quota limits this client" in finding.remedy


def findings_of_the_page() -> set[str]:
    page = Path(__file__).resolve().parents[2] / "infra" / "operations.md"
    return set(re.findall(r"^\| `([^`]+)` \|", page.read_text(encoding="utf-8"), re.M))


def findings_of_the_code() -> set[str]:
    """The first argument of each `Finding(...)`."""
    found = set()
    for file in Path(checks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id == "Finding" and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


def test_the_page_says_of_each_finding_what_it_means_and_what_to_do():
    assert findings_of_the_page() == findings_of_the_code()


@pytest.mark.regression("journey 105")
def test_services_of_this_machine_are_asked_without_the_proxy_of_the_environment(monkeypatch):
    class Service(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"checks": {"log": "ok"}}')

        def log_message(self, *_):
            pass

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            assert processes._ask(address) == {"log": "ok"}
            assert stages._fetched(address) == '{"checks": {"log": "ok"}}'
        finally:
            server.shutdown()


@pytest.mark.regression("fault 277")
def test_an_address_of_another_protocol_is_one_that_does_not_answer():
    """As that of an SSH server, which `top --metrics` was given by mistake."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            for _ in range(2):
                other, _ = server.accept()
                with other:
                    other.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                    other.recv(1024)

        Thread(target=greet, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert processes._ask(address) == {"process": AWAY}
        assert stages._fetched(address) is None


@pytest.mark.regression("fault 275")
@pytest.mark.parametrize(("options", "code"), [(["--once"], 130), ([], 0)], ids=["--once", "until Ctrl-C"])
def test_ctrl_c_before_top_has_shown_what_it_shows_once_is_no_success(monkeypatch, options, code):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    monkeypatch.setattr(top._Watch, "show", mock.Mock(side_effect=KeyboardInterrupt))
    assert CliRunner().invoke(application(), ["top", *options]).exit_code == code


@pytest.mark.regression("fault 278")
@pytest.mark.parametrize("page", ["<!doctype html><title>Frameledger</title>", '{"error": "Not found."}'])
def test_a_page_that_has_no_metrics_is_not_of_a_projector(page):
    """As that of the gateway, which `top --metrics` was given by mistake."""
    assert stages.parsed([page]) is None
