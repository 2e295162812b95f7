"""How `doctor` reports the readiness of services."""

import asyncio

import pytest
from tests.support.data_directories import running_in

from frameledger_services.cli.doctor import processes
from frameledger_services.embedded.record import Phase, Process, Record, State, write_record
from frameledger_services.settings import Settings
from frameledger_services.telemetry import ops_server
from frameledger_services.telemetry.health import OK, Health
from frameledger_services.telemetry.metrics_registry import ProcessMetrics


def findings(directory, *running):
    record = Record(pid=1, started=0.0, phase=Phase.READY, processes=running)
    with running_in(directory):
        write_record(directory, record)
        return asyncio.run(processes.findings(Settings(data_dir=directory)))


def test_without_an_up_there_is_nothing_to_say(tmp_path):
    assert asyncio.run(processes.findings(Settings(data_dir=tmp_path))) == []


@pytest.mark.regression("journey 90")
def test_the_ports_that_a_killed_up_left_are_not_asked(tmp_path):
    projector = Process(name="projector", state=State.RUNNING, metrics="http://127.0.0.1:1/metrics")
    assert findings(tmp_path, projector) != []
    assert asyncio.run(processes.findings(Settings(data_dir=tmp_path))) == []


def test_all_that_are_well_are_one_line():
    [finding] = processes.of({"projector": {"loop": OK}, "gateway": {"loop": OK, "log": OK}})
    assert (finding.state, finding.found) == ("ok", "Projector, gateway are ready.")


def test_each_that_is_not_well_says_what_it_misses_in_the_words_of_its_readyz(tmp_path):
    # No loop runs behind this one, and behind the other's address is nothing at all.
    with ops_server.serving("127.0.0.1", 0, ProcessMetrics(), Health({})) as port:
        still = f"http://127.0.0.1:{port}/metrics"
        found = findings(
            tmp_path,
            Process(name="projector", state=State.RUNNING, metrics=still),
            Process(name="gateway", state=State.RUNNING, metrics="http://127.0.0.1:1/metrics"),
            Process(name="timekeeper", state=State.STARTING, metrics=still),
            Process(name="kafka", state=State.RUNNING),
        )
    assert [(one.state, one.found) for one in found] == [
        ("fail", "The projector is not ready: loop: It does not run."),
        ("fail", "The gateway is not ready: process: It does not answer."),
    ]
    assert "log of the gateway" in found[1].remedy


@pytest.mark.regression("journey 81")
def test_a_service_that_up_starts_again_and_again_does_not_run(tmp_path):
    word = "ended with exit code 1; restarting in 16.0 s (its port is in use)"
    [finding] = findings(
        tmp_path,
        Process(name="inference", state=State.BACKING_OFF, metrics="http://127.0.0.1:1/metrics", word=word),
        Process(name="kafka", state=State.BACKING_OFF, word=word),
    )
    assert (finding.state, finding.found) == ("fail", f"The inference is not running: it {word}.")
    assert "frameledger logs inference" in finding.remedy
