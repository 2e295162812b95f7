"""Frames with an expected version apply only if the context has not changed since (RA5.expected)."""

import pytest
from tests.unit.rules.dsl import (
    Frames,
    announce,
    answer,
    append,
    ask,
    begin,
    bot_speaks,
    committed,
    context,
    end,
    finish,
    hear,
    interim,
    interrupt,
    limits,
    mirror,
    play,
    push,
    result,
    rewrite,
    settings,
    speak,
    start,
    stop,
    tokens,
    tools,
    update,
)

from frameledger.frames import (
    FRAME_TYPES,
    Frame,
    LLMConfigureOutputFrame,
    LLMEnablePromptCachingFrame,
    LLMSetToolChoiceFrame,
    OfContext,
)

BY_CLIENTS: list[Frame] = [
    append("mine", run_llm=True),
    update("mine", run_llm=True),
    rewrite(1, "mine"),
    mirror("me"),
    context("mine", run_llm=True),
    ask(),
    tools("mine"),
    LLMSetToolChoiceFrame(tool_choice="none"),
    settings(temperature=1),
    LLMEnablePromptCachingFrame(enable=True),
    LLMConfigureOutputFrame(skip_tts=True),
    limits(rounds=9),
]
"""One of each."""


def knowing(version: int, frame: Frame) -> Frame:
    return frame.model_copy(update={"expected_version": version})


def test_these_are_all_frames_that_may_expect_a_version():
    with_expectation = {name for name, kind in FRAME_TYPES.items() if issubclass(kind, OfContext)}
    assert {frame.type for frame in BY_CLIENTS} == with_expectation


@pytest.mark.rule("RA5.expected")
@pytest.mark.parametrize("frame", BY_CLIENTS, ids=lambda frame: frame.type)
def test_a_frame_of_a_client_that_knows_the_newest_version_is_applied(frame):
    before = [append("hi"), *answer("hello")]
    assert play(before, knowing(4, frame)).conversation == play(before, frame).conversation


@pytest.mark.rule("RA5.expected")
@pytest.mark.parametrize("frame", BY_CLIENTS, ids=lambda frame: frame.type)
def test_a_frame_of_a_client_that_missed_a_message_changes_nothing_and_asks_for_nothing(frame):
    played = play(append("hi"), append("and"), knowing(1, frame))
    assert played.became == "context_changed"
    assert played.texts == ["user: hi", "user: and"]
    assert (played.changes, played.effects[-1], played.asked) == ((), (), [])


@pytest.mark.rule("RA5.expected")
def test_it_does_not_open_a_context_again_that_has_ended_meanwhile():
    played = play(append("hi"), finish(), knowing(1, ask()))
    assert played.became == "context_changed"
    assert played.state.terms.ended
    assert played.opened == []
    assert play(append("hi"), finish(), knowing(2, ask())).opened == [3]


CHANGES: dict[str, list[Frames]] = {
    "words of the user": [hear("and?")],
    "the end of an answer": [start(), tokens("so"), end()],
    "the start of a call": [begin("c")],
    "a new era without messages": [update()],
    "tools": [tools("other")],
    "a choice of tools": [LLMSetToolChoiceFrame(tool_choice="auto")],
    "settings": [settings(temperature=0)],
    "prompt caching": [LLMEnablePromptCachingFrame(enable=False)],
    "output": [LLMConfigureOutputFrame(skip_tts=False)],
    "a message that was rewritten": [rewrite(1, "ho")],
    "somebody else who keeps the history": [mirror("somebody")],
    "a recording": [context("hi", react=False)],
    "limits": [limits(rounds=9)],
}

NO_CHANGES: dict[str, list[Frames]] = {
    "a turn without words": [speak(), stop()],
    "interim words": [speak(), interim("so")],
    "text that streams": [ask(), start(2), tokens("so", " far", run=2)],
    "an announced call": [start(), announce("c")],
    "speech": [bot_speaks()],
    "an interruption of nothing": [interrupt()],
    "a frame that is ignored": [result("nobody's", 1)],
    "an empty append": [append()],
    "a setting that it has already": [settings(seed=1)],
    "limits that it has already": [limits()],
}


@pytest.mark.rule("RA5.expected")
@pytest.mark.parametrize("meanwhile", CHANGES.values(), ids=CHANGES)
def test_what_changes_the_context_counts(meanwhile):
    played = play(append("hi"), settings(seed=1), meanwhile, knowing(2, append("mine")))
    assert played.became == "context_changed"


@pytest.mark.rule("RA5.expected")
@pytest.mark.parametrize("meanwhile", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_changes_nothing_does_not_count(meanwhile):
    played = play(append("hi"), settings(seed=1), meanwhile, knowing(2, append("mine")))
    assert played.became == "applied"


@pytest.mark.rule("RA5.expected")
def test_the_result_of_a_call_changes_its_message_and_counts():
    before = [ask(), committed("c", run=1), begin("c", attempt=1)]
    assert play(before, knowing(5, append("mine"))).became == "applied"
    assert play(before, result("c", 7), knowing(5, append("mine"))).became == "context_changed"


@pytest.mark.rule("RA5.expected")
def test_an_attempt_that_takes_back_what_the_one_before_wrote_counts():
    before = [ask(), start(1), tokens("so", run=1), push(1)]
    assert play(before, knowing(4, append("mine"))).became == "applied"
    assert play(before, start(1, attempt=2), knowing(4, append("mine"))).became == "context_changed"


@pytest.mark.rule("RA5.expected")
def test_zero_is_a_conversation_that_has_nothing_yet():
    assert play(knowing(0, append("mine"))).texts == ["user: mine"]
    assert play(speak(), stop(), bot_speaks(), knowing(0, append("mine"))).texts == ["user: mine"]
    assert play(append("hi"), knowing(0, append("mine"))).became == "context_changed"
    assert play(settings(seed=1), knowing(0, append("mine"))).became == "context_changed"


@pytest.mark.rule("RA5.expected")
def test_a_version_that_the_conversation_has_not_reached_is_of_another_one():
    assert play(append("hi"), knowing(2, append("mine"))).became == "context_changed"
    assert play(append("hi"), knowing(1, append("mine"))).became == "applied"


@pytest.mark.rule("RA5.expected")
def test_of_several_that_go_on_from_one_version_the_first_is_accepted():
    played = play(append("hi"), *[knowing(1, append(who)) for who in ("one", "two", "three")])
    assert played.reasons == [None, None, "context_changed", "context_changed"]
    assert played.texts == ["user: hi", "user: one"]
