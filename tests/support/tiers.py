"""Parametrizes tests of which `make test` runs some cases and `make test-long` runs all."""

from collections.abc import Iterable
from typing import Any

import pytest


def long(*values: Any, id: str | None = None) -> Any:
    """Returns a case of `pytest.mark.parametrize` that only `make test-long` runs."""
    return pytest.param(*values, id=id, marks=pytest.mark.long)


def first(quick: int, cases: Iterable[Any]) -> list[Any]:
    """Returns the cases, of which `make test` runs only the first ones. A tuple has the values of several arguments."""
    listed = list(cases)
    later = [one if isinstance(one, tuple) else (one,) for one in listed[quick:]]
    return [*listed[:quick], *(long(*one) for one in later)]


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """Returns the cases, of which `make test` runs the first and every `step`-th after it."""
    return [one if number % step == 0 else long(one) for number, one in enumerate(cases)]
