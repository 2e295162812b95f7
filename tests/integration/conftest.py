"""Fixtures of real servers."""

from tests.support.claim_workers import scene  # noqa: F401  # a fixture
from tests.support.commands import command  # noqa: F401  # a fixture
from tests.support.databases import (  # noqa: F401  # fixtures
    database,
    empty_database,
    make_database,
    transaction,
)
from tests.support.logs import log, log_settings  # noqa: F401  # fixtures
from tests.support.servers import collect_garbage  # noqa: F401  # a fixture
from tests.support.worker_harness import harness  # noqa: F401  # a fixture
