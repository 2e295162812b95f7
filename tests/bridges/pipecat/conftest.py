"""Fixtures for tests with the real Pipecat, some with a real Kafka and a real PostgreSQL."""

import sys

import pytest
from loguru import logger
from tests.bounds import ON_SERVERS
from tests.support.databases import (  # noqa: F401  # fixtures
    database,
    empty_database,
    make_database,
    migrated_template,
)
from tests.support.projecting import settings_of_its_own  # noqa: F401  # a fixture
from tests.support.servers import collect_garbage  # noqa: F401  # a fixture

from frameledger_services.pipecat import observer

# Otherwise Pipecat logs each step of each frame.
logger.remove()
logger.add(sys.stderr, level="ERROR")


@pytest.fixture(autouse=True)
def context_logs(monkeypatch):
    """Remove Pipecat's setup files from the environment."""
    monkeypatch.delenv("PIPECAT_SETUP_FILES", raising=False)


@pytest.fixture(autouse=True)
def servers_may_be_slow(monkeypatch, request):
    """Give `restore`, and the last frames of a pipeline, the time of a test: servers that are there may be slow."""
    if request.node.get_closest_marker("servers") is not None:
        monkeypatch.setitem(observer.FrameledgerObserver.restore.__kwdefaults__, "within", ON_SERVERS)
        monkeypatch.setattr(observer, "FLUSH_SECONDS", ON_SERVERS)
