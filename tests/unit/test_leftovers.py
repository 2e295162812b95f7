"""Leftovers of an aborted run are killed, and nothing else."""

import os
import subprocess
import sys

import psutil
import pytest
from tests.bounds import IN_PROCESS
from tests.leftovers import kill_all_of

from frameledger_services.embedded import postgres_remains

FOREVER = (sys.executable, "-c", "import signal; signal.pause()")


def test_a_program_that_was_given_a_path_of_the_run_is_killed_and_another_is_not(tmp_path):
    folder, other = tmp_path / "run-1", tmp_path / "run-10"
    left = subprocess.Popen((*FOREVER, f"--data-dir={folder}/gw0/data"))
    of_another_run = subprocess.Popen((*FOREVER, f"--data-dir={other}/gw0/data"))
    try:
        assert kill_all_of(folder) == [left.pid]
        assert left.wait(IN_PROCESS) == -9
        assert of_another_run.poll() is None
    finally:
        for process in (left, of_another_run):
            process.kill()
            process.wait()


@pytest.mark.regression("journey 99")
def test_a_process_that_ended_before_it_is_killed_is_one_that_is_gone(tmp_path, monkeypatch):
    """Those of a killed PostgreSQL notice its end by themselves, at any moment."""
    pid_file = tmp_path / "postmaster.pid"
    with subprocess.Popen(FOREVER) as child:
        ended = psutil.Process(child.pid)
        child.kill()
    monkeypatch.setattr(postgres_remains, "working_in", lambda *_: [ended])
    pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
    postgres_remains.sweep(tmp_path)
    assert not pid_file.exists()
