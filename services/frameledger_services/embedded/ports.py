"""The choice of a server's port on 127.0.0.1: the preferred one if it is free, otherwise any free one."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

import psutil

from frameledger_services.embedded.program import EmbeddedError

HOST = "127.0.0.1"
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""File in which Linux has the first and last port for outgoing connections."""
DYNAMIC = range(49_152, 65_536)
"""Dynamic ports (RFC 6335)."""


def choose(preferred: int, *, explicit: bool = False, setting: str = "") -> int:
    """Returns a port that is free now: `preferred`, or any other if that is in use or 0.

    Raises `EmbeddedError` if `preferred` is in use and `explicit`, because `setting` requests it. Another port is
    chosen outside the range that Linux uses for outgoing connections, if that is known. Other processes that call this
    function do not get the same port while this process runs. Until the server starts, another program can still take
    the port; the server then fails with an error.
    """
    if preferred and is_free(preferred) and _reserve(preferred):
        return preferred
    if preferred and explicit:
        first, last = _outgoing()
        problem = f"Port {preferred} on {HOST} is in use by {_holder(preferred)}."
        where = "another port"
        if first <= preferred <= last:
            problem += (
                f" The kernel uses the ports {first} to {last} for outgoing connections: any program can get it at any "
                "time."
            )
            where = f"a port below {first}"
        raise EmbeddedError(
            problem, f"Set {setting} to {where}, stop that program, or unset the setting to use a free port."
        )
    return _any()


def _any() -> int:
    """Returns a free port that this process has not reserved before, and reserves it."""
    first, last = _outgoing()
    quiet = [port for port in DYNAMIC if not first <= port <= last] if last else []
    # At random, so that the port of a server that just ended is not reused while its clients still connect to it.
    for port in random.sample(quiet, len(quiet)):
        if port not in _reserved and is_free(port) and _reserve(port):
            return port
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port_of_system: int = probe.getsockname()[1]
        if port_of_system not in _reserved and _reserve(port_of_system):
            return port_of_system


_reserved: set[int] = set()
"""The ports that this process has reserved."""

_file: int | None = None
"""A file in which each byte stands for a port. A process reserves a port by locking its byte; the lock ends with the
process and is not inherited by children."""


def _reserve(port: int) -> bool:
    """Reserve this port. Returns whether no other process of ours has reserved it: servers take seconds to bind
    theirs."""
    if port not in _reserved:
        if not _lock(port):
            return False
        _reserved.add(port)
    return True


def _lock(port: int) -> bool:
    global _file
    try:
        if _file is None:
            path = Path(tempfile.gettempdir()) / f"frameledger-ports-{os.getuid()}.lock"
            _file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        # The file's name is taken, or it cannot be written: ports cannot be reserved.
        return True
    try:
        # Closing the file releases the locks of the process, so it is opened once and never closed.
        fcntl.lockf(_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def is_held_by(port: int, argument: str) -> bool:
    """Returns whether the process that listens on a port was started with this argument, or True if that is unknown."""
    try:
        listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        pids = {one.pid for one in listening if one.laddr and one.laddr.port == port and one.pid}
        return not pids or any(argument in psutil.Process(pid).cmdline() for pid in pids)
    except (psutil.Error, OSError):
        return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like servers: the port of a connection that was just closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def answers(port: int) -> bool:
    """Returns whether a port accepts connections."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _outgoing() -> tuple[int, int]:
    """Returns the range of ports for outgoing connections; empty if the kernel does not tell."""
    try:
        first, last = OUTGOING.read_text(encoding="ascii").split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 1, 0


def _holder(port: int) -> str:
    """Returns the process that uses the port, as far as it is visible: the one that listens on it, not its children;
    otherwise the ones with connections from it."""
    try:
        at_port = [one for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == port]
        listening = [one for one in at_port if one.status == psutil.CONN_LISTEN]
        pids = {one.pid for one in listening or at_port}
        names = [
            f"process {pid} ({psutil.Process(pid).name()})" for pid in sorted(pid for pid in pids if pid)
        ]
    except (psutil.Error, OSError):
        names = []
    return " and ".join(names) or "another program"
