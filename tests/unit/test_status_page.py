"""The output of `frameledger status` can be copied: no address is truncated, in a file or in a terminal."""

import io
import os
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from frameledger_services.cli.terminal.output import WIDTH_OF_A_FILE, print_whole
from frameledger_services.cli.up.render import StartProgress
from frameledger_services.cli.up.report import ProcessReport, Report, report, status_page
from frameledger_services.embedded.directory import claimed
from frameledger_services.embedded.record import Phase, Process, Record, State
from frameledger_services.embedded.stack import _Stack
from frameledger_services.settings import Settings

METRICS = "http://127.0.0.1:18094/metrics"
PAGE = "http://127.0.0.1:18080"


def process(name, address, metrics, word=""):
    return ProcessReport(
        name=name,
        pid=1_234_567,
        address=address,
        metrics=metrics,
        state=State.BACKING_OFF,
        uptime_seconds=3 * 86_400.0 + 22 * 3_600.0,
        restarts=2,
        word=word,
    )


@pytest.mark.regression("journey 38")
@pytest.mark.parametrize("width", [40, 60, 80, WIDTH_OF_A_FILE])
def test_no_address_of_a_process_is_cut(width):
    processes = (
        process("postgresql", "127.0.0.1:35432", None),
        process("projector", None, METRICS, "waits for PostgreSQL, which recovers from a crash"),
        process("gateway", PAGE, METRICS),
    )
    printed = io.StringIO()
    here = Report(data_dir=".", running=True, supervisor=1, problem="", processes=processes)
    print_whole(Console(file=printed, width=width), status_page(here))
    said = printed.getvalue()
    assert said.count("1234567") == 3
    assert said.count("backing off") == 3
    assert said.count("3 d 22 h") == 3
    assert "…" not in said
    assert said.count(METRICS) == 2
    assert PAGE in said


@pytest.mark.regression("journey 95")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_an_up_is_the_one_that_wrote_the_record_also_after_the_clock_was_set(tmp_path, monkeypatch):
    with claimed(tmp_path, least_space=0) as claim:
        record = _Stack(Settings(data_dir=tmp_path), claim, lambda _: None)._record
    assert report(tmp_path, record, time.time()).supervisor == os.getpid()
    # The kernel tells when it was booted by the clock of now.
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted + 3_600)
    assert report(tmp_path, record, time.time() + 3_600).supervisor == os.getpid()
    # Of the process that has its pid after the machine was booted again.
    again = record.model_copy(update={"born": record.born.replace(record.born[0], "x")})
    assert report(tmp_path, again, time.time()).supervisor is None


@pytest.mark.regression("journey 38")
@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_a_narrow_terminal_says_of_a_start_is_whole(tmp_path, is_terminal):
    printed = io.StringIO()
    processes = (
        Process(name="projector", state=State.RUNNING, metrics=METRICS),
        Process(name="gateway", state=State.RUNNING, address=PAGE, metrics=METRICS),
    )
    console = Console(file=printed, width=30, force_terminal=is_terminal, color_system=None)
    with StartProgress(console, tmp_path) as progress:
        progress.show(Record(pid=1, started=0.0, phase=Phase.READY, processes=processes))
    said = printed.getvalue()
    assert "…" not in said
    assert said.count(METRICS) == 2
    assert f"{PAGE} " in said
    assert "Status: frameledger status." in said
