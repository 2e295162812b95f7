"""Copies of a process that go on as another command, where that is safe, and those that are started where it is not."""

import subprocess
import sys

import pytest
from tests.bounds import PROGRAM

from frameledger_services.cli.up import imports
from frameledger_services.embedded.launch import COULD_NOT_START

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

FORKS = """
import os, sys, threading
from frameledger_services.become import Become
from frameledger_services.embedded import fork_server

log, directory, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(threads):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
safe = fork_server.can_fork()
print(safe, flush=True)
pid = os.fork()
if pid == 0:
    words = [sys.executable, "-m", "frameledger_services", "--version"]
    try:
        fork_server.become(words, directory, log, {"SAID": "so"}, parent=os.getppid(), anew=not safe)
    except Become as other:
        print("copied", *other.words, os.environ["SAID"], os.getcwd(), os.getsid(0) == os.getpid())
        sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def run(program, *words):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PROGRAM,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_copy_of_a_process_with_one_thread_leaves_what_it_was_doing_and_says_what_it_is_now(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")
    assert run(FORKS, log, tmp_path, 0) == ["True", "7"]
    assert log.read_text("utf-8") == f"before\ncopied --version so {tmp_path} True\n"


def test_of_a_process_with_more_threads_there_is_no_copy_and_the_command_is_started(tmp_path):
    log = tmp_path / "log"
    assert run(FORKS, log, tmp_path, 1) == ["False", "0"]
    assert log.read_text("utf-8").startswith("frameledger ")


def test_one_that_cannot_go_on_says_why_and_is_no_second_copy_of_its_parent(tmp_path):
    log = tmp_path / "log"
    assert run(FORKS, log, tmp_path / "not there", 0) == ["True", str(COULD_NOT_START)]
    assert log.read_text("utf-8").startswith(f"cannot start {sys.executable}: ")


IMPORTS = """
import sys, os
from importlib import import_module
before = set(os.listdir("/proc/self/fd"))
for name in sys.argv[1:]:
    import_module(name)
from frameledger_services.embedded import fork_server
print(fork_server.has_one_thread(), sorted(set(os.listdir("/proc/self/fd")) - before))
"""


def test_what_is_imported_before_services_are_forked_starts_no_thread_and_opens_nothing():
    """So nothing but memory is shared, and no lock is copied whose holder is not."""
    assert run(IMPORTS, *imports.of(imports.OF_EACH)) == ["True []"]
