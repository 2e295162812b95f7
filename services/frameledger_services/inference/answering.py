"""Answers one run: reads its context, calls the model, and publishes its output as it arrives.

What happens if the process dies between any two steps of an attempt:

    claimed                   nothing is on the log; when the lease ends another worker takes the run, next attempt
    start published           the run's attempt has begun; the next attempt's start replaces it
    text published            the next attempt's start retracts all text and thoughts of this one
    announcement published    its calls are kept and not dispatched; the next attempt's start discards them
    end published             the run is closed and its calls are dispatched: this was the commit
    claim finished            nothing is left to do

If it dies after the end and before the claim is finished, the worker that takes the run over finds it closed and does
nothing. If an end was sent but not acknowledged and a next attempt starts, the log decides: the first of the two that
is folded wins, and the other's frames are ignored. A worker that is frozen instead of dead has lost its lease when it
resumes, and publishes nothing; what it had sent before belongs to an older attempt.
"""

from __future__ import annotations

import asyncio
from typing import Any

from frameledger_services import logs
from frameledger_services.claims import ClaimedRun
from frameledger_services.inference.answer_attempt import AnswerAttempt, pause
from frameledger_services.inference.dependencies import RunDependencies, RunOutcome
from frameledger_services.providers.errors import ConnectionLostError
from frameledger_services.providers.service import LLMService

MAX_FAILURES = 3
"""Maximum number of failed attempts of a run; then a fatal error closes it (R4.4). An attempt fails if its worker dies,
or if the answer breaks off while this worker has the run. An attempt that its worker released, as on SIGTERM, has not
failed."""

MAX_ATTEMPTS = 10
"""Maximum number of attempts of a run, however they ended, so that no model is called for ever."""

_log = logs.get_logger("inference")


async def answer(run: ClaimedRun, model: LLMService[Any], deps: RunDependencies) -> RunOutcome:
    """Answer a run, up to its terminal frame. If cancelled, it closes the provider's stream and publishes nothing more.

    A provider's failure becomes a frame, and this returns. Raises what `deps` raises.
    """
    number: int | None = run.attempt
    failures = run.deaths
    while number is not None:
        attempt = AnswerAttempt(run, number, model, deps)
        if failures >= MAX_FAILURES:
            return await attempt.give_up(f"{failures} workers died while they answered.")
        if number > MAX_ATTEMPTS:
            return await attempt.give_up(f"{MAX_ATTEMPTS} attempts were started, and none was completed.")
        lost = await attempt.run()
        if lost is None:
            return "done"
        failures += 1
        if failures == MAX_FAILURES:
            return await attempt.give_up(
                f"{MAX_FAILURES} attempts failed. In the last one the answer broke off: {lost.message}"
            )
        reason = deps.redacted(lost.message)
        _log.warning(
            "run.answer_broke_off",
            context_id=run.context_id,
            run_id=run.run_id,
            attempt=number,
            reason=reason,
        )
        if not isinstance(lost, ConnectionLostError):
            # The provider answers with an error: it gets the time that it requests.
            await asyncio.sleep(pause(failures - 1, lost.retry_after))
        number = await deps.next_attempt(number)
    return "release"
