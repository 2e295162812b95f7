"""How the suite measures the costs of its modules, and in which order xdist runs them."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from tests import costs
from tests.costs import Account, Cost

ROOT = Path(__file__).resolve().parents[2]
SPENT = 0.1
"""Seconds of a processor's time."""
SPEND = f"import time\nwhile time.process_time() < {SPENT}: pass"


TWO_MODULES = f"""
import json, subprocess, sys, time
from tests.costs import Account

def spend():
    until = time.process_time() + {SPENT}
    while time.process_time() < until:
        pass

account = Account()
account.begin("a")
spend()
account.begin("b")
subprocess.run([sys.executable, "-c", {SPEND!r}], check=True)
account.begin("b")
account.begin("a")
spend()
account.settle()
print(json.dumps(account.as_lists()))
"""


def test_a_module_has_cost_what_its_tests_took_and_what_they_started():
    """In a process of its own: the servers of this one spend what they like meanwhile."""
    ran = subprocess.run(
        [sys.executable, "-c", TWO_MODULES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    costs_of = {module: Cost(*seconds) for module, seconds in json.loads(ran.stdout).items()}
    # The system counts in hundredths.
    assert costs_of["a"].own > 2 * SPENT - 0.05
    assert costs_of["a"].started == 0
    assert costs_of["b"].started > SPENT - 0.05
    assert costs_of["a"].clock >= costs_of["a"].own - 0.05


def test_what_still_runs_has_cost_something_too():
    before = Cost.now()
    with subprocess.Popen(
        [sys.executable, "-c", f"{SPEND}\nprint(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        cost = Cost.now().since(before)
        process.communicate(b"\n")
    assert cost.started > SPENT - 0.05
    assert cost.processor == cost.own + cost.started


def test_the_costs_of_other_processes_are_added_up():
    account = Account()
    account.add_lists({"a": [1.0, 2.0, 3.0]})
    account.add_lists({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
    assert account.as_lists() == {"a": [2.0, 4.0, 6.0], "b": [4.0, 5.0, 6.0]}


def test_what_was_measured_takes_the_place_of_what_was_known_and_the_longest_come_first(tmp_path):
    file = tmp_path / "costs.tsv"
    costs.keep({"a": Cost(clock=20.0), "b": Cost(clock=30.0), "c": Cost(clock=40.0)}, file)
    costs.keep({"b": Cost(clock=90.4), "c": Cost(clock=0.1)}, file)
    assert file.read_text(encoding="utf-8") == "b\t90\na\t20\n"
    assert costs.kept(file) == {"b": 90.0, "a": 20.0}
    assert costs.kept(tmp_path / "none") == {}


def test_the_modules_of_which_something_is_known_are_there():
    assert [module for module in costs.kept() if not (costs.KEPT.parents[1] / module).is_file()] == []


def test_under_xdist_the_longest_begin_first_and_the_order_in_a_module_stays(monkeypatch):
    longest, second, *_ = costs.kept()
    ids = ["tests/unit/test_a.py::one", f"{second}::one", f"{longest}::one", f"{longest}::two"]
    items = [SimpleNamespace(nodeid=one) for one in ids]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    costs.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ids
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    costs.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == [ids[2], ids[3], ids[1], ids[0]]
