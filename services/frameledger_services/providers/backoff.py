"""Exponential backoff with jitter."""

import random


def backoff(tries: int, *, first: float, longest: float) -> float:
    """Returns seconds to wait after so many retries, from 0: doubled each time, and up to `first` more by chance, so
    that those who failed together do not return together; at most `longest`."""
    return min(first * (2.0 ** min(tries, 60) + random.random()), longest)
