"""The command line and environment that other programs see of a forked process, in `/proc`.

The kernel shows those that a process was started with until it is given other addresses. With them set, `ps` and
other programs find each service by its own command line, as if it had been started. Nothing of ours reads it. Where
the kernel lacks the call, other programs see the command line of the process that was forked.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_MM, PR_SET_MM_MAP = 35, 14
LONGEST_NAME = 15
FIRST_FIELD = 3
"""Number, as proc(5) counts them, of the first field after the name in `/proc/self/stat`."""


class _Map(ctypes.Structure):
    """The kernel's `prctl_mm_map`: the addresses of the parts of a process."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data")),
        *((name, ctypes.c_uint64) for name in ("start_brk", "brk", "start_stack")),
        *((name, ctypes.c_uint64) for name in ("arg_start", "arg_end", "env_start", "env_end")),
        ("auxv", ctypes.c_void_p),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


_FIELDS = {
    "start_code": 26,
    "end_code": 27,
    "start_stack": 28,
    "start_data": 45,
    "end_data": 46,
    "start_brk": 47,
}
"""Numbers of the fields in `/proc/self/stat`."""

_UNCHANGED = 2**32 - 1

_shown: list[object] = []
"""The text that the kernel reads; referenced here so that its memory is not freed."""


def show_as(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Show this process with this command line and environment. Linux only.

    Returns whether it worked: a sandbox may deny writing to `/proc`, or show another one.
    """
    try:
        return _show_as(words, environment)
    except (OSError, LookupError, ValueError):
        return False


def _show_as(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    Path("/proc/self/comm").write_bytes(os.fsencode(Path(words[0]).name)[:LONGEST_NAME])
    arguments = b"".join(os.fsencode(word) + b"\0" for word in words)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    text = ctypes.create_string_buffer(arguments + variables)
    begin = ctypes.addressof(text)
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    addresses = {name: int(fields[number - FIRST_FIELD]) for name, number in _FIELDS.items()}
    places = _Map(
        **addresses,
        arg_start=begin,
        arg_end=begin + len(arguments),
        env_start=begin + len(arguments),
        env_end=begin + len(arguments) + len(variables),
        exe_fd=_UNCHANGED,
    )
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    # The end of the heap is read last: the allocations above may move it.
    places.brk = libc.sbrk(0)
    refused: int = libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(places), ctypes.sizeof(places), 0)
    if not refused:
        _shown[:] = [text]
    return not refused
