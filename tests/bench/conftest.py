"""The servers that the benches run on: their fixtures."""

from tests.support.servers import database_server, kafka, nothing_is_left, postgres  # noqa: F401  # fixtures
