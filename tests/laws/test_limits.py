"""No conversation exceeds its limits, however absurd its model, including those by the log's time."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.arbitrary import as_from_a_record
from tests.laws.author import Author
from tests.laws.strategies import CONTEXT, MOVES, coming_to_rest, conversations, moments

from frameledger import stored
from frameledger.evolve import evolve
from frameledger.evolve.changes import ContextErased, EraBegan, MessageAppended, MessageReplaced
from frameledger.evolve.state import State
from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    FunctionCallsStartedFrame,
    LLMContextFrame,
    LLMMirrorFrame,
    LLMSetLimitsFrame,
    OfContext,
)
from frameledger.json_values import size

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
LIMITS = st.builds(
    LLMSetLimitsFrame,
    context_messages=st.integers(1, 40),
    context_bytes=st.integers(1, 60_000),
    calls_per_run=st.integers(1, 3),
    rounds=st.integers(1, 3),
    frames_per_second=st.integers(1, 5),
)


def limited(moves, limit):
    """Returns a conversation that begins with these limits, without changes of them and without mirrors."""
    author = Author(CONTEXT)
    author.add(limit)
    for move in moves:
        before = len(author.frames)
        author.write(move)
        for frame in author.frames[before:]:
            lifts = isinstance(frame, LLMSetLimitsFrame | LLMMirrorFrame)
            if lifts or (isinstance(frame, LLMContextFrame) and not frame.react):
                del author.frames[before:]
                author.folding = Folding(Conversation.new(CONTEXT))
                for one in author.frames:
                    author.folding.step(one)
    return author.frames


@pytest.mark.rule("R8.2", "R8.3", "R8.4")
@given(MOVES, LIMITS)
def test_no_conversation_exceeds_its_limits(moves, limit):
    folding = Folding(Conversation.new(CONTEXT))
    for frame in limited(moves, limit):
        before, step = folding.state, folding.step(frame)
        if step is None:
            continue
        messages = folding.messages.rows()
        assert len(messages) <= limit.context_messages
        assert sum(size(message) for _, message in messages) <= limit.context_bytes
        assert step.state.pace.rounds <= limit.rounds
        by_run: dict[tuple[str, int], int] = {}
        for call in step.state.calls.open.values():
            by = call.announced
            if by is not None and by.run_id is not None:
                key = by.run_id, by.attempt
                by_run[key] = by_run.get(key, 0) + 1
        assert max(by_run.values(), default=0) <= limit.calls_per_run
        if step.reason in ("too_many_calls", "too_many_rounds"):
            assert isinstance(frame, FunctionCallsStartedFrame)
            assert step.state.calls == before.calls


@pytest.mark.rule("R8.4")
@given(conversations(erases=True))
def test_every_message_that_is_written_counts_with_its_size(frames):
    for moment in moments(frames):
        total = moment.before.place.bytes
        for change in moment.step.changes:
            if isinstance(change, MessageAppended | MessageReplaced):
                total += size(change.message)
            elif isinstance(change, EraBegan | ContextErased):
                total = 0
        assert moment.after.place.bytes == total


@pytest.mark.rule("R8.5")
@given(MOVES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_no_second_has_more_than_it_takes(moves, most, rng: Random):
    state, at = State(CONTEXT), BEGAN
    taken: dict[datetime, int] = {}
    for frame in limited(moves, LLMSetLimitsFrame(frames_per_second=most)):
        at += timedelta(seconds=rng.choice((0, 0, 0, 0.3, 1.5)))
        step = evolve(state, as_from_a_record(frame), at)
        again = evolve(stored.load(stored.dump(state)), as_from_a_record(frame), at)
        assert (again.outcome, again.reason, again.state) == (step.outcome, step.reason, step.state)
        state = step.state
        if step.outcome == "applied" and isinstance(frame, OfContext):
            second = at.replace(microsecond=0)
            taken[second] = taken.get(second, 0) + (not isinstance(frame, LLMSetLimitsFrame))
    assert max(taken.values(), default=0) <= most


@pytest.mark.rule("R8.4")
@given(MOVES, LIMITS)
def test_nothing_stays_open_because_of_a_limit(moves, limit):
    """The timekeeper's frames end all open work, even in a full context."""
    folding = Folding(Conversation.new(CONTEXT))
    for frame in limited(moves, limit):
        folding.step(frame)
    for _, step in coming_to_rest(folding.state):
        assert step.reason != "context_full"
