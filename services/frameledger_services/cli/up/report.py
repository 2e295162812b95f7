"""Output of `frameledger status`: the recorded processes and their actual states, as JSON or as a table."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import escape
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.up.render import COLOURS
from frameledger_services.embedded.record import Phase, Process, Record, State, find_process, start_time

ALIVE = {State.STARTING, State.RUNNING, State.STOPPING}
WELL = {State.RUNNING, State.EXTERNAL, State.DONE}


class ProcessReport(BaseModel):
    """A process in the JSON of `frameledger status`. Fields are added, never renamed."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int | None
    address: str | None
    metrics: str | None
    """URL of its `/metrics`; `/livez` and `/readyz` are at the same port."""

    state: State
    uptime_seconds: float | None
    restarts: int
    word: str


class Report(BaseModel):
    """The JSON of `frameledger status`."""

    model_config = ConfigDict(frozen=True)

    data_dir: str
    running: bool
    """Whether every process is in its expected state."""

    supervisor: int | None
    """The pid of `up`, or null if it is not running."""

    problem: str
    processes: tuple[ProcessReport, ...]


def report(directory: Path, record: Record | None, now: float) -> Report:
    """Returns the recorded processes with the state of those that actually run. `now` is Unix time."""
    if record is None:
        return Report(data_dir=str(directory), running=False, supervisor=None, problem="", processes=())
    supervisor = find_process(record)
    processes = tuple(_process_report(process, now) for process in record.processes)
    well = supervisor is not None and record.phase is Phase.READY
    return Report(
        data_dir=str(directory),
        running=well and all(process.state in WELL for process in processes),
        supervisor=supervisor.pid if supervisor is not None else None,
        problem=record.problem,
        processes=processes,
    )


def status_page(report: Report) -> RenderableType:
    """Returns the report as a table."""
    if not report.processes:
        return Text(f"Nothing is running in {report.data_dir}. Start it with: frameledger up")
    table = Table(box=None, pad_edge=False)
    rows = [_row(process) for process in report.processes]
    for number, heading in enumerate(("name", "pid", "address", "state", "uptime")):
        justify: JustifyMethod = "right" if heading in ("pid", "uptime") else "left"
        # Addresses are for copying, so nothing is truncated.
        widest = max(len(line) for row in rows for line in row[number].splitlines() or [""])
        table.add_column(heading, justify=justify, no_wrap=True, min_width=widest)
    table.add_column("", overflow="fold")
    for process, (name, pid, address, state, *rest) in zip(report.processes, rows, strict=True):
        table.add_row(name, pid, address, Text(state, COLOURS.get(process.state, "")), *rest)
    if report.supervisor is None:
        problem = (
            escape.lines(report.problem)
            or "`up` is no longer running here; `frameledger down` stops what it left running."
        )
        return Group(table, Text(problem, "red"))
    return table


def _row(process: ProcessReport) -> list[str]:
    return [
        process.name,
        str(process.pid or ""),
        "\n".join(one for one in (process.address, process.metrics) if one),
        process.state,
        "" if process.uptime_seconds is None else _duration(process.uptime_seconds),
        escape.one_line(process.word)
        or (f"restarted {plural(process.restarts, 'time')}" if process.restarts else ""),
    ]


def _process_report(process: Process, now: float) -> ProcessReport:
    living = find_process(process)
    state = State.DEAD if living is None and process.state in ALIVE else process.state
    return ProcessReport(
        name=process.name,
        pid=process.pid if living is not None else None,
        address=process.address,
        metrics=process.metrics,
        state=state,
        # Not of the recorded time: the clock may have been set since.
        uptime_seconds=None if living is None else round(max(0.0, now - start_time(living.pid)), 1),
        restarts=process.restarts,
        word=process.word,
    )


def _duration(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
