"""Runs: when a model is called, and with which version of the context (R4, RA5.request).

One run is open per context. A run that is requested meanwhile is pending, at most one at a time, and opens when no run
is open and every committed call has started: a model that cannot see its call would make it again. A run that a result
requests while the user or the bot speaks is deferred to the end of that speech (`owed_to_turn`, `owed_to_bot`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frameledger import derived, tools
from frameledger.evolve.changes import RunClosed, RunEnd, RunOpened, RunRequested
from frameledger.evolve.draft import Draft
from frameledger.evolve.state import PendingRun, Run, Runs, Stage
from frameledger.ids import Position, RunId
from frameledger.values import replace

_COMMITTED: tuple[Stage, ...] = ("queued", "dispatched")
"""The stages of a call that was committed and has not started."""


def request(draft: Draft) -> None:
    """Request a run for a client's append, update, context frame or `LLMRunFrame`. In a recording, or where the model
    is run elsewhere, it is only noted (R4.5).
    """
    if draft.terms.ended:
        return
    runs = draft.runs
    if runs.wanted is not None:
        first = runs.wanted.asked_version == draft.version
        draft.changes.append(RunRequested(runs.wanted.run_id, first))
        return
    pending = PendingRun(derived.run_id(draft.context_id, draft.version), draft.version)
    draft.changes.append(RunRequested(pending.run_id))
    if draft.terms.is_answered_elsewhere:
        draft.runs = Runs(open=draft.runs.open, noted=pending.run_id)
    else:
        draft.runs = Runs(runs.open, pending, runs.owed_to_turn, runs.owed_to_bot)


def request_by_rule(draft: Draft) -> None:
    """Request a run now, for a user's turn or a deferred run that is due; not in a mirror, where only clients request
    runs (RA5.mirror)."""
    if draft.terms.mirror is None:
        request(draft)


def request_for_result(draft: Draft) -> None:
    """Request the run for a result or a cancel: deferred while the user has the floor, then while the bot speaks
    (R4.1)."""
    if draft.terms.ended or draft.terms.mirror is not None:
        return
    if draft.turn is not None and draft.turn.holds_floor:
        draft.runs = replace(draft.runs, owed_to_turn=True)
    elif draft.speech.bot_since is not None:
        draft.runs = replace(draft.runs, owed_to_bot=True)
    else:
        request(draft)


def bot_stopped(draft: Draft) -> None:
    """Request the run that was deferred to the bot's stop; if the user is speaking, defer it to the end of the turn
    (R4.1)."""
    if draft.runs.owed_to_bot:
        draft.runs = replace(draft.runs, owed_to_bot=False)
        request_for_result(draft)


def is_busy(draft: Draft) -> bool:
    """Whether a run that is requested now cannot open at once (R4.3)."""
    if draft.runs.open is not None:
        return True
    open_calls = draft.calls.open
    return bool(open_calls) and any(call.stage in _COMMITTED for call in open_calls.values())


def open_pending(draft: Draft) -> None:
    """Open the pending run if it can open; it replaces every deferred one too (R4.2, R4.3)."""
    pending = draft.runs.wanted
    if pending is None or is_busy(draft):
        return
    release(draft)
    of_clients = tools.client_functions(draft.terms.tools)
    draft.runs = Runs(Run(pending.run_id, pending.asked_version, draft.version, client_functions=of_clients))
    draft.changes.append(RunOpened(pending.run_id))


def hold(draft: Draft, messages: Sequence[Mapping[str, Any]]) -> None:
    """Hold messages until the pending run opens (R7.5)."""
    pending = draft.runs.wanted
    if pending is not None:
        held = replace(pending, held=(*pending.held, *messages))
        draft.runs = replace(draft.runs, wanted=held)


def release(draft: Draft) -> None:
    """Write the messages that waited for the pending run, which opens or is dropped (R7.5)."""
    pending = draft.runs.wanted
    if pending is None or not pending.held:
        return
    draft.runs = replace(draft.runs, wanted=replace(pending, held=()))
    for message in pending.held:
        draft.append(message)
        if message.get("role") == "user":
            draft.keep_said()


def put(draft: Draft, run: Run | None) -> None:
    """Set the open run, or none."""
    runs = draft.runs
    draft.runs = Runs(run, runs.wanted, runs.owed_to_turn, runs.owed_to_bot, runs.noted)


def close(draft: Draft, end: RunEnd) -> None:
    """Close the open run, if there is one: nothing more of it is accepted."""
    run = draft.runs.open
    if run is not None:
        put(draft, None)
        draft.changes.append(RunClosed(run.run_id, end))


def close_if_open(draft: Draft, run_id: RunId | None, end: RunEnd) -> None:
    """Close this run, if it is the open one."""
    if draft.runs.open is not None and draft.runs.open.run_id == run_id:
        close(draft, end)


def drop_pending(draft: Draft) -> None:
    """Drop the pending run and the deferred ones (R1.6, R4.5); a noted run still waits for its answer."""
    release(draft)
    draft.runs = Runs(open=draft.runs.open, noted=draft.runs.noted)


def remember_position(draft: Draft, run_id: RunId | None, position: Position | None) -> None:
    """Record a message of the open run, if there is one, so that its next attempt can retract it."""
    run = draft.runs.open
    if position is not None and run is not None and run.run_id == run_id:
        put(draft, replace(run, positions=(*run.positions, position)))


def forget_position(draft: Draft, position: Position) -> None:
    """Record that a client rewrote a message, so that the open run's next attempt does not retract it."""
    run = draft.runs.open
    if run is not None and position in run.positions:
        positions = tuple(one for one in run.positions if one != position)
        put(draft, replace(run, positions=positions))


def forget_positions(draft: Draft) -> None:
    """Record that the history was replaced, including everything that the open run's attempts wrote."""
    run = draft.runs.open
    if run is not None and run.positions:
        put(draft, replace(run, positions=()))
