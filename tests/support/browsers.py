"""A real browser for the tests of the page: an installed one, one that CI installs, or none.

`TEST_BROWSER` names a Chromium; otherwise it is Playwright's own, or the first of `NAMES` on the path. CI that runs as
root on Debian installs one when the first test needs it, 100 MB in a quarter of a minute. Elsewhere nothing is
installed: the tests are skipped, and say how to get a browser.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Playwright, sync_playwright
from tests.bounds import PROGRAM

VARIABLE = "TEST_BROWSER"
PACKAGE = "chromium-headless-shell"
NAMES = (
    PACKAGE,
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge",
)
HOW = (
    f"there is no browser: `apt-get install {PACKAGE}` or `.venv/bin/playwright install chromium` gets one, "
    f"and {VARIABLE} may name a Chromium that is elsewhere"
)
COMMANDS = (
    ("apt-get", "-qq", "update"),
    ("apt-get", "-qq", "install", "--yes", "--no-install-recommends", PACKAGE),
)
"""Package lists in container images are empty or outdated."""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Options of the browser. In containers it runs as root, where no sandbox is possible; it loads only our page."""


class NoBrowserError(Exception):
    """No browser is installed. The message says how to get one."""


def folder_of_the_run(factory: pytest.TempPathFactory, worker: str) -> Path:
    """Returns the folder that all processes of a test run share; `worker` is the fixture `worker_id`."""
    own = factory.getbasetemp()
    return own if worker == "master" else own.parent


@contextmanager
def running_or_skipped(factory: pytest.TempPathFactory, worker: str) -> Iterator[Browser]:
    """Yields a browser; where there is none, the test is skipped and says how to get one."""
    with ExitStack() as stack:
        try:
            browser = stack.enter_context(running(folder_of_the_run(factory, worker)))
        except NoBrowserError as error:
            pytest.skip(str(error))
        yield browser


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """Yields a browser. `folder` is that of the run. Raises `NoBrowserError`."""
    # Playwright's event loop runs in this thread until the end of the block, so `asyncio.run` does not work here.
    with sync_playwright() as playwright:
        browser = _launched(playwright, folder)
        try:
            yield browser
        finally:
            browser.close()


def _launched(playwright: Playwright, folder: Path) -> Browser:
    given = os.environ.get(VARIABLE)
    if not given:
        try:
            return playwright.chromium.launch(args=FLAGS)
        except Error:
            given = on_path() or installed(folder, os.environ)
    if not given:
        raise NoBrowserError(HOW)
    return playwright.chromium.launch(executable_path=given, args=FLAGS)


def on_path() -> str | None:
    """Returns the first browser on the path."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def installed(folder: Path, environment: Mapping[str, str], user: int | None = None) -> str | None:
    """Returns the browser that CI installs. The first process of a run installs it. Returns None where that is not
    allowed or fails."""
    is_root = (os.geteuid() if user is None else user) == 0
    if not environment.get("CI") or not is_root or shutil.which("apt-get") is None:
        return None
    with (folder / "browser.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tried = folder / "browser.tried"
        if not tried.exists():
            tried.touch()
            _install({**environment, "DEBIAN_FRONTEND": "noninteractive"})
    return on_path()


def _install(environment: Mapping[str, str]) -> None:
    try:
        for command in COMMANDS:
            subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=PROGRAM, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"No browser could be installed: {error}")
