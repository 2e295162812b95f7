"""The recording that `make demo` plays: what is in it, and that it is a conversation in any context."""

from collections import Counter

from frameledger.evolve.changes import RunRequested
from frameledger.fold import Conversation, Folding
from frameledger.frames import FRAME_TYPES
from frameledger_services.demo import recording


def folded(context_id):
    """Each cue with what the fold makes of it, None for a repetition."""
    folding = Folding(Conversation.new(context_id))
    return folding, [(cue, folding.step(cue.frame)) for cue in recording.cues(context_id)]


def test_it_has_every_frame_there_is_and_one_that_nobody_knows():
    types = Counter(line.frame["type"] for line in recording.lines())
    assert types.keys() - FRAME_TYPES.keys() == {"VendorTunnelAheadFrame"}
    assert FRAME_TYPES.keys() - types.keys() == set()


def test_it_has_some_two_hundred_frames_and_takes_less_than_half_a_minute():
    lines = recording.lines()
    assert 180 <= len(lines) <= 220
    assert 15 <= sum(line.after for line in lines) <= 27


def test_the_same_conversation_comes_of_it_in_any_context():
    first, second = folded("demo-a")[0], folded("demo-b")[0]
    assert list(first.messages) == list(second.messages)
    assert first.state.version == second.state.version == len(recording.lines()) - 1


def test_every_run_it_answers_is_one_that_the_context_asked_for():
    _, steps = folded("demo-a")
    asked = {
        change.run_id
        for _, step in steps
        if step is not None
        for change in step.changes
        if isinstance(change, RunRequested)
    }
    named = {getattr(cue.frame, "run_id", None) for cue, _ in steps} - {None}
    assert len(named) > 10
    assert named <= asked


def test_what_comes_too_late_in_it_is_refused_and_what_comes_twice_counts_once():
    _, steps = folded("demo-a")
    reasons = Counter("repetition" if step is None else step.reason or step.outcome for _, step in steps)
    del reasons["applied"]
    assert reasons == {
        "run_over": 4,
        "attempt_superseded": 1,
        "call_settled": 1,
        "unknown": 1,
        "repetition": 1,
    }


def test_nothing_is_left_open_when_it_ends():
    state = folded("demo-a")[0].state
    assert state.terms.ended
    assert (state.turn, state.runs.open, state.runs.wanted, dict(state.calls.open)) == (None, None, None, {})


def test_its_frames_have_other_ids_each_time_but_for_the_one_that_comes_twice():
    first, second = ({cue.frame.id for cue in recording.cues("demo-a")} for _ in range(2))
    assert len(first) == len(recording.lines()) - 1
    assert len(first & second) == 1
