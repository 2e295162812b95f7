"""Extracts errors from exception groups, which task groups raise.

It imports nothing, so that a command reports an error without loading the clients of the broker or the database.
"""

from __future__ import annotations


def first(error: BaseException) -> BaseException:
    """Returns the first error of a group, at any depth. Returns an error that is not a group unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sole(error: BaseException) -> BaseException:
    """Returns the only error of a group, at any depth. Returns a group of several errors unchanged except for enclosing
    groups of one, and an error that is not a group unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
