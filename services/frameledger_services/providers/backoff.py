"""Exponential backoff with jitter."""

import random


def backoff(tries: int, *, first: float, longest: float) -> float:
    """Returns the seconds to wait after this number of attempts, from 0: doubled each time, plus a random part of up to
    `first`, so that clients that failed together do not retry together; at most `longest`."""
    return min(first * (2.0 ** min(tries, 60) + random.random()), longest)
