"""Output of `up`: a live table of the starting processes, and the addresses of all."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import escape
from frameledger_services.embedded.record import Phase, Process, Record, State
from frameledger_services.settings_sources import read_running

COLOURS = {
    State.RUNNING: "green",
    State.EXTERNAL: "green",
    State.DONE: "green",
    State.BACKING_OFF: "yellow",
    State.DEAD: "red",
}


def page_of(record: Record) -> str | None:
    """Returns the address of the web page, or None if no gateway is running."""
    gateways = (one.address for one in record.processes if one.name == "gateway" and one.address)
    return next((f"{address}/" for address in gateways), None)


class StartProgress:
    """Shows the progress of a start: on a terminal one live table, elsewhere a line for each change."""

    def __init__(self, console: Console, data_dir: Path, *, detached: bool = False) -> None:
        self.was_ready = False
        self._has_printed_addresses = False
        self._console = console
        self._data_dir = data_dir
        self._detached = detached
        self._before: dict[str, tuple[State, str]] = {}
        self._live = Live(console=console, transient=True, refresh_per_second=8)

    def __enter__(self) -> StartProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, record: Record) -> None:
        """Show what changed, and the addresses when everything is running for the first time."""
        if record.phase is Phase.READY and not self.was_ready:
            self.was_ready = True
            if self._live.is_started:
                self._live.update("")
                self._live.stop()
                self._before = {process.name: _step_of(process) for process in record.processes}
        if self._live.is_started and record.phase is Phase.STARTING:
            self._live.update(_progress_table(record.processes))
            return
        for process in record.processes:
            self._say(process)
        if record.phase is Phase.READY and not self._has_printed_addresses:
            self._has_printed_addresses = True
            _print_ready(self._console, record, self._data_dir, self._detached)

    def stopping(self) -> None:
        """Say that what was started is being stopped, which may take seconds."""
        self._live.stop()
        self._console.print("Stopping ...")

    def _say(self, process: Process) -> None:
        if self._before.get(process.name) != _step_of(process) and process.state is not State.WAITING:
            self._console.print(Text.assemble(process.name, ": ", process.state, _after(process.word)))
        self._before[process.name] = _step_of(process)


def _step_of(process: Process) -> tuple[State, str]:
    """Returns what gets a line when it changes: each step, but not each of the forty jars."""
    return process.state, process.word.partition(" ")[0]


def _progress_table(processes: tuple[Process, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for process in processes:
        table.add_row(
            process.name,
            _spinning(process.state),
            process.address or "",
            Text(escape.one_line(process.word), "dim"),
        )
    return table


def _spinning(state: State) -> RenderableType:
    # The spinner's step comes from the clock, so it turns although the table is rebuilt at each change.
    return (
        Spinner("dots", state) if state is State.STARTING else Text(f"  {state}", COLOURS.get(state, "dim"))
    )


def _print_ready(console: Console, record: Record, data_dir: Path, detached: bool) -> None:
    console.print(Text("Everything is running.", "bold green"))
    shown = [one for one in record.processes if one.address or one.metrics]
    name = max((len(one.name) for one in shown), default=0)
    address = max((len(_address(one)) for one in shown), default=0)
    # From here on no line is wrapped or cut: what it names is to be copied.
    for process in shown:
        more = escape.one_line(process.word) or _metrics(process)
        line = f"{process.name:<{name}}  {_address(process):<{address}}  {more}"
        console.print(line.rstrip(), soft_wrap=True)
    console.print()
    if (page := page_of(record)) is not None:
        console.print(f"Read and replay conversations in a browser: {page}", soft_wrap=True)
    if (database := read_running(data_dir).get("database_url")) is not None:
        console.print(f"psql '{database}'", soft_wrap=True)
    stop = "frameledger down" if detached else "Ctrl-C"
    where = f"Logs are in {data_dir / 'logs'}. Status: frameledger status. Stop: {stop}."
    console.print(where, soft_wrap=True)


def _address(process: Process) -> str:
    return process.address or process.metrics or ""


def _metrics(process: Process) -> str:
    """Returns the metrics URL of a process that also has another address."""
    return process.metrics if process.address and process.metrics else ""


def _after(word: str) -> str:
    return f", {escape.one_line(word)}" if word else ""
