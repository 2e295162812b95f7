"""The recorded answer at a version of a conversation: its run, and the runs that its calls led to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add

from frameledger.frames import ForkedFrom, types_said_by
from frameledger_services.client import forking
from frameledger_services.database_types import Connection
from frameledger_services.forks.answer import AnswerCall, ModelAnswer, UsedTokens
from frameledger_services.store import reruns
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.reruns import RecordedCall, RecordedRun

MAX_RUNS = 50
"""The maximum number of runs of one answer that are read."""

MAX_CALLS = 1_000
"""Maximum calls after the moment whose results are available: a rerun makes few calls."""

WITH_RESULT = frozenset({"done", "failed"})
"""Statuses of calls whose results are recorded. The result of an ambiguous call is unknown."""

_OF_FUNCTIONS = frozenset(types_said_by("function"))


@dataclass(frozen=True, slots=True)
class Original:
    """A recorded moment that can be rerun."""

    stored: StoredContext
    """The context as the model saw it."""

    origin: ForkedFrom

    answer: ModelAnswer | None
    """The recorded answer; None if no run read this version."""

    calls: tuple[RecordedCall, ...]
    """Later calls, whose results are available to reruns."""


async def original(connection: Connection, context_id: str, version: int) -> Original:
    """Returns a moment with its recorded answer and calls. Raises what `forking.moment` raises."""
    moment = await forking.moment(connection, context_id, version)
    runs = await reruns.runs_from(connection, context_id, version, MAX_RUNS)
    calls = await reruns.calls_from(connection, context_id, version, MAX_CALLS)
    answer = None
    if runs and runs[0].opened_version == moment.stored.version:
        turn = turn_of(runs, calls)
        texts = await reruns.texts_of(connection, context_id, [run.run_id for run in turn])
        answer = _answer(turn, calls, texts)
    return Original(
        moment.stored, moment.origin, answer, tuple(call for call in calls if call.status in WITH_RESULT)
    )


def turn_of(runs: Sequence[RecordedRun], calls: Sequence[RecordedCall]) -> list[RecordedRun]:
    """Returns the runs of the answer that begins with the first of these: after a run with calls, the next run belongs
    to it if a call's result requested that run."""
    turn = [runs[0]]
    for run in runs[1:]:
        if not _calls_of(turn[-1], calls) or run.trigger not in _OF_FUNCTIONS:
            break
        turn.append(run)
    return turn


def _answer(
    turn: Sequence[RecordedRun], calls: Sequence[RecordedCall], texts: Mapping[str, str]
) -> ModelAnswer:
    answer_calls = [call for run in turn for call in _calls_of(run, calls)]
    first, last = turn[0], turn[-1]
    return ModelAnswer(
        text="\n".join(text for run in turn if (text := run.said or texts.get(run.run_id))),
        calls=tuple(AnswerCall(call.function_name, call.arguments) for call in answer_calls),
        provider=first.provider,
        model=first.model,
        requests=len(turn),
        tokens=reduce(add, (_tokens(run) for run in turn)),
        seconds=_added(_seconds(run.started_at, run.closed_at) for run in turn),
        first_text_seconds=_first_text(turn),
        error=last.error if last.status == "failed" else None,
        run_id=first.run_id,
    )


def _calls_of(run: RecordedRun, calls: Sequence[RecordedCall]) -> list[RecordedCall]:
    return [call for call in calls if call.run_id == run.run_id]


def _tokens(run: RecordedRun) -> UsedTokens:
    return UsedTokens(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens)


def _first_text(turn: Sequence[RecordedRun]) -> float | None:
    """Returns the time of the first text, in seconds of the requests."""
    before = 0.0
    for run in turn:
        if run.first_text_at is not None:
            seconds = _seconds(run.started_at, run.first_text_at)
            return None if seconds is None else before + seconds
        before += _seconds(run.started_at, run.closed_at) or 0.0
    return None


def _added(durations: Iterable[float | None]) -> float | None:
    known = [one for one in durations if one is not None]
    return sum(known) if known else None


def _seconds(since: datetime | None, until: datetime | None) -> float | None:
    return None if since is None or until is None else (until - since).total_seconds()
