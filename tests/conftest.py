"""What every test may rely on: the shared material where it exists, and the number of examples of each law.

A law draws the same examples in every run, so that a change that fails it fails it everywhere. `make chaos` and `pytest
tests/laws --hypothesis-profile=long` look for new examples.
"""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests import bounds, bytecode, certificates, in_memory
from tests.statements import (  # noqa: F401  # hooks
    pytest_addoption,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.support import java_archive

# Fixtures of which a process needs only one instance: they are imported here for all folders, because each folder that
# imports them gets its own.
from tests.support.databases import migrated_template, shared_database  # noqa: F401
from tests.support.servers import database_server, kafka, postgres  # noqa: F401

pytest_plugins = ["tests.costs", "tests.leftovers", "tests.shared_broker"]

ROOT = Path(__file__).resolve().parent.parent
# Material of the project that is no part of this repository: conformance samples and real conversations. It
# lies beside the checkout where the project is developed, and nowhere else.
SHARED = ROOT.parent / "shared"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"no folder {SHARED.name!r} beside the checkout"
)

SELDOM = 1_000
"""So many times the collector looks at what is a little older before it looks at all there is."""

in_memory.use()
bytecode.keep()
certificates.keep()
# A process that a shell started in the background ignores Ctrl-C, and so do its children; but tests send Ctrl-C to
# programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# An example of most laws is a conversation of fifty frames.
settings.register_profile("default", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("release", derandomize=True, deadline=None, database=None, max_examples=100)
settings.register_profile("chaos", derandomize=False, deadline=None, max_examples=1_000, print_blob=True)
settings.register_profile("long", derandomize=False, deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def brokers_start_quickly(pytestconfig: pytest.Config) -> None:
    java_archive.use(pytestconfig)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Half a million objects of modules and tests are made and stay: Python's collector need not look at them while
    more and more are made, nor afterwards, when that takes half a second each time. What tests leave is looked through
    at the end of a module (`nothing_is_left`), and seldom in the middle of whichever test comes next."""
    gc.disable()
    try:
        with bytecode.compiled_by_one():
            return (yield)
    finally:
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, SELDOM)
        gc.enable()


def pytest_report_header() -> str:
    return f"bounds: {bounds.slowness():.2f} times those of tests/bounds.py"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared material's folder; a test that asks for it is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip(f"no folder {SHARED.name!r} beside the checkout")
    return SHARED
