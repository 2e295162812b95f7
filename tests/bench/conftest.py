"""The benches run on real servers."""

from tests.support.servers import nothing_is_left  # noqa: F401  # a fixture
