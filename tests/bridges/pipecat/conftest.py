"""The real Pipecat, and where a test wants it a real Kafka and a real PostgreSQL."""

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

# Pipecat tells each frame's way otherwise.
logger.remove()
logger.add(sys.stderr, level="ERROR")


@pytest.fixture(autouse=True)
def context_logs(monkeypatch):
    """Whatever an environment says of Pipecat's own files."""
    monkeypatch.delenv("PIPECAT_SETUP_FILES", raising=False)
