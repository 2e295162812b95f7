"""Fixtures of the benches, which run on real servers."""

from tests.support.servers import collect_garbage  # noqa: F401  # a fixture
