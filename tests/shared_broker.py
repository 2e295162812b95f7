"""One broker for all processes of a run with xdist, from their start until they have ended.

Starting and warming up is half of the cost of a broker, and a broker for each process would pay it each time.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.support import java_archive
from tests.support.run_broker import ADDRESS_FILE, running, write_address


class SharedBroker:
    """The plug-in of the main process, which owns the broker."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._over = Event()
        # A daemon thread: if this process dies, the kernel stops the broker.
        self._thread = Thread(target=self._run, daemon=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self) -> None:
        temporary = self._config._tmp_path_factory  # type: ignore[attr-defined]  # pytest has no public name for it
        self._folder = Path(temporary.mktemp("broker"))
        java_archive.use(self._config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Start the broker. Not earlier, because pytest turns warnings into errors during collection, in all threads of
        this process, and importing the modules that download the jars raised one."""
        self._thread.start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[ADDRESS_FILE] = str(self._file)

    def pytest_sessionfinish(self) -> None:
        """Stop the broker. Runs after xdist's hook, which is registered later, and before pytest deletes the folder of
        this run."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def _file(self) -> Path:
        return self._folder / "address.json"

    def _run(self) -> None:
        try:
            with running(self._folder, self._config) as broker:
                write_address(self._file, {"bootstrap_servers": broker.bootstrap_servers})
                self._over.wait()
        except Exception:
            if self._over.is_set():
                raise
            write_address(self._file, {"failed": traceback.format_exc()})


def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-in in the main process of xdist."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SharedBroker(config))
