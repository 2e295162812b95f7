"""`react`: the effects of one frame, which request or stop work.

A rebuild folds and does not react, so replaying a conversation can never call a model or a tool again.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from frameledger import derived
from frameledger.effects import CallFunction, Cancel, Effect, RunInference
from frameledger.evolve.state import Call, State
from frameledger.frames import AnyFrame, FunctionCallResultFrame, LLMFullResponseEndFrame


def react(
    before: State, frame: AnyFrame, after: State, causation_id: UUID | None = None
) -> tuple[Effect, ...]:
    """Returns the effects of the frame that led from `before` to `after`: inference to run, functions to call, work to
    stop.

    They name `causation_id`, the frame's id, as their cause. Their ids are derived from the frame's version, so
    publishing them twice has the effect of once. A recording has no effects (R4.5).
    """
    if before.runs is after.runs and before.calls is after.calls:
        return ()
    if after.terms.recording:
        return ()
    return (
        *_stopped_runs(before, frame, after, causation_id),
        *_stopped_calls(before, frame, after, causation_id),
        *_due(before, after, causation_id),
    )


def _due(before: State, after: State, causation_id: UUID | None) -> Iterator[Effect]:
    context_id, version = after.context_id, after.version
    run = after.runs.open
    if run is not None and run.opened_version == version and run.untouched:
        yield RunInference.of(context_id, version, run.run_id, causation_id)
    if before.calls is after.calls:
        return
    dispatched = [
        call
        for call in after.calls.open.values()
        if call.stage == "dispatched" and not _was_dispatched(before, call)
    ]
    for call in sorted(dispatched, key=lambda call: (call.requested_version, call.ordinal)):
        yield CallFunction.of(
            context_id,
            version,
            call.requested_version,
            call.ordinal,
            call.tool_call_id,
            call.function_name,
            call.announced.group_id if call.announced is not None else None,
            causation_id,
        )


def _was_dispatched(before: State, call: Call) -> bool:
    earlier = before.calls.open.get(call.tool_call_id)
    return (
        earlier is not None
        and earlier.requested_version == call.requested_version
        and earlier.stage == "dispatched"
    )


def _stopped_runs(
    before: State, frame: AnyFrame, after: State, causation_id: UUID | None
) -> Iterator[Effect]:
    """The run that was open is closed, and not by its own end: its worker may stop."""
    run = before.runs.open
    if run is None or (after.runs.open is not None and after.runs.open.run_id == run.run_id):
        return
    if isinstance(frame, LLMFullResponseEndFrame) and frame.run_id is not None:
        return
    effect_id = derived.effect_id(Cancel.effect, after.context_id, after.version, run.run_id)
    yield Cancel(effect_id, after.context_id, after.version, run_id=run.run_id, causation_id=causation_id)


def _stopped_calls(
    before: State, frame: AnyFrame, after: State, causation_id: UUID | None
) -> Iterator[Effect]:
    if before.calls is after.calls:
        return
    for call in before.calls.open.values():
        if _must_stop(call, frame, after):
            effect_id = derived.effect_id(Cancel.effect, after.context_id, after.version, call.tool_call_id)
            yield Cancel(
                effect_id,
                after.context_id,
                after.version,
                tool_call_id=call.tool_call_id,
                causation_id=causation_id,
            )


def _must_stop(call: Call, frame: AnyFrame, after: State) -> bool:
    """Whether a worker may still be working on a call that this frame has settled or interrupted."""
    if call.stage not in ("dispatched", "running") or call.by_client:
        # Calls that a client answers have no worker (RA5.client).
        return False
    now = after.calls.open.get(call.tool_call_id)
    running = call.running
    if now is not None and now.requested_version == call.requested_version:
        return (
            running is not None
            and now.running is not None
            and now.running.interrupted
            and not running.interrupted
        )
    if running is not None:
        if running.interrupted:
            return False
        if isinstance(frame, FunctionCallResultFrame):
            its_worker_said_so = frame.call_attempt == running.call_attempt
            return not its_worker_said_so
    return True
