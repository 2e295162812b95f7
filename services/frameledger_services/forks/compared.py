"""A recorded answer compared with the answers of other models."""

from __future__ import annotations

from dataclasses import dataclass, replace

from frameledger_services.forks.answer import ModelAnswer
from frameledger_services.forks.comparison import AnswerComparison, compare
from frameledger_services.forks.original import Original
from frameledger_services.forks.prices import Prices


@dataclass(frozen=True, slots=True)
class ComparedAnswers:
    """A moment, its recorded answer, and each new answer with its differences."""

    context_id: str
    version: int
    recorded: ModelAnswer | None
    reruns: tuple[tuple[ModelAnswer, AnswerComparison | None], ...]
    """None for a rerun that cannot be compared: there is no recorded answer, or the provider failed."""

    unpriced: frozenset[str] = frozenset()
    """Models that are missing in the price list, if there is one."""

    @property
    def same(self) -> bool:
        """Whether every rerun has the same text and calls as the recorded answer."""
        return all(comparison is not None and comparison.same for _, comparison in self.reruns)


def compared(original: Original, reruns: list[ModelAnswer], prices: Prices | None) -> ComparedAnswers:
    """Returns a moment with its reruns, their differences and costs."""
    recorded = None if original.answer is None else _priced(original.answer, prices)
    return ComparedAnswers(
        original.stored.context_id,
        original.stored.version,
        recorded,
        tuple(
            (
                _priced(rerun, prices),
                None if recorded is None or rerun.error is not None else compare(recorded, rerun),
            )
            for rerun in reruns
        ),
        _unpriced([*([] if recorded is None else [recorded]), *reruns], prices),
    )


def _unpriced(answers: list[ModelAnswer], prices: Prices | None) -> frozenset[str]:
    if prices is None:
        return frozenset()
    return frozenset(
        f"{answer.provider}/{answer.model}"
        for answer in answers
        if answer.model is not None and not prices.has(answer.provider, answer.model)
    )


def _priced(answer: ModelAnswer, prices: Prices | None) -> ModelAnswer:
    if prices is None:
        return answer
    return replace(answer, price=prices.of(answer.provider, answer.model, answer.tokens))
