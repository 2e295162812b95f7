"""Fixtures for tests with the real Pipecat, some with a real Kafka and a real PostgreSQL."""

import sys

import pytest
from loguru import logger
from tests.support.databases import (  # noqa: F401  # fixtures
    database,
    empty_database,
    make_database,
    migrated_template,
)
from tests.support.projecting import settings_of_its_own  # noqa: F401  # a fixture
from tests.support.servers import nothing_is_left  # noqa: F401  # a fixture

# Otherwise Pipecat logs each step of each frame.
logger.remove()
logger.add(sys.stderr, level="ERROR")


@pytest.fixture(autouse=True)
def context_logs(monkeypatch):
    """Remove Pipecat's setup files from the environment."""
    monkeypatch.delenv("PIPECAT_SETUP_FILES", raising=False)
