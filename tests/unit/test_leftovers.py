"""What a broken-off run leaves behind is ended, and nothing else."""

import subprocess
import sys

from tests.bounds import IN_PROCESS
from tests.leftovers import kill_all_of

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
