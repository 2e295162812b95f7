"""Thoughts: stored unchanged for their provider when they end (R2.7)."""

import pytest
from tests.unit.rules.dsl import (
    answer,
    append,
    ask,
    end,
    interrupt,
    play,
    push,
    start,
    think,
    thinking,
    thought,
    tokens,
    update,
)

from frameledger.frames import LLMThoughtStartFrame


def kept(text, signature=None, llm="x"):
    return {"llm": llm, "message": {"type": "thought", "text": text, "signature": signature}}


@pytest.mark.rule("R2.7")
def test_a_thought_is_stored_when_it_ends_before_the_text_around_it():
    played = play(
        start(), tokens("So "), think(), thinking("let me ", " see\n"), thought("sig"), tokens("42"), end()
    )
    assert played.messages == [kept("let me  see\n", "sig"), {"role": "assistant", "content": "So 42"}]


@pytest.mark.rule("R2.7")
@pytest.mark.parametrize("text", [" a ", "\n\n", "a\n", "ü€"])
def test_the_text_of_a_thought_is_not_trimmed(text):
    assert play(start(), think(), thinking(text), thought("s")).messages == [kept(text, "s")]


@pytest.mark.rule("R2.7")
@pytest.mark.parametrize(
    "signature", ["EqQBCg==", " s ", "é\u0000\u2028", {"b": [1, 2.5, None], "a": {"z": True}}, [], 0, False]
)
def test_a_signature_is_kept_as_it_came_even_without_text(signature):
    [message] = play(start(), think(), thought(signature)).messages
    assert message == kept("", signature)
    assert type(message["message"]["signature"]) is type(signature)
    if isinstance(signature, dict):
        assert list(message["message"]["signature"]) == ["b", "a"]


@pytest.mark.rule("R2.7")
@pytest.mark.parametrize("text", [[], thinking(""), thinking(" ", "\n")])
def test_a_thought_with_neither_text_nor_signature_is_not_stored(text):
    played = play(start(), think(), text, thought())
    assert (played.messages, played.became) == ([], "applied")


@pytest.mark.rule("R2.7")
def test_an_unsigned_thought_with_text_is_stored():
    assert play(start(), think(), thinking("hm"), thought()).messages == [kept("hm")]


@pytest.mark.rule("R2.7")
def test_a_thought_that_does_not_ask_for_the_context_stays_out_of_it():
    played = play(start(), think(llm=None), thinking("hm"), thought("sig"), end())
    assert (played.messages, played.outcomes) == ([], ["applied"] * 5)


@pytest.mark.rule("R2.7")
def test_a_thought_that_names_a_provider_and_does_not_ask_for_the_context_stays_out_too():
    aside = LLMThoughtStartFrame(llm="x", append_to_context=False)
    played = play(start(), aside, thinking("hm"))
    assert played.state.speech.thought.text is None
    assert play(thought("sig"), end(), onto=played).messages == []


@pytest.mark.rule("R2.7", "RA5.attempts")
def test_the_thought_of_an_attempt_ends_with_it():
    given = [ask(), start(1), think(1), thinking("old", run=1)]
    anew = play(given, start(1, 2), thought("sig", 1, 2))
    assert (anew.became, anew.messages) == ("no_open_response", [])
    assert play(given, end(1)).state.speech.thought is None


@pytest.mark.rule("R2.7", "RA5.adopt")
def test_the_thought_of_a_response_ends_when_a_start_with_the_runs_id_outranks_it():
    played = play(ask(), start(), think(), thinking("old"), start(1), end(1), thought("sig"))
    assert (played.became, played.messages) == ("no_open_response", [])


@pytest.mark.rule("R2.7")
def test_a_thought_outside_of_any_response_goes_on_while_a_run_is_answered():
    played = play(think(), thinking("hm"), ask(), start(3), end(3), thought("sig"))
    assert played.messages == [kept("hm", "sig")]


@pytest.mark.rule("R2.7")
def test_a_new_thought_replaces_one_that_never_ended():
    played = play(
        start(), think(), thinking("lost"), think(llm="y"), thinking("kept"), thought("s"), thought("t")
    )
    assert played.messages == [kept("kept", "s", "y")]
    assert played.became == "no_open_response"


@pytest.mark.rule("R2.7")
def test_a_thought_kept_out_replaces_one_that_was_to_be_kept():
    played = play(start(), think(), thinking("lost"), think(llm=None), thought("s"))
    assert played.messages == []


@pytest.mark.rule("R2.7")
def test_a_thought_that_outlives_its_response_is_stored_when_it_ends():
    played = play(
        start(), think(), thinking("one "), tokens("hi"), end(), thinking("two"), append("x"), thought("s")
    )
    assert played.messages == [
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "x"},
        kept("one two", "s"),
    ]


@pytest.mark.rule("R2.7", "RA5.fence")
def test_a_thought_of_a_run_is_over_with_its_run():
    played = play(ask(), start(1), think(1), thinking("hm", run=1), end(1), thought("s", run=1))
    assert (played.messages, played.became) == ([], "run_over")
    assert play(thought("s"), onto=played).became == "no_open_response"


@pytest.mark.rule("R2.7")
@pytest.mark.parametrize("stray", [thinking("hm"), thought("s")])
@pytest.mark.parametrize("before", [[], [start()], [start(), think(), thought("s")]])
def test_pieces_and_ends_without_an_open_thought_are_ignored(before, stray):
    played = play(before, stray)
    assert (played.became, played.changes) == ("no_open_response", ())


@pytest.mark.rule("R2.7")
def test_a_thought_is_never_part_of_the_text():
    played = play(start(), tokens("a"), think(llm=None), thinking("hidden"), tokens("b"), thought(), end())
    assert played.texts == ["assistant: ab"]


@pytest.mark.rule("R2.7")
def test_several_thoughts_of_a_response_are_stored_in_their_order():
    one, two = [think(), thinking("one"), thought("1")], [think(), thinking("two"), thought("2")]
    played = play(start(), one, tokens("a"), push(), two, tokens("b"), end())
    assert played.texts == ["thought: one", "assistant: a", "thought: two", "assistant: b"]


@pytest.mark.rule("R2.7")
def test_an_open_thought_goes_on_when_the_history_is_replaced():
    played = play(start(), think(), thinking("one "), update("new"), thinking("two"), thought("s"), end())
    assert played.messages == [{"role": "user", "content": "new"}, kept("one two", "s")]


@pytest.mark.rule("R2.6", "R2.7")
def test_a_thought_after_an_interruption_is_a_new_one():
    played = play(
        ask(), start(), think(), thinking("lost"), interrupt(), start(), think(), thought("s"), end()
    )
    assert played.messages == [kept("", "s")]


@pytest.mark.rule("R2.7", "RA5.fence")
@pytest.mark.parametrize("frame", [think(), thinking("x"), thought("s")])
def test_a_plain_thought_is_ignored_while_a_response_names_its_run(frame):
    played = play(ask(), start(1), think(1), frame)
    assert (played.became, played.changes) == ("run_response_open", ())


@pytest.mark.rule("R2.7", "RA5.fence")
@pytest.mark.parametrize("frame", [think(1, 1), thinking("x", run=1, attempt=1), thought("s", 1, 1)])
def test_a_thought_of_a_superseded_attempt_is_ignored(frame):
    played = play(ask(), start(1), think(1), start(1, 2), think(1, 2), frame)
    assert (played.became, played.changes) == ("attempt_superseded", ())
    assert play(thinking("two", run=1, attempt=2), thought("s", 1, 2), onto=played).texts == ["thought: two"]


@pytest.mark.rule("R2.7")
def test_a_thought_asks_for_nothing_and_ends_no_response():
    played = play(answer("before"), start(), think(), thinking("hm"), thought("s"))
    assert (played.asked, played.state.speech.response is not None) == ([], True)


@pytest.mark.rule("RA5.fence")
def test_a_thought_that_names_no_run_is_not_continued_by_one_that_does():
    played = play(ask(), think(), start(1), thinking("x", run=1), thought("s", 1))
    assert played.reasons[-2:] == ["no_open_response", "no_open_response"]
    kept_on = play(end(1), thinking("mine"), thought(), onto=played)
    assert kept_on.messages == [kept("mine")]
