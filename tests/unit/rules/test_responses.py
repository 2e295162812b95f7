"""Responses: text is joined, trimmed, placed where the response ends, and kept when it is cut off (R2.1 to R2.6)."""

import json

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    bot_speaks,
    bot_stops,
    end,
    hear,
    interim,
    interrupt,
    play,
    push,
    result,
    run_id,
    speak,
    start,
    stop,
    think,
    thinking,
    thought,
    tokens,
    update,
    words,
)

from frameledger.evolve.changes import CallSettled, RunClosed
from frameledger.frames import VisionFullResponseEndFrame, VisionFullResponseStartFrame, VisionTextFrame
from frameledger.record import decode


@pytest.mark.rule("R2.1")
def test_a_response_is_one_assistant_message():
    played = play(start(), tokens("Hello", ",", " world"), end())
    assert played.messages == [{"role": "assistant", "content": "Hello, world"}]
    assert (played.outcomes, played.asked) == (["applied"] * 5, [])


@pytest.mark.rule("R2.1")
@pytest.mark.parametrize("stray", [tokens("x"), words("x"), end(), push(), [VisionTextFrame(text="x")]])
@pytest.mark.parametrize("before", [[], answer("done"), [start(), interrupt()]])
def test_frames_of_a_response_are_ignored_outside_one(before, stray):
    played = play(before, stray)
    assert (played.became, played.changes) == ("no_open_response", ())


@pytest.mark.rule("R2.1")
def test_a_second_start_writes_what_the_first_said_and_the_two_are_not_joined():
    played = play(start(), tokens("one"), start(), tokens("two"), end())
    assert played.texts == ["assistant: one", "assistant: two"]


@pytest.mark.rule("R2.1")
def test_a_second_start_drops_the_open_thought_of_the_first():
    played = play(start(), think(), thinking("hm"), start(), thought("sig"), tokens("two"), end())
    assert played.texts == ["assistant: two"]
    assert played.reasons[4] == "no_open_response"


@pytest.mark.rule("R2.1")
def test_a_second_start_forgets_the_calls_the_first_announced_and_no_others():
    played = play(announce("early"), start(), announce("a"), start(), begin("a"), begin("early"))
    assert played.reasons[-2:] == ["call_forgotten", None]
    assert [change.tool_call_id for change in played.steps[3].changes if isinstance(change, CallSettled)] == [
        "a"
    ]


@pytest.mark.rule("R2.1")
def test_a_second_start_cancels_no_call_that_runs():
    played = play(start(), announce("a"), begin("a"), start(), result("a", 7), end())
    assert played.texts == ["assistant calls a(a)", "tool a: 7"]


@pytest.mark.rule("R2.1")
def test_a_second_start_closes_the_run_of_the_first():
    played = play(ask(), start(), tokens("one"), start())
    assert [(c.run_id, c.end) for c in played.changes if isinstance(c, RunClosed)] == [
        (run_id(1), "replaced")
    ]
    assert played.state.runs.open is None


@pytest.mark.rule("R2.1", "R4.3")
def test_a_second_start_drops_no_remembered_run():
    played = play(ask(), start(), tokens("one"), ask(), start(), tokens("two"), end(), append("x"))
    assert played.texts == ["assistant: one", "assistant: two", "user: x"]
    assert (played.asked, played.opened) == ([1, 4], [1, 5])


@pytest.mark.rule("R2.1")
def test_a_second_start_drops_no_debt():
    played = play(ask(), start(), begin("a"), bot_speaks(), result("a", 1), start(), end(), bot_stops())
    assert played.asked == [1, 8]
    played = play(ask(), start(), begin("a"), speak(), result("a", 1), start(), end(), stop())
    assert played.asked == [1, 8]


@pytest.mark.rule("R2.2")
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (tokens("un", "believ", "able"), "unbelievable"),
        (tokens(" a", "  b", "\n", "c "), "a  b\nc"),
        (words("a", "b"), "a b"),
        (words("a ", "b", " c"), "a b c"),
        (words("a\n", "b"), "a\nb"),
        (words("a", " ", "b"), "a b"),
        (words("a", "", "b"), "a b"),
        (words("a", "\u2003b"), "a\u2003b"),
        (words("don", "'t"), "don 't"),
        (tokens("a") + words("b"), "a b"),
        (words("a") + tokens("b", "c"), "a bc"),
        (tokens("a ") + words("b"), "a b"),
        (tokens("a") + tokens("") + tokens("b"), "ab"),
        (tokens("a") + words("") + tokens("b"), "ab"),
        (words("a", includes_inter_frame_spaces=True) + tokens("b"), "ab"),
        (words("a", includes_inter_frame_spaces=True) + words("b", includes_inter_frame_spaces=True), "ab"),
        (words("a", includes_inter_frame_spaces=True) + words("b"), "a b"),
        ([VisionTextFrame(text="a"), VisionTextFrame(text="b")], "ab"),
        (tokens("a") + [VisionTextFrame(text="b")], "ab"),
        (words("  a  ", "  b  "), "a    b"),
    ],
)
def test_pieces_meet_as_they_are_if_both_carry_their_spaces_and_with_one_space_otherwise(pieces, text):
    assert play(start(), pieces, end()).texts == [f"assistant: {text}"]


@pytest.mark.rule("R2.2")
def test_a_chunk_kept_out_of_the_context_leaves_no_trace_at_its_seam():
    kept_out = words("secret", append_to_context=False)
    assert play(start(), tokens("a"), kept_out, tokens("b"), end()).texts == ["assistant: ab"]
    assert play(start(), words("a"), kept_out, words("b"), end()).texts == ["assistant: a b"]
    assert play(start(), kept_out, end()).texts == []
    assert play(start(), kept_out).became == "applied"


@pytest.mark.rule("R2.2")
@pytest.mark.parametrize(
    ("halves", "text"),
    [
        (["\\ud83d", "\\ude00"], "\U0001f600"),
        (["a\\ud83d", "\\ude00b"], "a\U0001f600b"),
        (["a\\ud83d", "b"], "a\\ud83db"),
        (["\\ude00", "\\ud83d"], "\\ude00\\ud83d"),
        (["\\ud83d", "\\ude00\\ud83d"], "\U0001f600\\ud83d"),
    ],
)
def test_halves_of_a_character_that_meet_are_joined_and_one_left_over_is_written_as_its_escape(halves, text):
    pieces = [decode(b'{"type": "LLMTextFrame", "text": "%s"}' % half.encode()) for half in halves]
    played = play(start(), pieces, end())
    assert played.texts == [f"assistant: {text}"]
    json.dumps(played.messages, ensure_ascii=False).encode()


@pytest.mark.rule("R2.2")
def test_a_vision_response_is_a_response():
    see, seen = VisionFullResponseStartFrame(), VisionFullResponseEndFrame()
    assert play(see, VisionTextFrame(text="a "), VisionTextFrame(text="cat"), seen).texts == [
        "assistant: a cat"
    ]
    assert play(ask(), see, VisionTextFrame(text="a cat"), seen).state.runs.open is None


@pytest.mark.rule("R2.3")
@pytest.mark.parametrize("said", [[], tokens(""), tokens(" ", "\n"), words(" ", "\u00a0")])
@pytest.mark.parametrize("closes", [end(), interrupt(), start()])
def test_a_response_of_whitespace_writes_nothing(said, closes):
    played = play(append("x"), start(), said, closes)
    assert (played.texts, played.became) == (["user: x"], "applied")


@pytest.mark.rule("R2.4")
def test_a_response_stands_where_it_ends():
    played = play(start(), tokens("one"), append("user"), begin("a"), tokens(" two"), end(), append("later"))
    assert played.texts == [
        "user: user",
        "assistant calls a(a)",
        "tool a: IN_PROGRESS",
        "assistant: one two",
        "user: later",
    ]


@pytest.mark.rule("R2.4")
def test_an_announcement_does_not_cut_the_text_in_two():
    played = play(
        ask(), start(1), tokens("let me", run=1), announce("a", run=1), tokens(" see", run=1), end(1)
    )
    assert played.texts == ["assistant: let me see"]


@pytest.mark.rule("R2.4")
def test_the_text_of_a_run_precedes_its_calls():
    run = [ask(), start(1), tokens("let me see", run=1), announce("a", run=1), end(1)]
    assert play(run, begin("a", attempt=1)).texts == [
        "assistant: let me see",
        "assistant calls a(a)",
        "tool a: IN_PROGRESS",
    ]


@pytest.mark.rule("R2.5")
def test_a_push_writes_what_was_said_and_leaves_the_response_open():
    played = play(start(), tokens("one "), push(), append("x"), tokens(" two"), end())
    assert played.texts == ["assistant: one", "user: x", "assistant: two"]


@pytest.mark.rule("R2.5")
@pytest.mark.parametrize("said", [[], tokens("  "), tokens("one") + [push()]])
def test_a_push_of_nothing_is_ignored_and_the_response_stays_open(said):
    played = play(start(), said, push())
    assert (played.became, played.changes) == ("nothing_said", ())
    assert play(tokens("end"), end(), onto=played).texts[-1] == "assistant: end"


@pytest.mark.rule("R2.5")
def test_a_push_closes_no_run_and_leaves_the_open_thought_alone():
    played = play(ask(), start(1), think(1), thinking("hm", run=1), tokens("a", run=1), push(1))
    assert played.state.runs.open.run_id == run_id(1)
    then = play(thought("s", run=1), tokens("b", run=1), end(1), onto=played)
    assert then.texts == ["assistant: a", "thought: hm", "assistant: b"]


@pytest.mark.rule("R2.6")
def test_an_interruption_writes_what_was_said_closes_the_run_and_drops_what_follows():
    played = play(ask(), start(1), tokens("I was saying", run=1), interrupt(), tokens(" more", run=1), end(1))
    assert played.texts == ["assistant: I was saying"]
    assert played.reasons[-2:] == ["run_over", "run_over"]
    closed = [change for change in played.steps[3].changes if isinstance(change, RunClosed)]
    assert [(change.run_id, change.end) for change in closed] == [(run_id(1), "interrupted")]


@pytest.mark.rule("R2.6")
def test_an_interruption_closes_a_plain_response_too():
    played = play(start(), tokens("I was"), interrupt(), tokens(" more"), end())
    assert played.texts == ["assistant: I was"]
    assert played.reasons[-2:] == ["no_open_response", "no_open_response"]


@pytest.mark.rule("R2.6")
@pytest.mark.parametrize("of", [None, 1])
def test_an_interruption_drops_an_open_thought_whole_even_if_its_response_has_ended(of):
    during = play(ask(), start(of), think(of), thinking("hm", run=of), interrupt(), thought("s", run=of))
    assert (during.texts, during.became) == ([], "run_over" if of else "no_open_response")
    after = play(start(), think(), thinking("hm"), end(), interrupt(), thought("s"))
    assert (after.texts, after.became) == ([], "no_open_response")


@pytest.mark.rule("R2.6")
@pytest.mark.parametrize(
    ("turn", "rest"),
    [
        ([speak(), hear("wait")], [hear("please"), stop()]),
        ([speak(), hear("wait"), interim(), stop()], [hear("please")]),
        ([speak()], [hear("wait"), interim(), stop(), hear("please")]),
    ],
)
def test_an_interruption_leaves_the_words_of_the_user_alone(turn, rest):
    played = play(start(), tokens("I"), turn, interrupt(), rest)
    assert (played.texts, len(played.asked)) == (["assistant: I", "user: wait please"], 1)
    assert played.asked == [len(played.steps)]


@pytest.mark.rule("R2.6")
def test_an_interruption_keeps_thoughts_that_have_ended():
    played = play(ask(), start(1), think(1), thinking("hm", run=1), thought("s", run=1), tokens("so", run=1))
    assert play(interrupt(), onto=played).texts == ["thought: hm", "assistant: so"]


@pytest.mark.rule("R2.6")
def test_an_interruption_with_nothing_to_interrupt_is_applied_and_changes_nothing():
    played = play(append("x"), interrupt(), interrupt())
    assert (played.became, played.changes, played.effects[-1]) == ("applied", (), ())


@pytest.mark.rule("R2.6", "RA5.messages")
def test_a_response_goes_on_when_the_history_is_replaced():
    played = play(ask(), start(1), tokens("one", run=1), update("new"), tokens(" two", run=1), end(1))
    assert played.texts == ["user: new", "assistant: one two"]


@pytest.mark.rule("R2.1")
def test_the_end_of_a_response_asks_for_nothing():
    played = play(ask(), answer("hi", run=1))
    assert (played.asked, played.opened, played.effects[-1]) == ([1], [1], ())
