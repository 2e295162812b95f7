"""Classifies errors of the broker and the database: which are transient, that is, worth a retry on a new connection.

Has tuples for `except` clauses and functions for single errors. Frameledger's own errors are classified by their base
class (`frameledger.errors`).
"""

from __future__ import annotations

import psycopg
from aiokafka import errors as kafka

from frameledger.errors import FrameledgerError, TransientError


class EventLogError(FrameledgerError):
    """The broker rejected a record or failed to execute a request.

    Remedy: See the derived classes.
    """


DATABASE: tuple[type[Exception], ...] = (
    # Failed and broken connections, and SQLSTATE classes 08, 40, 53, 55, 57 and 58. psycopg also raises it for data
    # that the database rejects by class 54: where that can happen, call `is_refused_data` first.
    psycopg.OperationalError,
    # psycopg does not count these as operational. 25P03, 25P04: this process was frozen. 25006: the server is a
    # standby.
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    TimeoutError,
)
"""The database is unavailable or not the primary."""

LIMITED: tuple[type[Exception], ...] = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
"""A statement reached a limit of its session, for its own time or for a lock, and was aborted alone."""

BROKER: tuple[type[Exception], ...] = (kafka.KafkaError, EventLogError, TimeoutError)
"""The broker is unavailable, or a group member or producer must be replaced. Includes errors that only an operator can
fix, such as missing permissions: a service logs them and retries."""

EITHER: tuple[type[Exception], ...] = (*DATABASE, *BROKER, TransientError)
"""Transient errors of the database, the broker and Frameledger."""

_REFUSED_DATA = ("22", "23", "54")


def is_transient(error: BaseException, *more: type[Exception]) -> bool:
    """Returns whether an error, or each error of a group, is transient; `more` counts as transient too."""
    kinds = (*EITHER, *more)
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


def reason(error: BaseException) -> str:
    """Returns the message of an error, or its class name if it has no message, as TimeoutError."""
    return str(error).strip() or type(error).__name__


def is_refused_data(error: psycopg.Error) -> bool:
    """Returns whether the database rejected a statement because of its values: invalid (SQLSTATE class 22), violating a
    constraint (23) or too large (54). A retry with the same values fails again."""
    return (error.sqlstate or "")[:2] in _REFUSED_DATA


def is_retriable(error: BaseException) -> bool:
    """Returns whether a request that failed with this error can be sent again unchanged.

    True for Kafka's retriable errors, and for errors which mean that this producer or member must be replaced: after a
    rejected record, aiokafka's sequence numbers of the partition are wrong, and the broker rejects all later records. A
    producer whose sender task died raises the bare `KafkaError`.
    """
    if not isinstance(error, kafka.KafkaError):
        return False
    return error.retriable or isinstance(error, _ALSO_RETRIABLE) or type(error) is kafka.KafkaError


def is_retriable_code(code: int) -> bool:
    """Returns whether an error code in a broker's response is retriable; see `is_retriable`."""
    return code in _CODES_WITHOUT_A_NAME or (code != 0 and is_retriable(kafka.for_code(code)()))


_ALSO_RETRIABLE = (
    kafka.BrokerNotAvailableError,
    kafka.InvalidProducerEpoch,
    kafka.KafkaTimeoutError,
    kafka.OutOfOrderSequenceNumber,
    kafka.ProducerClosed,
    kafka.ProducerFenced,
    kafka.RebalanceInProgressError,
    kafka.ReplicaNotAvailableError,
    kafka.StaleLeaderEpochCodeError,
    kafka.UnknownProducerId,
)
"""Errors that are retriable although aiokafka's flag is not set."""

_CODES_WITHOUT_A_NAME = frozenset({74, 75, 78, 100})
"""Retriable codes without a class in aiokafka: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE,
UNKNOWN_TOPIC_ID."""
