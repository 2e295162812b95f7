"""Iterations of the event loop: every task that can continue does, and no time passes."""

from collections.abc import Generator
from types import coroutine


async def turns(count: int = 20) -> None:
    """Let all other tasks continue this many times."""
    for _ in range(count):
        await _turn()


@coroutine
def _turn() -> Generator[None]:
    yield
