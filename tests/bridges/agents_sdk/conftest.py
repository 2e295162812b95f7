"""Fixtures for tests with the real Agents SDK, some with a real Kafka and a real PostgreSQL."""

import pytest
from agents import set_tracing_disabled
from tests.support.databases import (  # noqa: F401  # fixtures
    database,
    empty_database,
    make_database,
    migrated_template,
)
from tests.support.projecting import settings_of_its_own  # noqa: F401  # a fixture
from tests.support.servers import collect_garbage  # noqa: F401  # a fixture


@pytest.fixture(autouse=True)
def nothing_is_traced():
    """Disable tracing, which would send traces to OpenAI."""
    set_tracing_disabled(True)
