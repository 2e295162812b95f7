"""Kills detached programs that an aborted run left behind. Fixtures and tests stop what they start. But if only pytest
gets the signal, the processes of xdist are killed before they can do so, and a detached `frameledger up` would slow
down the next run.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Runs in the main process, after the processes of xdist have ended."""
    if not hasattr(session.config, "workerinput"):
        temporary = session.config._tmp_path_factory  # type: ignore[attr-defined]  # pytest has no public name for it
        kill_all_of(temporary.getbasetemp())


def kill_all_of(folder: Path) -> list[int]:
    """Kill every process that runs a program of this folder or was given a path in it. Returns their ids."""
    killed = []
    for process in psutil.process_iter(["cmdline"]):
        if any(f"{folder}/" in word for word in process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process.pid)
    return killed
