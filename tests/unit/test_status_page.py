"""What `frameledger status` prints is there to be copied: no address is cut, in a file or in a terminal."""

import io

import pytest
from rich.console import Console

from frameledger_services.cli.terminal.output import WIDTH_OF_A_FILE
from frameledger_services.cli.up.report import ProcessReport, Report, status_page
from frameledger_services.embedded.record import State

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


@pytest.mark.parametrize("width", [80, WIDTH_OF_A_FILE])
def test_no_address_of_a_process_is_cut(width):
    processes = (
        process("postgresql", "127.0.0.1:35432", None),
        process("projector", None, METRICS, "waits for PostgreSQL, which recovers from a crash"),
        process("gateway", PAGE, METRICS),
    )
    printed = io.StringIO()
    here = Report(data_dir=".", running=True, supervisor=1, problem="", processes=processes)
    Console(file=printed, width=width).print(status_page(here))
    said = printed.getvalue()
    assert "…" not in said
    assert said.count(METRICS) == 2
    assert PAGE in said
