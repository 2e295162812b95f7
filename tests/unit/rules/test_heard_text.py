"""Heard text: an interruption corrects the last response to the part that the user heard (R6.7)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    context,
    end,
    fail,
    finish,
    hear,
    interim,
    interrupt,
    play,
    push,
    result,
    run_id,
    settings,
    speak,
    start,
    stop,
    think,
    thinking,
    thought,
    tokens,
    tools,
    update,
)

from frameledger.evolve.changes import MessageReplaced

pytestmark = pytest.mark.rule("R6.7")


@pytest.mark.parametrize("heard", ["I was", "something else", "I was saying that and more"])
@pytest.mark.parametrize("run", [None, 1])
def test_the_text_of_an_open_response_becomes_what_was_heard_whatever_it_is(run, heard):
    played = play(ask(), start(run), tokens("I was ", "saying", run=run), interrupt(heard))
    assert played.texts == [f"assistant: {heard}"]
    assert play(tokens(" more", run=run), onto=played).messages == played.messages


@pytest.mark.parametrize("run", [None, 1])
def test_the_text_of_a_response_that_has_ended_becomes_what_was_heard_in_its_place(run):
    played = play(ask(), answer("I was saying", run=run), append_note(), interrupt("I was"))
    assert played.messages[0] == {"role": "assistant", "content": "I was"}
    assert (played.positions, len(played.messages)) == ([1, 2], 2)


@pytest.mark.parametrize("heard", ["", " ", "\n\t "])
@pytest.mark.parametrize("closes", [[], [end()]])
def test_what_was_not_heard_at_all_leaves_no_message(closes, heard):
    played = play(append("hi"), start(), tokens("I was"), closes, interrupt(heard))
    assert (played.texts, played.became) == (["user: hi"], "applied")


@pytest.mark.parametrize("closes", [[], [end()]])
def test_null_leaves_the_text(closes):
    assert play(start(), tokens("I was"), closes, interrupt()).texts == ["assistant: I was"]


def test_a_response_written_in_parts_becomes_one_message():
    played = play(start(), tokens("one"), push(), append_note(), tokens("two"), push(), tokens("three"))
    for closes in ([], [end()]):
        after = play(closes, interrupt("one and"), onto=played)
        assert [message["content"] for message in after.messages] == ["one and", "note"]
        assert play(closes, interrupt(""), onto=played).positions == [2]


def test_only_the_last_response_is_corrected():
    played = play(answer("first"), answer("second"), interrupt("sec"))
    assert played.texts == ["assistant: first", "assistant: sec"]
    empty = play(answer("first"), start(), interrupt(""))
    assert empty.texts == ["assistant: first"]


def test_a_response_of_which_nothing_was_written_yet_is_the_last_one():
    played = play(answer("first"), start(), tokens("second"), interrupt("sec"))
    assert played.texts == ["assistant: first", "assistant: sec"]


@pytest.mark.parametrize(
    "since",
    [
        [hear("hi")],
        [append("hi")],
        [append("hi"), append("again")],
        [speak(), hear("hi"), stop()],
        [speak(), interim(), stop(), hear("hi")],
        [update("new")],
        [update()],
        [context("new")],
    ],
)
def test_the_text_stays_if_the_user_has_spoken_or_the_history_was_replaced_since(since):
    before = play(answer("I was saying"), since)
    after = play(interrupt("I was"), onto=before)
    assert (after.became, after.messages) == ("applied", before.messages)


@pytest.mark.parametrize("since", [[update("new")], [context("new")]])
def test_what_an_open_response_says_stays_if_the_history_was_replaced_meanwhile(since):
    played = play(start(), tokens("I was"), since, tokens(" saying"), interrupt("I"))
    assert played.texts == ["user: new", "assistant: I was saying"]


@pytest.mark.parametrize(
    "since",
    [
        [speak()],
        [speak(), interim()],
        [speak(), stop(), stop()],
        [hear("  ")],
        [begin("a")],
        [begin("a"), result("a", 1)],
        [begin("a", sync=False), result("a", 1)],
        [announce("a")],
        [settings(temperature=1)],
        [tools("a")],
        [interrupt()],
        [append()],
        [fail(fatal=False)],
    ],
)
def test_the_text_is_corrected_if_only_something_else_happened_since(since):
    before = play(answer("I was saying"), since)
    after = play(interrupt("I was"), onto=before)
    assert after.texts == ["assistant: I was", *before.texts[1:]]


def test_a_message_of_a_client_that_is_not_the_users_is_no_word_of_the_user():
    played = play(answer("I was saying"), append_note(), interrupt("I"))
    assert played.texts == ["assistant: I", "assistant: note"]


def test_a_message_that_was_held_and_is_not_the_users_is_no_word_of_the_user_either():
    held = append_note().model_copy(update={"run_llm": True, "second_input": "coalesce"})
    played = play(ask(), start(1), tokens("I was saying", run=1), held, end(1))
    assert played.texts == ["assistant: I was saying", "assistant: note"]
    assert play(interrupt("I"), onto=played).texts == ["assistant: I", "assistant: note"]


def test_the_text_of_a_response_that_was_cut_off_can_still_be_corrected():
    for cut in (interrupt(), fail(), fail(1), finish()):
        played = play(ask(), start(), tokens("I was saying"), cut, interrupt("I was"))
        assert played.texts == ["assistant: I was"]


def test_the_last_word_on_what_was_heard_counts():
    played = play(answer("I was saying this"), interrupt("I was saying"), interrupt("I was"), interrupt())
    assert played.texts == ["assistant: I was"]
    unwritten = play(start(), tokens("I was saying"), interrupt("I was"), interrupt("I"))
    assert unwritten.texts == ["assistant: I"]


def test_the_last_word_on_what_was_heard_touches_nothing_that_is_gone():
    in_parts = play(start(), tokens("one"), push(), tokens("two"), end(), interrupt("one two"))
    replaced = MessageReplaced(1, {"role": "assistant", "content": "one"})
    assert play(interrupt("one"), onto=in_parts).changes == (replaced,)
    assert play(answer("one"), interrupt(""), interrupt("one")).texts == []


def test_thoughts_and_calls_of_the_response_stay_as_they_are():
    thinking_first = [start(1), think(1), thinking("hm", run=1), thought("s", 1), tokens("let me see", run=1)]
    calls = [announce("a", run=1), end(1), begin("a", attempt=1)]
    played = play(ask(), thinking_first, calls, interrupt("let me"))
    assert played.texts == [
        "thought: hm",
        "assistant: let me",
        "assistant calls a(a)",
        "tool a: IN_PROGRESS",
    ]


def test_the_corrected_text_is_that_of_the_latest_attempt():
    played = play(
        ask(), start(1), tokens("one", run=1), push(1), start(1, 2), tokens("two", run=1, attempt=2)
    )
    assert play(interrupt("tw"), onto=played).texts == ["assistant: tw"]
    assert play(interrupt(""), onto=played).texts == []


def test_the_words_of_the_turn_that_interrupts_stay_and_ask():
    played = play(
        ask(), start(1), tokens("I was saying", run=1), speak(), interrupt("I was"), hear("stop"), stop()
    )
    assert played.texts == ["assistant: I was", "user: stop"]
    assert (played.asked, played.opened) == ([1, 7], [1, 7])


def test_without_any_response_nothing_was_heard():
    assert play(append("hi"), interrupt("hello")).texts == ["user: hi"]
    assert play(interrupt("hello")).messages == []


def test_a_corrected_response_still_closes_its_run():
    played = play(ask(), start(1), tokens("I was", run=1), interrupt(""), tokens("x", run=1))
    assert (played.messages, played.became, played.state.runs.open) == ([], "run_over", None)
    assert played.effects[-2][0].run_id == run_id(1)


def append_note():
    """A client's message that is not the user's."""
    frame = append("note")
    return frame.model_copy(update={"messages": ({"role": "assistant", "content": "note"},)})


@pytest.mark.parametrize("writes", [push(), end()], ids=["a part", "the end"])
def test_what_is_written_after_the_users_words_is_corrected_and_what_is_not_written_yet_stays(writes):
    said = [start(), tokens("I was"), hear("hm")]
    assert play(said, writes, interrupt("I")).texts == ["user: hm", "assistant: I"]
    assert play(said, interrupt("I")).texts == ["user: hm", "assistant: I was"]


def test_a_response_that_ended_without_text_has_none_to_correct():
    assert play(start(), end(), interrupt("I")).messages == []


@pytest.mark.regression("fault 113")
@pytest.mark.parametrize("writes", [push(), end()], ids=["a part", "the end"])
@pytest.mark.parametrize(
    ("since", "between"),
    [(hear("hm"), ["user: hm"]), (append("hm"), ["user: hm"])],
    ids=["heard", "appended"],
)
def test_a_response_of_which_a_part_was_written_before_the_users_words_stays_as_it_was_said(
    since, between, writes
):
    """What was heard is of the whole response: in the place of its last part it would say the first one again."""
    said = [start(), tokens("One."), push(), since, tokens("Two. Three.")]
    assert play(said, writes, interrupt("One. Two.")).texts == [
        "assistant: One.",
        *between,
        "assistant: Two. Three.",
    ]
    replaced = [start(), tokens("One."), push(), update("new"), tokens("Two. Three.")]
    assert play(replaced, writes, interrupt("One. Two.")).texts == ["user: new", "assistant: Two. Three."]


def test_the_next_response_is_corrected_again():
    said = [start(), tokens("One."), push(), hear("hm"), tokens("Two."), end()]
    assert play(said, answer("Three. Four."), interrupt("Three.")).texts[-1] == "assistant: Three."
