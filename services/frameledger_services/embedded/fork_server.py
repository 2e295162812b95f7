"""The fork server: a process that has imported the modules of our services and is forked for each of them.

Importing them takes each service between a third of a second and a second, and they need mostly the same modules. So
`up` and the demo fork this process while they have a single thread. It imports the modules once, while the servers
start, and then waits for requests of the supervisor (`forked.py`).

**Shared with a forked service**: memory pages after the imports, until they are written to: code, classes, compiled
patterns. Nothing that is open, connected or configured, because this process runs no service and no event loop. The
objects are frozen, so that the garbage collector of a service does not write to them.

**Not shared**: session, working directory, output and environment, which its `Program` defines; signal handlers; and
random numbers: Python's generator is seeded again in each fork, and others come from the kernel. `ps` and `/proc` show
the service's own command line and environment. A restarted service has the code of the time when `up` started: restart
`up` after an upgrade.

No lock can be held by a thread that was not copied, because there is no other thread. If an import starts one, services
are forked and then replaced by a new process (exec). The fork server ends with the supervisor, and its services then
receive SIGTERM, like processes that the supervisor starts itself. If only the fork server is killed, its services also
receive SIGTERM, and the supervisor restarts them itself. Linux only: elsewhere system libraries do not survive a fork.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from frameledger_services.embedded.launch import COULD_NOT_START, die_with
from frameledger_services.embedded.process_title import show_as
from frameledger_services.forked_command import BecomeCommand

MAX_MESSAGE_BYTES = 128 * 1024
"""Maximum bytes of a message: a request has the arguments, directory and environment of a program."""

OWN_WORDS = 3
"""Words of our command lines before the arguments: the interpreter, `-m`, and the package."""


def can_fork() -> bool:
    """Returns whether this process can be forked safely: on Linux, with a single thread, and with support for process
    file descriptors, which are needed to wait for the child."""
    if sys.platform != "linux" or not has_one_thread():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def flush() -> None:
    """Flush the output streams: otherwise each fork of this process would write the same text again."""
    for stream in (sys.stdout, sys.stderr):
        # None if this process was started without it.
        if stream is not None:
            stream.flush()


def has_one_thread() -> bool:
    """Returns whether this process has a single thread, also counting threads that Python did not start. False if the
    kernel does not tell."""
    try:
        return threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def serve(link: socket.socket, parent: int, modules: Sequence[str]) -> NoReturn:
    """Run the fork server, in a process that was just forked, until the other end of `link` closes.

    Raises `BecomeCommand` in each service that is forked; in this process itself it does not return.
    """
    _leave(os.devnull, keep=link.fileno())
    # Not SIGTERM, which a stopped process does not receive.
    die_with(parent, signal.SIGKILL)
    show_as([sys.executable, "-m", "frameledger_services", "(fork server)"], os.environ)
    for name in modules:
        # A module that cannot be imported here is imported by the service, which reports the error.
        with suppress(Exception):
            import_module(name)
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    this = os.getpid()
    while message := _heard(link):
        link.send(json.dumps(_answer(json.loads(message), this, children)).encode())
    os._exit(0)


def _heard(link: socket.socket) -> bytes:
    """Returns the next request, or nothing if the other end was closed."""
    try:
        return link.recv(MAX_MESSAGE_BYTES)
    except ConnectionError:
        return b""


def _answer(request: dict[str, Any], this: int, children: set[int]) -> dict[str, Any]:
    match request:
        case {"fork": program}:
            # Checked before the fork, because a fork has only the calling thread, but the locks of all threads.
            safe = has_one_thread()
            try:
                pid = os.fork()
            except OSError as error:
                return {"errno": error.errno, "error": error.strerror}
            if pid == 0:
                # Not `getppid()`: the fork server may have been killed since.
                become(**program, parent=this, anew=not safe)
            children.add(pid)
            return {"pid": pid}
        case {"reap": pid}:
            # The supervisor has seen it end. Until it is reaped, its pid is not reused.
            children.discard(pid)
            return {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}
        case _:
            # Children whose start timed out at the supervisor.
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            children.clear()
            return {}


def become(
    argv: Sequence[str],
    directory: str,
    log: str,
    environment: Mapping[str, str],
    *,
    parent: int | None = None,
    anew: bool = False,
) -> NoReturn:
    """Turn a process that was just forked into this `frameledger` command: in a session of its own, with its output
    appended to `log`, and sent SIGTERM when `parent` ends.

    Raises `BecomeCommand`. With `anew`, replaces the process by a newly started one (exec) instead.
    """
    try:
        _leave(log)
        os.chdir(directory)
        os.environ.update(environment)
        if parent is not None:
            die_with(parent, signal.SIGTERM)
        if anew:
            os.execv(argv[0], list(argv))
        show_as(argv, os.environ)
    except (OSError, SystemExit) as error:
        # Not an exception, which the code of the parent would handle.
        with suppress(OSError):
            os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
        os._exit(COULD_NOT_START)
    raise BecomeCommand(argv[OWN_WORDS:])


def _leave(output: str, keep: int | None = None) -> None:
    """Leave the session and the terminal, and close all inherited files except one, because the caller of `up` may wait
    for them to be closed."""
    os.setsid()
    # In a process that was started without input or output, those numbers are free, and a file would get one.
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    written = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for here, there in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(here, there)
    most = os.sysconf("SC_OPEN_MAX")
    if keep is None:
        os.closerange(3, most)
    else:
        os.closerange(3, keep)
        os.closerange(keep + 1, most)
