"""Names for the topics of a test, which no other test and no other process of a run has."""

from itertools import count
from os import getpid

_numbers = count(1)


def topic_prefix() -> str:
    """One that was not given before."""
    return f"{of_this_process()}{next(_numbers)}."


def of_this_process() -> str:
    """What all topics of this process begin with."""
    return f"test-{getpid()}-"
