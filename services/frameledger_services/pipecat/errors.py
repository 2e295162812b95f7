"""Errors of the bridge that need no Pipecat."""

from __future__ import annotations

from frameledger.errors import FencedError, TransientError


class AskingError(TransientError):
    """An inference request was not answered. The message says how far it came.

    Remedy: Check that the broker, a projector and an inference worker run (`frameledger status`), and ask again.
    """


class TakenOverError(FencedError):
    """Another process restored the conversation while this one did: it keeps the history from then on, and what this
    one records of messages is ignored.

    Remedy: Leave the conversation to the other process, or restore it again, which takes it over in turn.
    """

    def __init__(self, context_id: str) -> None:
        super().__init__(
            f"Another process restored {context_id!r} meanwhile and keeps its history: what this one would record of "
            "messages is ignored."
        )
        self.context_id = context_id
