"""Errors of publishing: what the publisher has to do, and which records are known to be on the log."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka import errors as kafka_errors

from frameledger.errors import RefusedError, TransientError
from frameledger.record import LogPosition
from frameledger_services.transient import EventLogError


class PublishError(EventLogError):
    """Not all records are known to be on the log. `places` has the place of each, None for unacknowledged ones, which
    may still arrive. `partitions` is the number of partitions to which their keys are mapped; None if that is not
    known. A frame with an id can be published again without harm: it counts once.

    Remedy: `UnacknowledgedError`: publish them again. `RecordRefusedError`: correct them.
    """

    def __init__(
        self, sentence: str, places: Sequence[LogPosition | None], partitions: int | None = None
    ) -> None:
        super().__init__(sentence)
        self.places = tuple(places)
        self.partitions = partitions


class UnacknowledgedError(PublishError, TransientError):
    """The broker did not acknowledge all records in time.

    Remedy: Publish the records without a place again.
    """


class RecordRefusedError(PublishError, RefusedError):
    """The broker permanently rejects a record: it is too large, or the publisher may not write to the topic.

    Remedy: Make the frame smaller, or grant the publisher permission to write to the topic.
    """


class TooLargeError(RecordRefusedError):
    """A record is larger than its topic accepts.

    Remedy: Make the frame smaller, or raise the topic's `max.message.bytes`. No setting of the publisher changes
    that.
    """


def refused(topic: str, failure: BaseException, places: Sequence[LogPosition | None]) -> RecordRefusedError:
    """Returns the error for records that the broker refuses, given its reply."""
    is_too_large = isinstance(failure, kafka_errors.MessageSizeTooLargeError)
    return (TooLargeError if is_too_large else RecordRefusedError)(_refusal(topic, failure), places)


def unacknowledged(
    topic: str,
    places: Sequence[LogPosition | None],
    within: float,
    last_error: BaseException | None,
    why: str | None,
    partitions: int | None,
) -> UnacknowledgedError:
    """Returns the error for records that have no position `within` the deadline. `why` is the reason that a broker
    reports, if any."""
    pending = sum(place is None for place in places)
    because = "" if last_error is None else f" The last error: {last_error!r}."
    sentence = (
        f"{pending} of {len(places)} records for {topic} were not acknowledged within {within:g} s; they may still "
        f"arrive.{because} "
        + (why or "Is the broker up, with as many copies in sync as min.insync.replicas requires?")
    )
    return UnacknowledgedError(sentence, places, partitions)


def _refusal(topic: str, error: BaseException) -> str:
    if isinstance(error, kafka_errors.MessageSizeTooLargeError):
        return (
            f"A record is larger than {topic} accepts. `frameledger topics` says whether the topic's max.message.bytes "
            "is what it should be."
        )
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        return f"We are not allowed to write to {topic}: grant the user of FRAMELEDGER_KAFKA_SASL_... that permission."
    return f"The broker does not accept a record for {topic}: {error!r}."
