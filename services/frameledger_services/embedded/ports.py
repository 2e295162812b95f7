"""Which port on 127.0.0.1 a server gets: the wanted one if it can be had, otherwise any free one."""

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
"""Where Linux says which ports it gives to outgoing connections: the first and the last."""
DYNAMIC = range(49_152, 65_536)
"""Ports that nobody registers (RFC 6335)."""


def choose(preferred: int, *, explicit: bool = False, setting: str = "") -> int:
    """A port that is free now: `preferred`, or any if that is busy or 0.

    Raises `EmbeddedError` if `preferred` is busy and `explicit`, because somebody asked for it by `setting`.
    Where Linux says which ports it gives to outgoing connections, any port is none of those: the kernel gives nobody
    else this one. No other process that asks here gets it, as long as this process lives. Between this answer and the
    server's start a program that insists on it can take it; the server then says so.
    """
    if preferred and is_free(preferred) and _reserve(preferred):
        return preferred
    if preferred and explicit:
        first, last = _outgoing()
        problem = f"Port {preferred} on {HOST} is in use by {_holder(preferred)}."
        where = "another port"
        if first <= preferred <= last:
            problem += (
                f" It is one of those that the kernel gives to outgoing connections, {first} to {last}: any program "
                "may get it at any time."
            )
            where = f"a port below {first}"
        raise EmbeddedError(
            problem, f"Set {setting} to {where}, or stop that program; without it a free port is chosen."
        )
    return _any()


def _any() -> int:
    """Returns a free port that is reserved for this process, and was never before."""
    first, last = _outgoing()
    quiet = [port for port in DYNAMIC if not first <= port <= last] if last else []
    # By chance: the port of a server that has just ended is not the next one's, while its clients still ask for it.
    for port in random.sample(quiet, len(quiet)):
        if port not in _reserved and is_free(port) and _reserve(port):
            return port
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            given: int = probe.getsockname()[1]
        if given not in _reserved and _reserve(given):
            return given


_reserved: set[int] = set()
"""The ports that this process has chosen."""

_file: int | None = None
"""A file of which each byte stands for a port. Who has locked a byte has chosen its port; the lock ends with the
process, and children do not have it."""


def _reserve(port: int) -> bool:
    """Returns whether no other process of ours has chosen this port: servers take seconds until they have theirs."""
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
        # Somebody took the name, or nothing can be written: there is nobody to ask.
        return True
    try:
        # The lock is the process's, and goes when it closes the file: so that is opened once, and never closed.
        fcntl.lockf(_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def is_held_by(port: int, argument: str) -> bool:
    """Returns whether the process that listens on a port was started with this argument; True if that is hidden."""
    try:
        listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        pids = {one.pid for one in listening if one.laddr and one.laddr.port == port and one.pid}
        return not pids or any(argument in psutil.Process(pid).cmdline() for pid in pids)
    except (psutil.Error, OSError):
        return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: the port of a connection that was just closed counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def answers(port: int) -> bool:
    """Returns whether somebody takes connections at a port."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _outgoing() -> tuple[int, int]:
    """The ports of outgoing connections; no port at all where the kernel does not say."""
    try:
        first, last = OUTGOING.read_text(encoding="ascii").split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 1, 0


def _holder(port: int) -> str:
    """The process that has the port, as far as we may know: who listens there, not whom it serves with processes of
    its own; else whose connections come from it."""
    try:
        at_it = [found for found in psutil.net_connections("tcp") if found.laddr and found.laddr.port == port]
        listening = [found for found in at_it if found.status == psutil.CONN_LISTEN]
        pids = {found.pid for found in listening or at_it}
        names = [
            f"process {pid} ({psutil.Process(pid).name()})" for pid in sorted(pid for pid in pids if pid)
        ]
    except (psutil.Error, OSError):
        names = []
    return " and ".join(names) or "another program"
