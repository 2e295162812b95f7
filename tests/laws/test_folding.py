"""The fold is a function of the frames, each once and in order, and of nothing else."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bounds import IN_PROCESS
from tests.laws.author import Author
from tests.laws.strategies import CONTEXT, MOVES, coming_to_rest, conversations, moments

from frameledger import stored
from frameledger.evolve import Reason, evolve
from frameledger.evolve.changes import (
    ContextErased,
    EraBegan,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
    SettingChanged,
)
from frameledger.evolve.state import Calls, Runs, Speech, State
from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import (
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterimTranscriptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    OfContext,
    TranscriptionFrame,
    UnknownFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.ids import ContextId, Position
from frameledger.messages import Messages
from frameledger.react import react
from frameledger.values import replace

NEW = Conversation.new(CONTEXT)
TURN_FRAMES = (
    InterimTranscriptionFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
MESSAGE_CHANGES = (MessageAppended, MessageReplaced, MessageEnded, EraBegan)


@given(conversations(), st.integers(0, 50))
def test_folding_in_two_halves_equals_folding_at_once(frames, cut):
    assert fold(frames[cut:], fold(frames[:cut], NEW)) == fold(frames, NEW)


@given(conversations())
def test_a_state_that_was_stored_between_two_frames_goes_on_as_if_it_had_not_been(frames):
    state = State(ContextId(CONTEXT))
    for moment in moments(frames):
        step = evolve(state, moment.frame)
        assert step == moment.step
        assert stored.dump(step.state) == stored.dump(moment.after)
        assert react(state, moment.frame, step.state) == react(moment.before, moment.frame, moment.after)
        state = stored.load(stored.dump(step.state))
        assert state == moment.after


DUMPS = """
from frameledger import stored
from tests.laws.strategies import moments, random_conversation
for seed in range(20):
    for moment in moments(random_conversation(seed)):
        print(stored.dump(moment.after))
"""


def test_the_stored_form_of_a_state_is_the_same_in_every_process():
    """Python orders sets of text by a number that each process draws for itself."""
    root = Path(__file__).resolve().parents[2]
    for_each = [
        subprocess.run(
            [sys.executable, "-c", DUMPS],
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'events'}{os.pathsep}{root}", "PYTHONHASHSEED": drawn},
            capture_output=True,
            text=True,
            timeout=IN_PROCESS,
            check=True,
        ).stdout
        for drawn in ("1", "2")
    ]
    assert for_each[0].splitlines() == for_each[1].splitlines()


@pytest.mark.rule("RA5.version")
@given(conversations(), st.randoms(use_true_random=False))
def test_a_repeated_id_changes_nothing(frames, rng: Random):
    named = [
        frame.model_copy(update={"id": f"f{place}"}) if rng.random() < 0.7 else frame
        for place, frame in enumerate(frames)
    ]
    with_repetitions = []
    for place, frame in enumerate(named):
        with_repetitions.append(frame)
        earlier = named[rng.randrange(place + 1)]
        if earlier.id is not None:
            of_another_kind = named[-1].model_copy(update={"id": earlier.id})
            with_repetitions.append(rng.choice((earlier, of_another_kind)))
    # The ids that conversations repeat by themselves count as well: the first frame of an id is the one.
    assert fold(with_repetitions, NEW) == fold(named, NEW)


@given(conversations())
def test_evolve_leaves_its_state_alone_and_answers_the_same_again(frames):
    for moment in moments(frames):
        before = stored.dump(moment.before)
        again = evolve(moment.before, moment.frame)
        assert stored.dump(moment.before) == before
        assert again == moment.step


@given(MOVES, MOVES, st.randoms(use_true_random=False))
def test_frames_of_another_context_have_no_influence(some, others, rng: Random):
    # Both use the same frame ids, call ids and group ids.
    authors = Author("here"), Author("there")
    turns = [(authors[0], move) for move in some] + [(authors[1], move) for move in others]
    rng.shuffle(turns)
    for author, move in turns:
        author.write(move)
    for author in authors:
        context_id = author.state.context_id
        assert author.folding.conversation() == fold(author.frames, Conversation.new(context_id))
    assert effect_ids(authors[0]) & effect_ids(authors[1]) == set()


def effect_ids(author: Author) -> set[str]:
    return {
        effect.id
        for moment in moments(author.frames, author.state.context_id)
        for effect in react(moment.before, moment.frame, moment.after)
    }


@pytest.mark.rule("RA5.version")
@given(conversations())
def test_the_version_counts_the_frames_whatever_becomes_of_them(frames):
    versions = [moment.after.version for moment in moments(frames)]
    assert versions == list(range(1, len(versions) + 1))


@pytest.mark.rule("RA5.version")
@given(conversations())
def test_only_what_is_ignored_has_a_reason_and_it_is_one_of_the_closed_list(frames):
    for moment in moments(frames):
        step = moment.step
        if isinstance(moment.frame, UnknownFrame):
            assert (step.outcome, step.reason) == ("unknown", None)
        elif step.outcome == "ignored":
            assert step.reason in get_args(Reason)
        else:
            assert (step.outcome, step.reason) == ("applied", None)


@pytest.mark.rule("RA5.version")
@given(conversations())
def test_what_is_ignored_or_unknown_changes_the_version_alone(frames):
    for moment in moments(frames):
        step = moment.step
        if step.reason in ("place_replaced", "context_full") and step.changes:
            # Its call is over all the same; it has only nowhere to write. If a run waited for that call, what was held
            # for it is written now (R7.5).
            wanted = moment.before.runs.wanted
            held = wanted.held if wanted is not None and moment.after.runs.wanted is None else ()
            first = moment.before.place.next_position
            assert [change for change in step.changes if isinstance(change, MESSAGE_CHANGES)] == [
                MessageAppended(Position(first + number), message) for number, message in enumerate(held)
            ]
        elif step.outcome != "applied":
            assert step.changes == ()
            # Of a rejected turn is known whether its words may still come.
            before, after = (
                replace(moment.before, rejected_turn=None),
                replace(moment.after, rejected_turn=None),
            )
            assert replace(after, version=before.version) == before
            if not isinstance(moment.frame, TURN_FRAMES):
                assert moment.after.rejected_turn == moment.before.rejected_turn


@pytest.mark.rule("RA5.expected")
@given(conversations())
def test_a_frame_that_expects_a_version_is_applied_if_the_context_is_what_it_was_then(frames):
    beginning = changed = 0
    for moment in moments(frames):
        expected = moment.frame.expected_version if isinstance(moment.frame, OfContext) else None
        known = beginning if expected == 0 else expected
        refused = known is not None and not changed <= known <= moment.before.version
        # A limit refuses first (R8.4, R8.5).
        if moment.step.reason not in ("mirror_superseded", "context_full", "too_many_frames"):
            assert (moment.step.reason == "context_changed") == refused
        changes = moment.step.changes
        if any(isinstance(change, (*MESSAGE_CHANGES, SettingChanged, ContextErased)) for change in changes):
            changed = int(moment.after.version)
        if any(isinstance(change, ContextErased) for change in changes):
            beginning = changed


@pytest.mark.rule("R3.2")
@given(conversations(), st.sampled_from([0, False, "", [], {}]))
def test_a_result_that_looks_empty_does_what_any_other_does(frames, empty):
    """Only the written value differs from another result: the outcome, the state and the requested runs are equal."""
    for moment in moments(frames):
        frame = moment.frame
        if isinstance(frame, FunctionCallResultFrame) and frame.result is not None:
            other = evolve(moment.before, frame.model_copy(update={"result": empty}))
            if "context_full" in (other.reason, moment.step.reason):
                continue
            # A larger one takes more room.
            place = moment.after.place
            assert (replace(other.state, place=place), other.outcome, other.reason) == (
                moment.after,
                moment.step.outcome,
                moment.step.reason,
            )
            assert (other.state.place.era, other.state.place.next_position) == (
                place.era,
                place.next_position,
            )
            assert [type(change) for change in other.changes] == [
                type(change) for change in moment.step.changes
            ]


@given(conversations())
def test_the_changes_of_all_steps_make_the_folded_messages(frames):
    messages = Messages()
    for moment in moments(frames):
        messages.apply(moment.step.changes)
        assert messages.rows() == moment.rows
    assert tuple(messages) == fold(frames, NEW).messages


@given(st.lists(MOVES, min_size=1, max_size=3))
def test_a_conversation_at_rest_keeps_nothing_of_its_past_but_three_short_lists_of_calls(pieces):
    author = Author(CONTEXT)
    for moves in pieces:
        for move in moves:
            author.write(move)
        for frame, _ in coming_to_rest(author.state):
            author.add(frame)
    state = author.state
    # A response that nobody's run asked for has nobody to close it; it is open, so it is no past.
    at_rest = replace(
        state,
        speech=Speech(response=state.speech.response, thought=state.speech.thought, said=state.speech.said),
        calls=Calls(barred=state.calls.barred, settled=state.calls.settled, ambiguous=state.calls.ambiguous),
        # What is noted waits for nobody, and the next answer stands for it.
        runs=Runs(noted=state.runs.noted),
        turn=None,
    )
    assert state == at_rest
    assert len(state.calls.barred) <= 256
    assert len(state.calls.settled) <= 32
    assert len(state.calls.ambiguous) <= 256


def test_the_stored_state_does_not_grow_with_the_turns_that_are_over():
    folding = Folding(NEW)
    sizes = []
    for turn in range(80):
        for frame in a_turn(folding, turn):
            assert folding.step(frame)
        sizes.append(len(stored.dump(folding.state)))
    # Digits grow; the ids that settled lately are as many as they ever get after half of the turns.
    assert sizes[-1] - sizes[len(sizes) // 2] < 40


def a_turn(folding: Folding, number: int):
    """Words, an answer with a thought and a call, its result, and the answer to that; each frame when it is due."""
    call = {"function_name": "weather", "tool_call_id": f"call-{number:04}"}
    yield UserStartedSpeakingFrame()
    yield TranscriptionFrame(text="and now?")
    yield UserStoppedSpeakingFrame()
    for announced in (True, False):
        run = folding.state.runs.open
        assert run is not None
        yield LLMFullResponseStartFrame(run_id=run.run_id)
        yield LLMThoughtStartFrame(run_id=run.run_id, append_to_context=True, llm="anthropic")
        yield LLMThoughtEndFrame(run_id=run.run_id, signature="s")
        yield LLMTextFrame(run_id=run.run_id, text="a few words")
        if announced:
            calls = [FunctionCallFromLLM(arguments={}, **call)]
            yield FunctionCallsStartedFrame(run_id=run.run_id, function_calls=calls)
        yield LLMFullResponseEndFrame(run_id=run.run_id)
        if announced:
            yield FunctionCallInProgressFrame(
                arguments={}, cancel_on_interruption=True, call_attempt=1, worker="w", **call
            )
            yield FunctionCallResultFrame(result="rain", call_attempt=1, **call)
