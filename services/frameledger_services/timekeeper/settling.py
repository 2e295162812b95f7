"""Makes the frame that settles overdue work. Pure: the same row gives the same bytes.

If two timekeepers see the same, they publish one frame twice, which counts once. Each frame names what it settles, and
is ignored once that has ended. Its id names the rule, the subject and the version of the context that was judged, so a
later settlement is never taken for a repetition. No text contains a time or a limit: another timekeeper's may differ,
and two contents under one id are an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from frameledger.frames import (
    AnyFrame,
    BotStoppedSpeakingFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    UserStoppedSpeakingFrame,
)
from frameledger_services import call_words
from frameledger_services.claims.overdue_calls import OverdueCall
from frameledger_services.claims.overdue_runs import OverdueRun
from frameledger_services.claims.timekeeper_claims import HeldCall
from frameledger_services.store.overdue import OverdueSpeech, OverdueTurn

IDS = UUID("0f6a3c52-9d1e-5b87-a4c6-7e2b90d8f153")
"""The namespace of the timekeeper's frame ids. It never changes: stored ids are derived from it."""

RUN_UNCLAIMED = (
    "No inference service took this run, so it was given up. Is one running that serves its model "
    "(`frameledger run inference`)?"
)
RUN_SILENT = "Nothing more came of this answer, so it was given up. What was said so far is kept."


@dataclass(frozen=True, slots=True)
class Settlement:
    """A frame to be published in a context. `rule` is for the service's logs.

    `causation_id` is the frame that opened what it settles: a run, a call, a turn or speech.
    """

    rule: str
    context_id: str
    frame: AnyFrame
    causation_id: UUID


def run_unclaimed(run: OverdueRun) -> Settlement:
    """Fail the run; a pending run of its context opens."""
    return _failed("run_unclaimed", run, RUN_UNCLAIMED)


def run_silent(run: OverdueRun) -> Settlement:
    """Fail the run and keep the text so far; a pending run of its context opens."""
    return _failed("run_silent", run, RUN_SILENT)


def call_overdue(call: OverdueCall) -> Settlement:
    """End a call that its worker did not end by its deadline. It requests a run, unless the call was interrupted.

    The call is cancelled if it is not running or may run twice; otherwise it is ambiguous, because it may have been
    executed.
    """
    return _ended("call_overdue", call)


def call_abandoned(call: OverdueCall) -> Settlement:
    """End an interrupted call whose worker is dead, as at its deadline, but without requesting a run."""
    return _ended("call_abandoned", call)


def call_lost(call: OverdueCall) -> Settlement:
    """End a call whose worker died: as ambiguous if it had started, because it may have been executed; as cancelled if
    it may run twice and no worker runs it again, or if it waited in the worker's queue."""
    return _ended("call_lost", call)


def waiting_overdue(call: OverdueCall) -> Settlement:
    """Cancel a call that no person answered in time. The model continues."""
    return _cancelled("waiting_overdue", call)


def call_left(call: OverdueCall) -> Settlement:
    """Cancel a call whose client never returned. Requests no run: no client is there to read an answer."""
    return _cancelled("call_left", replace(call, interrupted=True))


def turn_overdue(turn: OverdueTurn) -> Settlement:
    """Publish the user's missing stop. If the turn was already stopped, the second stop closes it with the words
    received so far.

    There may be only one missing stop, because a second one would not wait for the final words. So its id names the
    last frame of the user and not the context's version, which two timekeepers may see differently.
    """
    rule = "final_words" if turn.waits else "user_stop"
    judged = turn.version if turn.waits else turn.heard_version
    frame = UserStoppedSpeakingFrame(
        id=_id(rule, turn.context_id, judged, str(turn.opened_version)), opened_version=turn.opened_version
    )
    return Settlement(rule, turn.context_id, frame, turn.causation_id)


def bot_overdue(speech: OverdueSpeech) -> Settlement:
    """Publish the bot's missing stop, which also triggers the runs that were deferred until then."""
    frame = BotStoppedSpeakingFrame(
        id=_id("bot_stop", speech.context_id, speech.version, str(speech.since_version)),
        opened_version=speech.since_version,
    )
    return Settlement("bot_stop", speech.context_id, frame, speech.causation_id)


def held_call(call: HeldCall, worker_id: str) -> Settlement:
    """Returns the next frame of a call that this timekeeper has claimed: a nominal start, and once that is folded, the
    result.

    The start has no `safe_to_retry`, although nothing runs: the fold keeps the first start's value for the whole call,
    and would allow an unsafe function to be attempted again after ours. If this timekeeper dies, the next one sees the
    worker of the start, and answers the call. A call that a worker started after all is settled as by a takeover. A
    settlement does not name our claim: it counts for any start.
    """
    if call.status == "dispatched":
        return _start(call, worker_id)
    if call.ours:
        return _did_not_run(call)
    return _ended("call_taken_over", call, call_attempt=call.call_attempt)


def _failed(code: str, run: OverdueRun, message: str) -> Settlement:
    frame = ErrorFrame(
        id=_id(code, run.context_id, run.version, run.run_id),
        run_id=run.run_id,
        # The attempt that was judged: a later one is not silent.
        attempt=max(run.attempt, 1),
        fatal=True,
        code=code,
        message=message,
    )
    return Settlement(code, run.context_id, frame, run.causation_id)


def _ended(rule: str, call: OverdueCall | HeldCall, *, call_attempt: int | None = None) -> Settlement:
    if call.status == "running" and not call.safe:
        return _ambiguous(rule, call, call_attempt)
    return _cancelled(rule, call, call_attempt)


def _cancelled(rule: str, call: OverdueCall | HeldCall, call_attempt: int | None = None) -> Settlement:
    frame = FunctionCallCancelFrame(
        id=_call_id(rule, call),
        function_name=call_words.shown(call.function_name),
        tool_call_id=call.tool_call_id,
        run_llm=not call.interrupted,
        call_attempt=call_attempt,
        opened_version=call.requested_version,
    )
    return Settlement(rule, call.context_id, frame, call.causation_id)


def _ambiguous(rule: str, call: OverdueCall | HeldCall, call_attempt: int | None) -> Settlement:
    frame = FunctionCallResultFrame(
        id=_call_id(rule, call),
        function_name=call_words.shown(call.function_name),
        tool_call_id=call.tool_call_id,
        result=call_words.ambiguous(call.function_name),
        run_llm=False if call.interrupted else None,
        call_attempt=call_attempt,
        settled_as="ambiguous",
        opened_version=call.requested_version,
    )
    return Settlement(rule, call.context_id, frame, call.causation_id)


def _start(call: HeldCall, worker_id: str) -> Settlement:
    frame = FunctionCallInProgressFrame(
        id=_attempt_id("call_start", call),
        function_name=call.function_name,
        tool_call_id=call.tool_call_id,
        arguments=call.arguments,
        cancel_on_interruption=True,
        group_id=call.group_id,
        worker=worker_id,
        call_attempt=call.call_attempt,
        claim=call.claim,
        safe_to_retry=False,
    )
    return Settlement("call_start", call.context_id, frame, call.causation_id)


def _did_not_run(call: HeldCall) -> Settlement:
    rule, text = "call_not_available", call_words.missing(call.function_name)
    if call.served:
        rule, text = "call_not_started", call_words.late(call.function_name)
    frame = FunctionCallResultFrame(
        id=_attempt_id(rule, call),
        function_name=call_words.shown(call.function_name),
        tool_call_id=call.tool_call_id,
        result=text,
        call_attempt=call.call_attempt,
        settled_as="failed",
        opened_version=call.requested_version,
    )
    return Settlement(rule, call.context_id, frame, call.causation_id)


def _call_id(rule: str, call: OverdueCall | HeldCall) -> str:
    return _id(rule, call.context_id, call.version, f"{call.requested_version}:{call.tool_call_id}")


def _attempt_id(rule: str, call: HeldCall) -> str:
    """Returns the id of a frame of an attempt. An attempt is made under only one claim, so the id needs no version of
    the context."""
    return _id(rule, call.context_id, call.call_attempt, f"{call.effect_id}:{call.claim}")


def _id(rule: str, context_id: str, version: int, subject: str) -> str:
    return str(uuid5(IDS, f"{rule}:{version}:{len(subject)}:{subject}:{context_id}"))
