"""Reruns as JSON."""

from __future__ import annotations

from typing import Any

from frameledger_services.forks.answer import AnswerCall, ModelAnswer
from frameledger_services.forks.compared import ComparedAnswers
from frameledger_services.forks.comparison import AnswerComparison
from frameledger_services.forks.summary import side_to_json


def compared(answers: ComparedAnswers) -> dict[str, Any]:
    """Returns a version, its recorded answer, and the answer of each rerun."""
    return {
        "context_id": answers.context_id,
        "version": answers.version,
        "recorded": None if answers.recorded is None else _answer(answers.recorded),
        "reruns": [_answer(rerun) | _differences(comparison) for rerun, comparison in answers.reruns],
    }


def _answer(answer: ModelAnswer) -> dict[str, Any]:
    names = {"run_id": answer.run_id, "context_id": answer.context_id}
    return {
        **{name: value for name, value in names.items() if value is not None},
        "provider": answer.provider,
        "model": answer.model,
        "text": answer.text,
        "calls": [_call(call) for call in answer.calls],
        "requests": answer.requests,
        **side_to_json(answer.tokens, answer.seconds, answer.price),
        "first_text_seconds": (
            None if answer.first_text_seconds is None else round(answer.first_text_seconds, 3)
        ),
        "error": answer.error,
    }


def _call(call: AnswerCall) -> dict[str, Any]:
    fields = {"function_name": call.function_name, "arguments": call.arguments}
    return fields if call.answered is None else {**fields, "answered": call.answered}


def _differences(comparison: AnswerComparison | None) -> dict[str, Any]:
    if comparison is None:
        return {}
    return {
        "same_text": comparison.same_text,
        "same_calls": comparison.same_calls,
        "text_diff": [[piece.kind, piece.text] for piece in comparison.text],
    }
