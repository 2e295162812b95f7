"""Errors of the LLM service; they need no Pipecat."""

from __future__ import annotations

from frameledger.errors import TransientError


class AskingError(TransientError):
    """An inference request was not answered. The message says how far it came.

    Remedy: Check that the broker, a projector and an inference worker run (`frameledger status`), and ask again.
    """
