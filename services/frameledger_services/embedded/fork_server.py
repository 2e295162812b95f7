"""A process that has imported what our services need, and is forked for each of them.

To import it takes each service from a third of a second to a whole one, and they need much the same. So `up` and the
demo, while they have nothing but one thread, fork this process; it imports the modules once, beside the servers' start,
and then does nothing but wait to be asked. Who asks is the supervisor (`forked.py`).

**Shared with a forked service** is memory as it was after the imports, each page until somebody writes to it: code,
classes, compiled patterns, and nothing that was opened, connected or configured, since this process runs no service and
no event loop. The objects are frozen, so that the garbage collector of a service does not write to all of them.

**Not shared**: session, working directory, output and environment, which are those that its `Program` says; signal
handlers; and random numbers, of which Python's are seeded anew with each fork, and others come from the kernel.
`ps` and `/proc` show the service's own command line and environment. A service that is started again has the code of
the day on which `up` began: after an upgrade `up` is to be started again.

No lock can be held by a thread that is not copied, since there is none: should an import start one, services are forked
and started anew, as without this process. It dies with the supervisor, and what it has forked is told SIGTERM then, as
what the supervisor starts itself. Should it alone be killed, its services end too, by that SIGTERM, and the supervisor
starts them again, by itself. Linux only: elsewhere system libraries do not survive a fork.
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

MOST = 128 * 1024
"""Bytes of a message: one that asks has the words, the directory and the settings of one program."""

OWN_WORDS = 3
"""Of a command line of ours: the interpreter, `-m`, and the package. What follows are the command's words."""


def can_fork() -> bool:
    """Whether a copy of this process could go on as another one: on Linux, with one thread. What waits for its end
    needs a kernel, and a sandbox, that has handles of processes."""
    if sys.platform != "linux" or not has_one_thread():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def flush() -> None:
    """Write what is not written yet: each copy of this process would write it too."""
    for stream in (sys.stdout, sys.stderr):
        # None, if this process was started without.
        if stream is not None:
            stream.flush()


def has_one_thread() -> bool:
    """Whether this process has no other thread, also none that Python did not start. Where the kernel does not say,
    nobody knows."""
    try:
        return threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def serve(link: socket.socket, parent: int, modules: Sequence[str]) -> NoReturn:
    """Run the fork server, in a process that was just forked, until the other end of `link` closes.

    Raises `BecomeCommand` in each service that is forked; in this process itself it does not return.
    """
    _leave(os.devnull, keep=link.fileno())
    # Not SIGTERM, which waits if it is stopped.
    die_with(parent, signal.SIGKILL)
    show_as([sys.executable, "-m", "frameledger_services", "(fork server)"], os.environ)
    for name in modules:
        # What cannot be imported here is imported by the service that needs it, and says there what is wrong.
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
    """What is asked next; nothing when nobody is there any more to ask."""
    try:
        return link.recv(MOST)
    except ConnectionError:
        return b""


def _answer(asked: dict[str, Any], this: int, children: set[int]) -> dict[str, Any]:
    match asked:
        case {"fork": program}:
            # Asked before: a copy has the one thread that made it, and the locks of all others.
            safe = has_one_thread()
            try:
                pid = os.fork()
            except OSError as error:
                return {"errno": error.errno, "error": error.strerror}
            if pid == 0:
                # Not `getppid()`: this process may have been killed since.
                become(**program, parent=this, anew=not safe)
            children.add(pid)
            return {"pid": pid}
        case {"reap": pid}:
            # Who asks has seen that it ended. Until now its number was nobody else's.
            children.discard(pid)
            return {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}
        case _:
            # Those whose start nobody waited for.
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
        # Not an exception: what this process is a copy of would act on it.
        with suppress(OSError):
            os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
        os._exit(COULD_NOT_START)
    raise BecomeCommand(argv[OWN_WORDS:])


def _leave(output: str, keep: int | None = None) -> None:
    """Leave the terminal, that is its session and what is read and written there, and close all files that whoever
    called `up` had open, and would wait to be closed; but for one that is kept."""
    os.setsid()
    # Of a process that was started without input or output the numbers are free: a file would get one of them.
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
