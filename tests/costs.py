"""Measures the cost of each test module, and runs the slowest modules first.

`pytest --costs` prints a table at the end: the elapsed time of each module, the processor time of the test's own
process, and that of all processes that it started, including servers except the shared broker. `--costs-kept` also
writes the seconds of the slowest modules to `costs.tsv`. Every run with xdist starts with these, because the other
cores would be idle while a slow module that was started last still runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import psutil
import pytest

KEPT = Path(__file__).with_name("costs.tsv")
LONG = 5.0
"""Seconds. Faster modules are not sorted; they run at the end and fill the gaps."""

SHOWN = 25


@dataclass(slots=True)
class Cost:
    """Seconds: elapsed time, processor time of this process, and that of its descendants."""

    clock: float = 0.0
    own: float = 0.0
    started: float = 0.0

    @classmethod
    def now(cls) -> Self:
        """Returns the cost of this process so far, without detached programs."""
        this = psutil.Process()
        mine = this.cpu_times()
        started = mine.children_user + mine.children_system
        for child in this.children(recursive=True):
            try:
                started += sum(child.cpu_times()[:4])
            except psutil.Error:
                continue
        return cls(perf_counter(), mine.user + mine.system, started)

    def since(self, before: Cost) -> Cost:
        return Cost(self.clock - before.clock, self.own - before.own, self.started - before.started)

    def add(self, other: Cost) -> None:
        self.clock += other.clock
        self.own += other.own
        self.started += other.started

    @property
    def processor(self) -> float:
        return self.own + self.started


@dataclass(slots=True)
class Account:
    """The costs of modules, each from its first test to the first test of the next module."""

    costs: dict[str, Cost] = field(default_factory=dict)
    _module: str = ""
    _since: Cost = field(default_factory=Cost.now)

    def begin(self, module: str) -> None:
        if module != self._module:
            self.settle()
            self._module = module

    def settle(self) -> None:
        now = Cost.now()
        if self._module:
            self.costs.setdefault(self._module, Cost()).add(now.since(self._since))
        self._since = now

    def as_lists(self) -> dict[str, list[float]]:
        """Returns the costs in a form that xdist can send to the main process."""
        return {module: [cost.clock, cost.own, cost.started] for module, cost in self.costs.items()}

    def add_lists(self, costs: dict[str, list[float]]) -> None:
        for module, seconds in costs.items():
            self.costs.setdefault(module, Cost()).add(Cost(*seconds))


_account = pytest.StashKey[Account]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="Print the cost of each module of this run.")
    parser.addoption(
        "--costs-kept",
        action="store_true",
        help=f"Also write the costs to {KEPT.name}, which orders later runs.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.costs or config.option.costs_kept:
        config.stash[_account] = Account()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by the costs of their modules. Without xdist they keep the order of the files."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        seconds = kept()
        items.sort(key=lambda item: -seconds.get(module_of(item), 0.0))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if (account := item.config.stash.get(_account, None)) is not None:
        account.begin(module_of(item))
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if (account := session.config.stash.get(_account, None)) is None:
        return
    account.settle()
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["costs"] = account.as_lists()
    elif session.config.option.costs_kept:
        keep(account.costs)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Called when a process of xdist has ended."""
    if "costs" in getattr(node, "workeroutput", {}):
        node.config.stash[_account].add_lists(node.workeroutput["costs"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if (account := config.stash.get(_account, None)) is None:
        return
    terminalreporter.section("what the modules cost, in seconds")
    terminalreporter.line("processor   its own  what it started   clock")
    dearest = sorted(account.costs.items(), key=lambda one: -one[1].processor)
    for module, cost in dearest[:SHOWN]:
        terminalreporter.line(
            f"{cost.processor:9.1f} {cost.own:9.1f} {cost.started:16.1f} {cost.clock:7.1f}  {module}"
        )
    whole = Cost()
    for cost in account.costs.values():
        whole.add(cost)
    terminalreporter.line(
        f"{whole.processor:9.1f} {whole.own:9.1f} {whole.started:16.1f} {whole.clock:7.1f}  all {len(dearest)}"
    )


def module_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def kept(file: Path = KEPT) -> dict[str, float]:
    """Returns the seconds of the slow modules from the last measurement."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {module: float(seconds) for module, seconds in (line.split("\t") for line in lines)}


def keep(costs: dict[str, Cost], file: Path = KEPT) -> None:
    """Replace the stored costs of these modules by the measured ones, the slowest first."""
    seconds = kept(file) | {module: cost.clock for module, cost in costs.items()}
    long = sorted(((took, module) for module, took in seconds.items() if took >= LONG), reverse=True)
    file.write_text("".join(f"{module}\t{took:.0f}\n" for took, module in long), encoding="utf-8")
