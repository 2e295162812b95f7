"""The summary of many reruns: the number of equal answers, and the usage of both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from frameledger_services.forks.answer import ModelAnswer, UsedTokens
from frameledger_services.forks.compared import ComparedAnswers
from frameledger_services.forks.comparison import AnswerComparison


@dataclass(slots=True)
class Side:
    """The usage of one side of the comparison. Unknown values are not added."""

    tokens: UsedTokens = field(default_factory=UsedTokens)
    seconds: float = 0.0
    price: float | None = None

    def add(self, answer: ModelAnswer) -> None:
        self.tokens += answer.tokens
        self.seconds += answer.seconds or 0.0
        if answer.price is not None:
            self.price = (self.price or 0.0) + answer.price


@dataclass(slots=True)
class Summary:
    """Counts over reruns of runs that have a recorded answer."""

    reruns: int = 0
    same: int = 0
    text_differs: int = 0
    calls_differ: int = 0
    failed: int = 0
    """The number of reruns whose provider failed; they are not compared."""

    calls_not_available: int = 0
    """The number of calls that the original did not make."""

    left_out: int = 0
    """Runs whose context does not fit into the first frame of a rerun."""

    unpriced: set[str] = field(default_factory=set)
    """Models that are missing in the price list, if there is one: their cost is not in the sums."""

    recorded: Side = field(default_factory=Side)
    rerun: Side = field(default_factory=Side)

    def add(self, answers: ComparedAnswers) -> None:
        """Add the reruns of a run."""
        self.unpriced |= answers.unpriced
        for rerun, comparison in answers.reruns:
            self.reruns += 1
            self.calls_not_available += sum(call.answered == "not available" for call in rerun.calls)
            if answers.recorded is not None:
                self.recorded.add(answers.recorded)
            self.rerun.add(rerun)
            if comparison is None:
                self.failed += 1
            else:
                self._compare(comparison)

    def _compare(self, comparison: AnswerComparison) -> None:
        self.same += comparison.same
        self.text_differs += not comparison.same_text
        self.calls_differ += not comparison.same_calls

    def to_json(self) -> dict[str, Any]:
        return {
            "reruns": self.reruns,
            "same": self.same,
            "text_differs": self.text_differs,
            "calls_differ": self.calls_differ,
            "failed": self.failed,
            "calls_not_available": self.calls_not_available,
            "left_out": self.left_out,
            "unpriced": sorted(self.unpriced),
            "recorded": side_to_json(self.recorded.tokens, self.recorded.seconds, self.recorded.price),
            "rerun": side_to_json(self.rerun.tokens, self.rerun.seconds, self.rerun.price),
        }


def side_to_json(tokens: UsedTokens, seconds: float | None, price: float | None) -> dict[str, Any]:
    """Returns the usage as JSON: tokens, seconds to the millisecond, and the price if it is known."""
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_write_tokens": tokens.cache_write,
        "seconds": None if seconds is None else round(seconds, 3),
        "price": None if price is None else round(price, 8),
    }
