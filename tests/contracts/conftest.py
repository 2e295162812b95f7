"""Fixtures of the contracts: some of them run against real servers as well as fakes."""

from tests.support.servers import collect_garbage  # noqa: F401  # a fixture
