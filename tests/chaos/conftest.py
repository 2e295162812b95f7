"""Fixtures of the chaos tests: the same real servers as in `integration/`."""

from tests.support.commands import command  # noqa: F401  # a fixture
from tests.support.databases import (  # noqa: F401  # fixtures
    database,
    empty_database,
    make_database,
    transaction,
)
from tests.support.logs import log, log_settings  # noqa: F401  # fixtures
from tests.support.servers import collect_garbage  # noqa: F401  # a fixture
