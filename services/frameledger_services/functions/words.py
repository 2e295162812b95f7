"""What the model reads as the result of a call that did not go as it should. Nothing here tells what went wrong inside:
error texts carry secrets, and go to the log only (semantics 5.6)."""

from __future__ import annotations

from frameledger_services.call_words import ambiguous, late, missing

__all__ = ["ambiguous", "failed", "late", "missing", "no_json", "not_run", "too_large"]


def failed(name: str) -> str:
    return f"The function `{name}` failed."


def no_json(name: str) -> str:
    return f"The function `{name}` finished, but its result cannot be shown: it is no JSON."


def too_large(name: str) -> str:
    return f"The function `{name}` finished, but its result is too large to be shown. Ask it for less."


def not_run(name: str) -> str:
    return f"The function `{name}` was not run: its service is being stopped. It may be called again."
