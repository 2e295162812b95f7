"""Some contracts are those that a fake shares with a real server, and one is of clients of all of them."""

from tests.support.servers import collect_garbage  # noqa: F401  # a fixture
