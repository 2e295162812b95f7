"""Which port on 127.0.0.1 a server gets: the wanted one if it can be had, otherwise any free one."""

import socket

from frameledger_services.embedded.program import EmbeddedError

HOST = "127.0.0.1"


def choose(preferred: int, *, explicit: bool = False, setting: str = "") -> int:
    """A port that is free now: `preferred`, or any if that is busy or 0.

    Raises `EmbeddedError` if `preferred` is busy and `explicit`, because somebody asked for it by `setting`.
    Between this answer and the server's start another program can take the port; the server then says so.
    """
    if preferred and is_free(preferred):
        return preferred
    if preferred and explicit:
        raise EmbeddedError(
            f"Port {preferred} on {HOST} is in use by another program.",
            f"Stop that program, or set {setting} to another port; without it a free port is chosen.",
        )
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: the port of a connection that was just closed counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
