"""Some contracts are those that a fake shares with a real server."""

from tests.support.servers import nothing_is_left  # noqa: F401  # a fixture
