"""Forked processes that become another command where that is safe, and newly started ones where it is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bounds import PROGRAM

from frameledger_services.cli.up import imports
from frameledger_services.embedded import fork_server, process_title
from frameledger_services.embedded.launch import COULD_NOT_START

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

FORKS = """
import os, sys, threading
from frameledger_services.forked_command import BecomeCommand
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
    except BecomeCommand as other:
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


OPEN = """
import os, sys
from frameledger_services.forked_command import BecomeCommand
from frameledger_services.embedded import fork_server

number = os.dup(os.open(sys.argv[2], os.O_RDWR))
os.set_inheritable(number, True)
if sys.argv[3] == "closed":
    for standard in (0, 1, 2):
        os.close(standard)
pid = os.fork()
if pid == 0:
    try:
        fork_server.become([sys.executable, "-m", "frameledger_services", "words"], "/", sys.argv[1], {})
    except BecomeCommand:
        kept = [one for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")]
        print(sorted(kept), os.read(0, 1))
        print("and what goes wrong", file=sys.stderr, flush=True)
        os.write(1, b"here\\n")
        sys.exit()
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("standard", ["open", "closed"])
def test_a_copy_keeps_no_file_of_who_called_it_and_writes_to_its_log_alone(tmp_path, standard):
    log, theirs = tmp_path / "log", tmp_path / "theirs"
    theirs.touch()
    run(OPEN, log, theirs, standard)
    told = log.read_text("utf-8")
    assert "here" in told
    if standard == "open":
        assert "['0', '1', '2'] b''" in told
        assert "and what goes wrong" in told
    assert theirs.read_bytes() == b""


def test_without_handles_of_processes_nothing_is_forked(monkeypatch):
    def refused(pid):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(fork_server, "has_one_thread", lambda: True)
    assert fork_server.can_fork()
    monkeypatch.setattr(os, "pidfd_open", refused)
    assert not fork_server.can_fork()


def test_where_proc_cannot_be_written_to_a_process_is_shown_as_before(monkeypatch):
    def refused(path, data):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refused)
    assert process_title.show_as(["frameledger"], {}) is False


LATE = """
import os, signal, sys
from pathlib import Path
from frameledger_services.embedded import forked, launch
from frameledger_services.embedded.program import Program

forked.ANSWERS_WITHIN = 0.2
with forked.forking([]) as server:
    os.kill(server._pid, signal.SIGSTOP)
    program = Program("late", (sys.executable, "-m", "frameledger_services", "--version"), Path("/"), Path(sys.argv[1]))
    print(server.fork(program), os.path.exists(f"/proc/{server._pid}"), server.fork(program))
print(Path(sys.argv[1]).exists())
"""


def test_a_fork_server_that_answers_too_late_is_ended_so_that_nothing_begins_twice(tmp_path):
    assert run(LATE, tmp_path / "log") == ["None False None", "False"]


IMPORTS = """
import sys, os
from importlib import import_module
from pathlib import Path

def opened():
    for name in os.listdir("/proc/self/fd"):
        try:
            yield name, os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing itself
            continue

before = set(opened())
for name in sys.argv[1:]:
    import_module(name)
from frameledger_services.embedded import fork_server
# A library that keeps its own file open, as newer releases of libffi do, only reads it.
libraries = Path("/proc/self/maps").read_text()
print(fork_server.has_one_thread(), [place for _, place in sorted(set(opened()) - before) if place not in libraries])
"""


def test_what_is_imported_before_services_are_forked_starts_no_thread_and_opens_nothing():
    """So nothing but memory is shared, and no lock is copied whose holder is not."""
    assert run(IMPORTS, *imports.of(imports.OF_EACH)) == ["True []"]
