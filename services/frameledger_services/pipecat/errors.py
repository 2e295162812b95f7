"""Errors of the bridge that need no Pipecat."""

from __future__ import annotations

from frameledger.errors import FencedError, TransientError


class AskingError(TransientError):
    """An inference request was not answered. The message says how far it got.

    Remedy: Check that the broker, a projector and an inference worker run (`frameledger status`), and ask again.
    """


class TakenOverError(FencedError):
    """Another process restored the conversation at the same time. That process now keeps the history, and messages
    that this process records are ignored.

    Remedy: Leave the conversation to the other process, or restore it again, which takes it back.
    """

    def __init__(self, context_id: str) -> None:
        super().__init__(
            f"Another process restored {context_id!r} at the same time and keeps its history: messages that this "
            "process records are ignored."
        )
        self.context_id = context_id
