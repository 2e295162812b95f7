"""Converts the failure of an answer to a problem response."""

from __future__ import annotations

from frameledger_services.gateway.live.follower import ERASED, PARKED
from frameledger_services.gateway.openai.answer import Failure
from frameledger_services.gateway.problems import ProblemError

REFUSED = ("context_refused", "unmappable")
"""Codes of failures that another request can avoid."""

PERMANENT = ("provider_refused", PARKED)
"""Codes of failures that a retry cannot avoid."""


def problem_of(failure: Failure) -> ProblemError:
    """Returns the problem for this failure of an answer."""
    if failure.code == ERASED:
        # Not a 5xx: a retry would write the erased history into the conversation again.
        return ProblemError("erased", failure.message)
    word = "answer-refused" if failure.code in REFUSED else "answer-failed"
    # OpenAI's clients retry after a 5xx unless a header forbids it.
    headers = {"X-Should-Retry": "false"} if failure.code in PERMANENT else {}
    return ProblemError(word, failure.message, headers=headers, code=failure.code)
