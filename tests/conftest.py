"""Fixtures and hooks of all tests, and the number of examples of each property (`laws/`).

A property test draws the same examples in every run, so that it fails on every machine or on none. `make chaos` and
`pytest tests/laws --hypothesis-profile=long` look for new examples.
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
# Material that is not part of this repository: conformance samples and real conversations. It is next to the checkout
# only where the project is developed.
SHARED = ROOT.parent / "shared"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"no folder {SHARED.name!r} beside the checkout"
)

SELDOM = 1_000
"""The number of collections of the middle generation before a full one."""

in_memory.use()
bytecode.keep()
certificates.keep()
# A process that a shell started in the background ignores SIGINT, and so do its children, but tests send SIGINT to
# programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# An example of most properties is a conversation of fifty frames.
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
    """Exclude the half a million objects of modules and tests from garbage collection, both while they are created and
    afterwards, when a full collection would take half a second. The garbage of tests is collected at the end of each
    module (`collect_garbage`), and rarely in the middle of a test."""
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
    """The folder of the shared material. A test that needs it is skipped where it does not exist."""
    if not SHARED.is_dir():
        pytest.skip(f"no folder {SHARED.name!r} beside the checkout")
    return SHARED
