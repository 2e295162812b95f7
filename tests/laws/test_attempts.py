"""A superseded attempt, a closed run or a forgotten call affects neither the context nor the outside world."""

import json

import pytest
from hypothesis import example, given
from tests.laws.strategies import Moment, conversation_of, conversations, moments, words_in

from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallKey,
    CallProgressed,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
    EraBegan,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
    RunClosed,
    RunOpened,
    RunStarted,
)
from frameledger.frames import (
    FunctionCallsStartedFrame,
    HeardFrame,
    LLMFullResponseStartFrame,
    LLMMessageRewriteFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    TextFrame,
)

Said = TextFrame | LLMThoughtTextFrame


def said_by_a_model(moment: Moment) -> bool:
    return isinstance(moment.frame, Said) and not isinstance(moment.frame, HeardFrame)


@pytest.mark.rule("RA5.attempts", "RA5.fence", "RA5.adopt", "R2.1")
@example(conversation_of([0] * 42 + [1, 1, 15183, 222363, 48, 188, 113913, 292]))
@given(conversations())
def test_no_word_of_a_superseded_attempt_or_a_closed_run_is_in_the_context(frames):
    """A thought belongs to the response in which it begins, whatever begins before it ends."""
    owners: dict[str, tuple[str, int]] = {}
    barred: set[str] = set()
    answering: tuple[str, int] | None = None
    thinking: tuple[str, int] | None = None
    for moment in moments(frames):
        started = [change for change in moment.step.changes if isinstance(change, RunStarted)]
        if isinstance(moment.frame, LLMFullResponseStartFrame) and moment.step.outcome == "applied":
            answering = (started[-1].run_id, started[-1].attempt) if started else None
        if isinstance(moment.frame, LLMThoughtStartFrame) and moment.step.outcome == "applied":
            thinking = answering
        for start in started:
            earlier = {
                word
                for word, (run_id, attempt) in owners.items()
                if run_id == start.run_id and attempt < start.attempt
            }
            if moment.after.terms.mirror is None:
                barred |= earlier
            else:
                # What was written before somebody else began to keep the history is theirs to take back.
                owners = {word: owner for word, owner in owners.items() if word not in earlier}
        if said_by_a_model(moment):
            words = words_in(moment.frame.text)
            if moment.step.outcome != "applied" or not getattr(moment.frame, "append_to_context", True):
                barred |= words
            elif (
                owner := thinking if isinstance(moment.frame, LLMThoughtTextFrame) else answering
            ) is not None:
                owners |= dict.fromkeys(words, owner)
        assert words_in(json.dumps(moment.messages)) & barred == set()


@pytest.mark.rule("RA5.attempts")
@given(conversations())
def test_an_attempt_begins_with_no_message_of_its_run(frames):
    of_runs: dict[int, str] = {}
    for moment in moments(frames):
        for change in moment.step.changes:
            match change:
                case EraBegan():
                    of_runs.clear()
                case MessageAppended():
                    if change.run_id is not None:
                        of_runs[change.position] = change.run_id
                case MessageEnded():
                    of_runs.pop(change.position, None)
                case MessageReplaced() if isinstance(moment.frame, LLMMessageRewriteFrame):
                    of_runs.pop(change.position, None)
                case RunStarted() if moment.after.terms.mirror is not None:
                    of_runs = {position: run for position, run in of_runs.items() if run != change.run_id}
                case RunStarted():
                    assert change.run_id not in of_runs.values() or change.attempt == 0


@pytest.mark.rule("RA5.attempts", "R4.3")
@given(conversations())
def test_runs_are_open_one_at_a_time_and_their_attempts_only_rise(frames):
    current: RunOpened | None = None
    attempt = -1
    over: set[str] = set()
    for moment in moments(frames):
        for change in moment.step.changes:
            match change:
                case RunOpened():
                    assert current is None
                    assert change.run_id not in over
                    current, attempt = change, -1
                case RunStarted():
                    assert current is not None
                    assert current.run_id == change.run_id
                    assert change.attempt > attempt
                    attempt = change.attempt
                case RunClosed():
                    assert current is not None
                    assert current.run_id == change.run_id
                    over.add(change.run_id)
                    current = None
        run = moment.after.runs.open
        assert (run and run.run_id) == (current and current.run_id)


@pytest.mark.rule("RA5.commit")
@given(conversations())
def test_only_the_attempt_that_ended_its_run_has_its_calls_dispatched(frames):
    announced: dict[CallKey, tuple[str | None, int]] = {}
    latest: dict[str, int] = {}
    committed: set[tuple[str, int]] = set()
    for moment in moments(frames):
        for change in moment.step.changes:
            match change:
                case CallAnnounced():
                    assert isinstance(moment.frame, FunctionCallsStartedFrame)
                    announced[change.key] = (moment.frame.run_id, moment.frame.attempt or 1)
                case RunStarted():
                    latest[change.run_id] = change.attempt
                case RunClosed():
                    if change.end == "ended":
                        committed.add((change.run_id, latest[change.run_id]))
        for change in moment.step.changes:
            if isinstance(change, CallDispatched):
                assert announced[change.key] in committed


@pytest.mark.rule("R3.1", "R3.4", "R3.8", "RA5.commit", "RA5.start")
@given(conversations())
def test_a_call_is_announced_dispatched_started_settled_and_resolved_at_most_once_and_in_this_order(frames):
    stages: dict[CallKey, str] = {}
    open_ids: dict[str, CallKey] = {}
    for moment in moments(frames):
        for change in moment.step.changes:
            match change:
                case CallAnnounced():
                    assert change.key not in stages
                    assert change.tool_call_id not in open_ids
                    stages[change.key] = "announced"
                    open_ids[change.tool_call_id] = change.key
                case CallDispatched():
                    assert stages[change.key] == "announced"
                    stages[change.key] = "dispatched"
                case CallStarted():
                    stage = stages.get(change.key, "nobody announced it")
                    if stage == "nobody announced it":
                        assert change.tool_call_id not in open_ids
                        open_ids[change.tool_call_id] = change.key
                    if stage == "running":
                        running = moment.before.calls.open[change.tool_call_id].running
                        assert running.safe_to_retry
                        assert moment.frame.call_attempt > (running.call_attempt or 0)
                    else:
                        assert stage in ("nobody announced it", "announced", "dispatched")
                    stages[change.key] = "running"
                case CallWaiting() | CallInterrupted() | CallProgressed():
                    assert stages[change.key] == "running"
                case CallSettled():
                    assert stages[change.key] in ("announced", "dispatched", "running")
                    assert (change.end in ("done", "failed", "ambiguous")) <= (
                        stages[change.key] == "running"
                    )
                    assert (change.end == "forgotten") <= (stages[change.key] != "running")
                    assert open_ids.pop(change.tool_call_id) == change.key
                    stages[change.key] = "ambiguous" if change.end == "ambiguous" else "settled"
                case CallResolved():
                    assert stages[change.key] == "ambiguous"
                    assert change.tool_call_id not in open_ids
                    stages[change.key] = "settled"
        assert open_ids.keys() == moment.after.calls.open.keys()


@pytest.mark.rule("RA5.barred")
@given(conversations())
def test_a_call_that_was_forgotten_does_not_start_until_its_id_is_announced_again(frames):
    running: set[str] = set()
    barred: set[str] = set()
    for moment in moments(frames):
        for change in moment.step.changes:
            match change:
                case CallAnnounced():
                    barred.discard(change.tool_call_id)
                case CallStarted():
                    assert change.tool_call_id not in barred
                    running.add(change.tool_call_id)
                case CallSettled():
                    if change.tool_call_id not in running:
                        barred.add(change.tool_call_id)
                    running.discard(change.tool_call_id)


@pytest.mark.rule("RA5.sequential")
@given(conversations())
def test_a_sequential_call_is_dispatched_only_while_no_other_runs_unless_it_waits_for_a_person(frames):
    for moment in moments(frames):
        holders = [
            call
            for call in moment.after.calls.open.values()
            if call.announced is not None and call.announced.sequential
            if call.stage == "dispatched" or (call.running is not None and not call.running.waiting)
        ]
        queued = [call for call in moment.after.calls.open.values() if call.stage == "queued"]
        assert len(holders) <= 1 or not dispatched_now(moment)
        assert holders or not queued


def dispatched_now(moment: Moment) -> bool:
    """Whether this moment dispatched a queued call."""
    return any(
        isinstance(change, CallDispatched)
        and (call := moment.after.calls.open.get(change.tool_call_id)) is not None
        and call.announced is not None
        and call.announced.sequential
        for change in moment.step.changes
    )
