"""Errors of the fold of a batch. The heads of the batch must not be used after one."""

from __future__ import annotations

from frameledger.errors import RefusedError
from frameledger.record import Record


class UnfoldableError(RefusedError):
    """The fold of a frame raised an exception, which is a bug of Frameledger. Its conversation is parked; the others
    continue.

    Remedy: Report the bug with the frame. With a release that has the fix, fold the conversation with `frameledger
    unpark`.
    """

    def __init__(self, record: Record, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.record = record


class PossibleDuplicateError(RefusedError):
    """A recent id arrived again with other bytes: only the stored payload shows whether it is the same frame.

    Remedy: None is needed: the projector folds the batch again with `stored_ids`.
    """
