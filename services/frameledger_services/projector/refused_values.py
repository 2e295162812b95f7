"""Distinguishes errors of a value that cannot be stored from errors of the database and from bugs."""

from __future__ import annotations

from psycopg import errors

from frameledger.stored import StoredStateError
from frameledger_services import transient

OF_VALUES = (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError)
"""The exceptions of the driver and the encoders for a value that they cannot write."""


def is_of_the_values(error: Exception) -> bool:
    """Whether the error comes from a value in a record, which the database refuses or the driver cannot write."""
    if isinstance(error, errors.Error):
        # Without a SQLSTATE psycopg refused the value.
        return transient.is_refused_data(error) or (
            isinstance(error, errors.DataError) and not error.sqlstate
        )
    return isinstance(error, OF_VALUES) and not isinstance(error, StoredStateError)
