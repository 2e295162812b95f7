"""Which errors of broker and database are transient: worth a new attempt on a new connection.

The one place that says so: tuples for `except`, functions for an error at hand. Errors of our own say it by their class
(`frameledger.errors`).
"""

from __future__ import annotations

import psycopg
from aiokafka import errors as kafka

from frameledger.errors import FrameledgerError, TransientError


class EventLogError(FrameledgerError):
    """The broker did not take a record, or did not do what it was asked for.

    Remedy: The classes derived from it say what to do.
    """


DATABASE: tuple[type[Exception], ...] = (
    # Connections that fail or break, and SQLSTATE classes 08, 40, 53, 55, 57 and 58. To psycopg it is also what the
    # database refuses for its data by class 54: ask `is_refused_data` first where that can be.
    psycopg.OperationalError,
    # The next are not operational to psycopg. 25P03, 25P04: we were frozen for long. 25006: the server is a standby.
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    TimeoutError,
)
"""The database is away, or is not the primary, for a while."""

BROKER: tuple[type[Exception], ...] = (kafka.KafkaError, EventLogError, TimeoutError)
"""The broker is away for a while, or a new member or producer has to begin anew. Also what only its operator mends,
such as a right that is missing: a service says so and waits for it."""

EITHER: tuple[type[Exception], ...] = (*DATABASE, *BROKER, TransientError)
"""Those of the database or the broker, and every error of our own that is transient."""

_REFUSED_DATA = ("22", "23", "54")


def is_transient(error: BaseException, *more: type[Exception]) -> bool:
    """Returns whether an error, or each error of a group, is transient; `more` counts as transient too."""
    kinds = (*EITHER, *more)
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


def reason(error: BaseException) -> str:
    """Returns the message of an error, or the name of its class if it has none, as a TimeoutError."""
    return str(error).strip() or type(error).__name__


def is_refused_data(error: psycopg.Error) -> bool:
    """Returns whether the database refuses a statement for the values in it: invalid (SQLSTATE class 22), against a
    constraint (23) or too large (54). The same values are refused again."""
    return (error.sqlstate or "")[:2] in _REFUSED_DATA


def is_retriable(error: BaseException) -> bool:
    """Returns whether what failed so at the broker may be sent again as it is: it was not refused for what it is.

    That is what Kafka calls retriable, and what only says that this producer or member has to be replaced: after a
    refused record aiokafka's count of what it sent to the partition is wrong, and the broker refuses all that follows.
    A producer whose sending task died says so by the bare `KafkaError`.
    """
    if not isinstance(error, kafka.KafkaError):
        return False
    return error.retriable or isinstance(error, _ALSO_RETRIABLE) or type(error) is kafka.KafkaError


def is_retriable_code(code: int) -> bool:
    """The same of an error code in a broker's answer."""
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
"""Retriable in the sense of `is_retriable`, though aiokafka's flag does not say so."""

_CODES_WITHOUT_A_NAME = frozenset({74, 75, 78, 100})
"""Retriable codes that aiokafka has no class for: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE,
UNKNOWN_TOPIC_ID."""
