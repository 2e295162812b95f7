"""The generated conversations reach the cases of the properties, which would hold trivially without them."""

from typing import get_args

from tests.laws.arbitrary import FIELD_VALUES
from tests.laws.strategies import moments, random_conversation

from frameledger.effects import Effect
from frameledger.evolve import Reason
from frameledger.evolve.changes import CallEnd, CallSettled, Change, RunClosed, RunEnd
from frameledger.evolve.state import State
from frameledger.frames import FRAME_TYPES
from frameledger.react import react

SEEDS = range(260)
ERASED = range(100, 120)


def test_every_type_of_frame_reason_change_and_effect_occurs():
    types, reasons, changes, effects, ends, outcomes = set(), set(), set(), set(), set(), set()
    for seed in SEEDS:
        for moment in moments(random_conversation(seed, erases=seed in ERASED)):
            types.add(moment.frame.type)
            outcomes.add(moment.step.outcome)
            reasons.add(moment.step.reason)
            changes |= {type(change) for change in moment.step.changes}
            effects |= {type(effect) for effect in react(moment.before, moment.frame, moment.after)}
            ends |= {
                change.end for change in moment.step.changes if isinstance(change, CallSettled | RunClosed)
            }
    assert set(FRAME_TYPES) - types == set()
    assert outcomes == {"applied", "ignored", "unknown"}
    # It takes more gaps than such a conversation has messages: see `rules/test_rewriting.py`. Which frame is one too
    # many in a second, only the log's time says: see `test_limits`.
    assert set(get_args(Reason)) - reasons == {"position_fixed", "too_many_frames"}
    assert set(get_args(Change)) - changes == set()
    assert set(get_args(Effect)) - effects == set()
    assert {*get_args(CallEnd), *get_args(RunEnd)} - ends == set()


def test_every_situation_that_a_rule_turns_on_occurs():
    missing = set(SITUATIONS)
    for seed in SEEDS:
        if not missing:
            break
        for moment in moments(random_conversation(seed)):
            missing -= {name for name in missing if SITUATIONS[name](moment.before)}
    assert missing == set()


def test_an_arbitrary_frame_has_a_value_for_every_field_of_every_type():
    fields = {name for frame_type in FRAME_TYPES.values() for name in frame_type.model_fields}
    assert fields - {"type", "id"} == set(FIELD_VALUES)


def calls(state: State):
    return state.calls.open.values()


SITUATIONS = {
    "a second attempt answers": lambda state: state.runs.open is not None and state.runs.open.attempt > 1,
    "an attempt has written": lambda state: (
        state.runs.open is not None and len(state.runs.open.positions) > 0
    ),
    "a run is adopted": lambda state: state.runs.open is not None and state.runs.open.adopted,
    "a run is remembered": lambda state: state.runs.wanted is not None,
    "a run is owed to the turn": lambda state: state.runs.owed_to_turn,
    "a run is owed to the bot": lambda state: state.runs.owed_to_bot,
    "a turn waits for its words": lambda state: state.turn is not None and not state.turn.speaking,
    "a call is queued": lambda state: any(call.stage == "queued" for call in calls(state)),
    "a call waits for a person": lambda state: any(
        call.running and call.running.waiting for call in calls(state)
    ),
    "a call is owed its cancel": lambda state: any(
        call.running and call.running.interrupted for call in calls(state)
    ),
    "a call was taken over": lambda state: any(
        call.running and (call.running.call_attempt or 0) > 1 for call in calls(state)
    ),
    "a result waits for synchronous calls": lambda state: any(
        group.waits_for_synchronous for group in state.calls.groups.values()
    ),
    "a result waits for all": lambda state: any(group.waits_for_all for group in state.calls.groups.values()),
    "calls share a group by announcement and by id": lambda state: any(
        len(group.names) > 0 and sum(call.group == key for call in calls(state)) > 1
        for key, group in state.calls.groups.items()
    ),
    "a thought is open without its response": lambda state: (
        state.speech.thought is not None and state.speech.response is None
    ),
    "a recording": lambda state: state.terms.recording,
    "the end": lambda state: state.terms.ended,
}
