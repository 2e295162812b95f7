"""Real servers, for those contracts that a fake shares with one."""

from tests.support.servers import kafka, nothing_is_left  # noqa: F401  # fixtures
