"""Cases of a test that are left to `make test-long`, whose other cases `make test` runs."""

from typing import Any

import pytest


def long(*values: Any, id: str | None = None) -> Any:
    """Returns a case of `pytest.mark.parametrize` that only `make test-long` runs."""
    return pytest.param(*values, id=id, marks=pytest.mark.long)
