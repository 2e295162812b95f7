"""The start of a call: whether its handler may begin, and what becomes of the call if it may not.

An unsafe handler begins on the word of the log alone: its start was published, folded as applied, and read. For one
that is safe to retry the claim is the read, if there is one. That a handler did not run is said before that, under the
claim: it counts only if the start that names the claim does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from frameledger_services.event_log.producer import TooLargeError
from frameledger_services.functions import words
from frameledger_services.functions.ledger import Standing
from frameledger_services.functions.taken import Taken
from frameledger_services.work import Ending, LeaseLostError

_log = structlog.get_logger("functions")


async def settled_as_taken_over(taken: Taken, before: Standing) -> bool:
    """Settle a call that an earlier attempt had started, unless it is to be run again.

    An unsafe handler never begins where the ledger shows the call as started, by whomever, on whatever terms.
    """
    speaker = taken.speaker
    if before.interrupted_version is not None:
        if before.safe_to_retry or before.by_timekeeper:
            await speaker.cancel_interrupted(before.interrupted_version, own=False)
        else:
            await speaker.ambiguous(run_llm=False)
    elif before.safe_to_retry and taken.plan.options.safe_to_retry:
        if not taken.is_late:
            return False
        await speaker.cancel_late(own=False)
    elif before.by_timekeeper:
        await speaker.settle("failed", words.late(taken.call.function_name), own=False)
    else:
        await speaker.ambiguous()
    return True


async def publish(taken: Taken, release_order: Callable[[], None]) -> None:
    """Publish the in-progress frame. Calls `release_order` once that has its place on the log, or never will.

    Raises nothing: it runs beside the call, which hears by its inbox that it cannot be started.
    """
    try:
        await _published(taken)
    except LeaseLostError:
        taken.inbox.tell("lost")
    finally:
        release_order()


async def _published(taken: Taken) -> None:
    call, speaker = taken.call, taken.speaker
    try:
        await speaker.publish(call.in_progress(taken.plan.options, taken.plan.timeout_secs))
        await taken.failpoint("in progress")
    except (TooLargeError, ValueError) as error:
        # It cannot be started, and so has no place for a result: it was announced with just as many bytes as the
        # log takes, and its start has some more.
        _log.error("a call cannot be started", **call.names(), error=str(error))
        await speaker.publish(call.error(str(error)), call.cancel(run_llm=True))
        taken.inbox.tell("over")


async def until_it_may_run(taken: Taken, folded: asyncio.Future[Standing]) -> Ending | None:
    """Wait for the log's word; null if it is that this worker runs the call."""
    inbox = taken.inbox
    folded.add_done_callback(lambda _: inbox.wake())
    give_up_at, draining = taken.deadline, False
    while not folded.done() and taken.now() < give_up_at:
        told = inbox.take_told()
        if told == "lost":
            return "release"
        if told == "draining":
            draining = True
            give_up_at = min(give_up_at, taken.stops_by())
        if told == "over":
            standing = await taken.read_again()
            if standing is None:
                return "release"
            if not standing.is_open:
                return "over"
        await inbox.wait(give_up_at)
    if not folded.done():
        if not taken.is_late:
            return "release"
        # If the start that is folded first is another worker's, this counts for nothing.
        await taken.speaker.cancel_late()
        return "done"
    standing = folded.result()
    if draining or not standing.may_run(taken.call):
        return await not_run(taken, standing)
    await taken.failpoint("folded")
    return None


async def not_run(taken: Taken, standing: Standing | None) -> Ending:
    """The handler did not begin, and will not: say what that means for the call. Null: it cannot be known."""
    call, speaker = taken.call, taken.speaker
    if standing is None:
        return "release"
    if not standing.is_open:
        return "over"
    if (standing.attempt or 0) > (call.attempt or 0):
        # Another worker's by now. If its claim was lost, ours is to be taken with an attempt above that.
        return "release"
    if not standing.is_started_by(call):
        # Another worker had started it, and what it did is not known.
        await speaker.ambiguous(run_llm=None if standing.interrupted_version is None else False)
    elif standing.interrupted_version is not None:
        await speaker.cancel_interrupted(standing.interrupted_version)
    elif taken.is_late:
        await speaker.cancel_late()
    else:
        await speaker.settle("failed", words.not_run(call.function_name))
    return "done"
