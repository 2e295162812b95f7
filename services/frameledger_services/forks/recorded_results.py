"""The recorded results of a conversation, for the calls of a rerun."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from frameledger_services.forks.canonical import canonical
from frameledger_services.store.reruns import RecordedCall

NOT_AVAILABLE = "not available in a rerun"
"""The result that a model reads for a call that was not made in the original."""


class RecordedResults:
    """Results by function and arguments. Each is used once, those of equal calls in the order of the calls."""

    def __init__(self, calls: Iterable[RecordedCall]) -> None:
        self._left: dict[tuple[str, str], deque[RecordedCall]] = defaultdict(deque)
        for call in calls:
            self._left[call.function_name, canonical(call.arguments)].append(call)

    def take(self, function_name: str, arguments: Any) -> RecordedCall | None:
        """Returns the next unused recorded call of this name with equal arguments; None if there is none."""
        left = self._left.get((function_name, canonical(arguments)))
        return left.popleft() if left else None
