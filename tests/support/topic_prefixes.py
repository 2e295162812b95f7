"""Names for the topics of a test, which no other test and no other process of a run has."""

from itertools import count
from os import getpid

_numbers = count(1)


def topic_prefix() -> str:
    """Returns a prefix that was not returned before."""
    return f"{of_this_process()}{next(_numbers)}."


def of_this_process() -> str:
    """The common beginning of all topics of this process."""
    return f"test-{getpid()}-"
