"""Erasures: what they end, the beginning of the next life, and late frames of the life before."""

from datetime import UTC, datetime

import pytest

from frameledger import stored
from frameledger.effects import Cancel
from frameledger.evolve import State, erasure, evolve
from frameledger.evolve.changes import ContextErased
from frameledger.evolve.open_calls import SETTLED_REMEMBERED
from frameledger.evolve.state import Erased
from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import (
    BotStoppedSpeakingFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMContextEraseFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMSetLimitsFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.ids import ContextId, Version
from frameledger.react import react
from frameledger.record import decode

CONTEXT = ContextId("talk")
ERASE = LLMContextEraseFrame(why="asked")
CALL = {"function_name": "pay", "tool_call_id": "c1"}


def talk(*frames) -> Folding:
    folding = Folding(Conversation.new(CONTEXT))
    for frame in frames:
        folding.step(frame)
    return folding


def say(text: str, *, run_llm: bool = False) -> LLMMessagesAppendFrame:
    return LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}], run_llm=run_llm)


def open_run(folding: Folding) -> str:
    run = folding.state.runs.open
    assert run is not None
    return run.run_id


def with_an_open_call() -> Folding:
    """A run that ended with a call which is dispatched, and a run that is pending because of it."""
    folding = talk(LLMUpdateSettingsFrame(settings={"temperature": 1}), say("pay!", run_llm=True))
    run = open_run(folding)
    calls = [FunctionCallFromLLM(arguments={}, **CALL)]
    for frame in (
        LLMFullResponseStartFrame(run_id=run),
        LLMTextFrame(run_id=run, text="I pay."),
        FunctionCallsStartedFrame(run_id=run, function_calls=calls),
        LLMFullResponseEndFrame(run_id=run),
        LLMRunFrame(),
    ):
        folding.step(frame)
    return folding


@pytest.mark.rule("RA5.erase")
def test_an_erasure_leaves_a_new_context_that_goes_on_from_its_version():
    folding = with_an_open_call()
    folding.step(LLMSetLimitsFrame(frames_per_second=9, rounds=9))
    folding.step(say("more"), datetime(2026, 3, 1, tzinfo=UTC))
    folding.step(UserStartedSpeakingFrame())
    before = folding.state
    step = folding.step(ERASE)
    assert step is not None
    assert (step.outcome, step.reason, step.changes) == (
        "applied",
        None,
        (ContextErased(step.state.version),),
    )
    version = Version(before.version + 1)
    assert step.state == State(CONTEXT, version, erased=Erased(version), changed_version=version)
    assert step.state == erasure.beginning(CONTEXT, Version(before.version + 1))
    assert folding.conversation().messages == ()
    assert stored.load(stored.dump(step.state)) == step.state


@pytest.mark.rule("RA5.erase")
def test_work_that_is_going_on_is_told_to_stop():
    folding = with_an_open_call()
    before = folding.state
    after = evolve(before, ERASE).state
    assert {(type(one), one.tool_call_id) for one in react(before, ERASE, after)} == {(Cancel, "c1")}
    folding = talk(say("hi", run_llm=True))
    run, before = open_run(folding), folding.state
    (cancel,) = react(before, ERASE, evolve(before, ERASE).state)
    assert isinstance(cancel, Cancel)
    assert cancel.run_id == run


@pytest.mark.rule("RA5.erase")
def test_the_ids_of_the_next_life_are_none_of_the_life_before():
    first = talk(say("hi", run_llm=True))
    run = open_run(first)
    first.step(ERASE)
    first.step(say("hi", run_llm=True))
    assert open_run(first) != run
    assert first.state.version == 3


@pytest.mark.rule("RA5.erase")
def test_an_erasure_of_nothing_is_one_and_one_that_comes_twice_is_one():
    named = ERASE.model_copy(update={"id": "e1"})
    folding = talk(named)
    assert folding.state == erasure.beginning(CONTEXT, Version(1))
    assert folding.step(named) is None
    folding.step(say("a new life"))
    # Also much later, and when the conversation was stored meanwhile.
    later = fold([named], folding.conversation())
    assert [message["content"] for message in later.messages] == ["a new life"]
    other = folding.step(ERASE.model_copy(update={"id": "e2"}))
    assert other is not None
    assert other.state.erased == Erased(Version(3))


@pytest.mark.rule("RA5.erase")
def test_an_id_of_the_life_before_may_come_again():
    once = say("hello").model_copy(update={"id": "f1"})
    folding = talk(once, ERASE)
    assert folding.step(once) is not None
    assert folding.step(once) is None
    assert len(folding.messages) == 1


def late_frames(run: str, version: int):
    named = {**CALL, "call_attempt": 1}
    return [
        LLMFullResponseStartFrame(run_id=run, attempt=2),
        LLMTextFrame(run_id=run, text="words of before"),
        LLMFullResponseEndFrame(run_id=run),
        ErrorFrame(run_id=run, fatal=True, message="words of before"),
        ErrorFrame(tool_call_id="c1", message="words of before"),
        FunctionCallsStartedFrame(run_id=run, function_calls=[FunctionCallFromLLM(arguments={}, **CALL)]),
        FunctionCallInProgressFrame(arguments={}, **named),
        FunctionCallResultFrame(result="words of before", **named),
        FunctionCallResultFrame(result="words of before", **CALL),
        FunctionCallResultFrame(result="words of before", settled_as="resolved", **CALL),
        FunctionCallCancelFrame(**named),
        UserStoppedSpeakingFrame(opened_version=version),
        BotStoppedSpeakingFrame(opened_version=version),
        decode(b'{"type":"LLMNewTextFrame","run_id":"%b","text":"words of before"}' % run.encode()),
    ]


@pytest.mark.rule("RA5.lives")
@pytest.mark.parametrize("has_begun", [False, True], ids=["before the next life", "in it"])
def test_what_comes_late_for_the_life_before_is_left_out(has_begun):
    folding = with_an_open_call()
    run, version = "r-of-before", folding.state.version
    folding.step(ERASE)
    if has_begun:
        folding.step(say("a new life", run_llm=True))
    before = folding.conversation()
    for frame in late_frames(run, version):
        assert folding.step(frame) is None, frame
    assert folding.conversation() == before


@pytest.mark.rule("RA5.lives")
@pytest.mark.regression("fault 32")
@pytest.mark.parametrize("frame_type", [b"LLMRunFrame", b"NewFrame"])
@pytest.mark.parametrize("value", [b'"1"', b"{}", b"[1]", b"null"])
def test_a_version_that_is_no_number_is_of_no_life(frame_type, value):
    folding = talk(say("hi"), ERASE)
    assert folding.step(decode(b'{"type":"%b","opened_version":%b}' % (frame_type, value))) is not None


@pytest.mark.rule("RA5.lives")
def test_the_next_life_knows_its_own_runs_and_calls():
    folding = talk(say("hi", run_llm=True), ERASE, say("hi", run_llm=True))
    first = open_run(folding)
    folding.step(LLMFullResponseStartFrame(run_id=first))
    folding.step(InterruptionFrame())
    late = folding.step(LLMTextFrame(run_id=first, text="too late"))
    assert late is not None
    assert (late.outcome, late.reason) == ("ignored", "run_over")
    begun = folding.step(FunctionCallInProgressFrame(arguments={}, **CALL))
    assert begun is not None
    assert begun.outcome == "applied"
    assert folding.step(FunctionCallResultFrame(result=1, **CALL)) is not None
    again = folding.step(FunctionCallResultFrame(result=2, **CALL))
    assert again is not None
    assert again.reason == "call_settled"


@pytest.mark.rule("RA5.lives")
def test_the_next_life_knows_the_run_that_is_open_and_the_one_that_is_pending():
    folding = talk(ERASE, LLMRunFrame())
    run = open_run(folding)
    folding.step(LLMRunFrame())
    pending = folding.state.runs.wanted
    assert pending is not None
    for run_id in (run, pending.run_id):
        assert folding.step(ErrorFrame(run_id=run_id, message="x")) is not None
    assert folding.step(ErrorFrame(run_id="another", message="x")) is None


@pytest.mark.rule("RA5.lives")
def test_a_run_is_remembered_once_when_it_closes_and_none_of_the_life_before():
    folding = talk(LLMRunFrame())
    before = open_run(folding)
    folding.step(ERASE)
    assert folding.state.erased == Erased(folding.state.version)
    assert folding.step(LLMTextFrame(run_id=before, text="late")) is None
    for frame in (LLMRunFrame(), LLMRunFrame(), say("more")):
        folding.step(frame)
    first = open_run(folding)
    folding.step(ErrorFrame(run_id=first, message="x", fatal=True))
    second = open_run(folding)
    assert list(folding.state.erased.runs) == [first]
    folding.step(InterruptionFrame())
    assert list(folding.state.erased.runs) == [first, second]


@pytest.mark.rule("RA5.lives")
def test_the_next_life_knows_calls_that_were_forgotten_and_those_that_are_ambiguous():
    calls = FunctionCallsStartedFrame(function_calls=[FunctionCallFromLLM(arguments={}, **CALL)])
    unclear = FunctionCallResultFrame(result=None, settled_as="ambiguous", **CALL)
    others = [CALL | {"tool_call_id": f"other-{number}"} for number in range(SETTLED_REMEMBERED)]
    more = [
        frame
        for other in others
        for frame in (
            FunctionCallInProgressFrame(arguments={}, **other),
            FunctionCallResultFrame(result=1, **other),
        )
    ]
    forgotten = talk(ERASE, calls, InterruptionFrame(), *more)
    late = forgotten.step(FunctionCallResultFrame(result=1, **CALL))
    assert late is not None
    assert late.reason == "call_forgotten"
    ambiguous = talk(ERASE, FunctionCallInProgressFrame(arguments={}, **CALL), unclear, *more)
    resolved = ambiguous.step(FunctionCallResultFrame(result=1, settled_as="resolved", **CALL))
    assert resolved is not None
    assert resolved.reason is None


@pytest.mark.rule("RA5.lives")
def test_a_version_up_to_that_of_the_erasure_is_of_the_life_before_and_a_later_one_of_the_next():
    folding = talk(say("hi"), ERASE, UserStartedSpeakingFrame())
    assert folding.step(UserStoppedSpeakingFrame(opened_version=2)) is None
    assert folding.step(UserStoppedSpeakingFrame(opened_version=3)) is not None


@pytest.mark.rule("RA5.lives")
def test_an_id_of_a_later_frame_that_is_no_text_is_of_no_life():
    folding = talk(say("hi"), ERASE)
    for value in (b"5", b"null", b"[]"):
        assert (
            folding.step(decode(b'{"type":"NewFrame","run_id":%b,"mirror":%b}' % (value, value))) is not None
        )


@pytest.mark.rule("RA5.lives")
def test_of_its_own_runs_it_knows_the_newest():
    assert erasure.KNOWN_RUNS == 64
    folding = talk(ERASE)
    runs = []
    for _ in range(erasure.KNOWN_RUNS + 1):
        folding.step(LLMRunFrame())
        runs.append(open_run(folding))
        folding.step(InterruptionFrame())
    assert folding.step(LLMTextFrame(run_id=runs[0], text="x")) is None
    assert folding.step(LLMTextFrame(run_id=runs[1], text="x")) is not None


@pytest.mark.rule("RA5.lives")
def test_a_context_that_was_never_erased_leaves_nothing_out():
    folding = with_an_open_call()
    version = folding.state.version
    for frame in late_frames("r-of-nobody", version):
        assert not erasure.is_of_an_earlier_life(folding.state, frame)
        assert not erasure.names_an_erased_version(folding.state, frame)
        assert folding.step(frame) is not None


@pytest.mark.rule("RA5.expected", "RA5.lives")
@pytest.mark.parametrize(
    ("expected", "became"),
    [(0, "applied"), (1, "left out"), (2, "left out"), (3, "applied"), (4, "context_changed")],
)
def test_who_expects_a_version_of_the_life_before_knows_what_was_erased(expected, became):
    """Such as a program that was summing it up. 0 is one that knows of nothing, as after reading that there is none."""
    folding = talk(say("hi"), say("and"), ERASE)
    step = folding.step(say("new").model_copy(update={"expected_version": expected}))
    assert (step and (step.reason or step.outcome)) == (None if became == "left out" else became)
    later = folding.step(say("more").model_copy(update={"expected_version": 0}))
    assert later is not None
    assert later.reason == ("context_changed" if became == "applied" else None)
