"""The usage of the runs of a turn in the protocol's format: one entry for each provider and model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from frameledger.frames import LLMFullResponseEndFrame, LLMFullResponseStartFrame

_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cachedInputTokens",
    "cache_write_tokens": "cacheWriteInputTokens",
    "reasoning_tokens": "reasoningTokens",
}

MAX_INTEGER = 2**53 - 1
"""The largest integer that JSON parsers with doubles read exactly. A larger number is left out."""


class RunUsage:
    """Sums the usage that the ends of responses report."""

    def __init__(self) -> None:
        self._used: dict[tuple[str | None, str | None], Counter[str]] = {}
        self._model: tuple[str | None, str | None] = (None, None)

    def began(self, frame: LLMFullResponseStartFrame) -> None:
        """Record which model answers."""
        self._model = (frame.provider, frame.model)

    def ended(self, frame: LLMFullResponseEndFrame) -> None:
        """Add the usage of an answer."""
        if frame.usage is None:
            return
        used = self._used.setdefault(self._model, Counter())
        for ours, theirs in _COUNTS.items():
            count = getattr(frame.usage, ours)
            if count is not None:
                used[theirs] += count

    def field(self) -> dict[str, Any]:
        """Returns the field `usage` of an event, or nothing if no usage is known. A count that no provider gave is
        absent."""
        entries: list[dict[str, Any]] = []
        for (provider, model), used in self._used.items():
            if not used:
                continue
            about = {"provider": provider, "model": model}
            counts = dict(used)
            if "inputTokens" in used and "outputTokens" in used:
                counts["totalTokens"] = used["inputTokens"] + used["outputTokens"]
            entry = {name: one for name, one in about.items() if one is not None}
            entries.append(entry | {name: count for name, count in counts.items() if count <= MAX_INTEGER})
        return {"usage": entries} if entries else {}
