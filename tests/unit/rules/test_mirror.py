"""Mirrors: clients write the messages of the context, and all other frames are only followed (RA5.mirror)."""

import pytest
from tests.unit.frame_examples import EXAMPLES
from tests.unit.rules.dsl import (
    CONTEXT,
    announce,
    answer,
    append,
    ask,
    begin,
    bot_speaks,
    bot_stops,
    break_off,
    cancel,
    committed,
    context,
    effects_of,
    end,
    finish,
    hear,
    interim,
    interrupt,
    mirror,
    play,
    push,
    result,
    rewrite,
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
    words,
)

from frameledger import stored
from frameledger.effects import Cancel
from frameledger.evolve.erasure import KNOWN_MIRRORS
from frameledger.frames import FRAME_TYPES, LLMContextEraseFrame, LLMMessagesAppendFrame, UnknownFrame
from frameledger.values import replace

KEPT = [mirror("m"), append("hello")]


def by(name, frame):
    """The frame, said for this mirror."""
    return frame.model_copy(update={"mirror": name})


@pytest.mark.rule("RA5.mirror")
def test_a_mirror_changes_no_message_and_asks_for_nothing():
    played = play(append("hello"), mirror("m"))
    assert played.texts == ["user: hello"]
    assert (played.became, played.asked, effects_of(played)) == ("applied", [], [])
    assert played.state.terms.mirror == "m"


SAID = {
    "a turn": [speak(), hear("what is it like"), stop()],
    "words outside a turn": [hear("by the way")],
    "a turn whose words come late": [speak(), interim(), stop(), hear("late")],
    "an answer": answer("it is ", "fine"),
    "an answer that is pushed": [start(), *tokens("it is"), push(), end()],
    "a thought": [start(), think(), *thinking("hm"), thought("signed"), end()],
    "a call": [begin("a"), result("a", 1)],
    "a cancelled call": [begin("a"), cancel("a")],
    "an asynchronous call": [begin("a", sync=False), result("a", 1, final=False), result("a", 2)],
    "an asynchronous call, cancelled": [begin("a", sync=False), cancel("a")],
    "an ambiguous call": [
        begin("a"),
        result("a", None, settled_as="ambiguous"),
        result("a", 1, settled_as="resolved"),
    ],
    "an interruption": [start(), *tokens("it is fine"), interrupt()],
    "words that were heard": [start(), *words("it is fine"), interrupt(heard_text="it is")],
    "an end": [speak(), hear("so"), start(), *tokens("well"), begin("a"), finish()],
    "a cancel": [begin("a", sync=False), break_off()],
    "tools": [settings(add_tool_change_messages=True), tools("a")],
}


@pytest.mark.rule("RA5.mirror")
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_in_a_mirror_what_is_said_is_followed_and_writes_nothing(said):
    assert play(said).texts != []
    played = play(KEPT, said)
    assert set(played.outcomes) == {"applied"}
    assert played.texts == ["user: hello"]
    assert played.asked == []
    # Whoever works on a call that is cancelled is told so.
    assert all(isinstance(effect, Cancel) for effects in played.effects for effect in effects)
    assert played.state.runs.owed_to_turn is played.state.runs.owed_to_bot is False


@pytest.mark.rule("RA5.mirror")
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_what_is_followed_leaves_open_what_it_would_leave_open_elsewhere(said):
    here, there = (
        play(append("hello"), mirror(None), said).state,
        play(append("hello"), mirror("m"), said).state,
    )
    assert (here.calls.open.keys(), here.calls.settled) == (there.calls.open.keys(), there.calls.settled)
    assert (here.turn is None, here.speech.response is None) == (
        there.turn is None,
        there.speech.response is None,
    )
    assert here.terms.ended == there.terms.ended


@pytest.mark.rule("RA5.mirror")
def test_in_a_mirror_clients_write_and_rewrite_messages_and_begin_eras():
    played = play(KEPT, append("more"), rewrite(1, "hullo"), rewrite(2, None))
    assert (played.texts, played.positions) == (["user: hullo"], [1])
    played = play(update("anew"), append("more"), onto=played)
    assert (played.texts, played.state.place.era) == (["user: anew", "user: more"], 2)
    played = play(context("opened"), onto=played)
    assert (played.texts, played.state.place.era) == (["user: opened"], 3)
    assert played.state.terms.mirror == "m"


@pytest.mark.rule("RA5.mirror")
@pytest.mark.parametrize(
    "asking", [ask(), append("x", run_llm=True), update("x", run_llm=True), context("x", run_llm=True)]
)
def test_in_a_mirror_clients_ask(asking):
    assert effects_of(play(KEPT, asking)) == ["run 3"]
    if asking.type != "LLMContextFrame":
        assert play(mirror("m", react=False), append("hello"), asking).effects[2:] == [()]


@pytest.mark.rule("RA5.mirror")
def test_in_a_mirror_a_result_asks_for_nothing_whatever_it_says():
    played = play(
        KEPT,
        [begin("a"), result("a", 1, run_llm=True)],
        [begin("b"), result("b", 1, says=True), begin("c"), cancel("c", run_llm=True)],
        [bot_speaks(), begin("d"), result("d", 1), bot_stops()],
        [speak(), begin("e"), result("e", 1), stop(), stop()],
        [announce("f", "g"), begin("f"), begin("g"), result("f", 1), result("g", 2)],
    )
    assert played.asked == []


@pytest.mark.rule("RA5.mirror")
def test_the_model_answers_and_calls_in_a_mirror_and_the_keeper_says_what_is_kept_of_it():
    played = play(KEPT, ask(), committed("a", run=3), [begin("a", attempt=1), result("a", 1, attempt=1)])
    assert effects_of(played, 6) == ["call a"]
    assert (played.texts, played.asked) == (["user: hello"], [3])
    played = play(append("it said 1"), ask(), answer("one", run=10), onto=played)
    assert (played.texts, played.became) == (["user: hello", "user: it said 1"], "applied")
    assert played.state.runs.open is None


@pytest.mark.rule("RA5.mirror", "RA5.attempts")
def test_in_a_mirror_a_later_attempt_takes_nothing_back():
    written = play(append("hello"), ask(), start(2), tokens("it is", run=2), push(2))
    assert written.texts == ["user: hello", "assistant: it is"]
    assert play(mirror("m"), start(2, attempt=2), onto=written).texts == written.texts


@pytest.mark.rule("RA5.mirror", "R4.3")
def test_whoever_begins_to_keep_the_history_asks_anew():
    """What was to be asked for later, or waits, was to be asked by rules that do not hold any more."""
    waiting = play(ask(), start(1), ask())
    assert waiting.state.runs.wanted is not None
    played = play(mirror("m"), end(1), onto=waiting)
    assert played.opened == [1]
    owed = play(bot_speaks(), begin("a"), result("a", 1))
    assert play(mirror("m"), mirror(None), bot_stops(), onto=owed).asked == []


@pytest.mark.rule("RA5.mirror")
@pytest.mark.parametrize(
    "late",
    [append("x"), update("x"), rewrite(1, "x"), context("x"), ask(), settings(x=1), tools("t")],
    ids=lambda frame: frame.type,
)
def test_what_is_said_for_another_mirror_than_the_present_one_is_ignored(late):
    for before in (KEPT, [append("hello")], [*KEPT, mirror(None)], [*KEPT, mirror("n")]):
        played = play(before, by("old", late))
        assert played.became == "mirror_superseded"
        assert (played.texts, played.asked, played.changes) == (["user: hello"], [], ())
    for before in (KEPT, [mirror("n"), *KEPT]):
        assert play(before, by("m", late)).became == "applied"
        assert play(before, late).became == "applied"


@pytest.mark.rule("RA5.mirror")
@pytest.mark.regression("bridge 26")
@pytest.mark.parametrize("late", [interrupt("it is"), finish(), break_off()], ids=lambda frame: frame.type)
def test_what_a_process_that_was_replaced_stops_goes_on(late):
    going_on = [ask(), start(2), *tokens("it is fine", run=2), begin("a"), speak(), hear("so")]
    for before in ([], [mirror("old"), mirror(None)], [mirror("old"), mirror("m")]):
        wanted = play(before, going_on)
        played = play(by("old", late), onto=wanted)
        assert (played.became, played.changes) == ("mirror_superseded", ())
        assert played.state == replace(wanted.state, version=played.state.version)
    for before in ([], [mirror("m")]):
        assert play(before, going_on, late).became == "applied"
    assert play(mirror("m"), going_on, by("m", late)).became == "applied"


@pytest.mark.rule("RA5.mirror")
def test_the_process_before_is_fenced_by_the_name_of_the_next():
    """It did not die, and goes on with what it has: none of that counts, and what counts is in order."""
    played = play(mirror("1"), by("1", append("a")), mirror("2"), by("1", append("b")), by("2", append("c")))
    assert played.texts == ["user: a", "user: c"]
    assert played.reasons == [None, None, None, "mirror_superseded", None]


@pytest.mark.rule("RA5.mirror", "RA5.expected")
def test_who_keeps_the_history_is_something_that_a_client_knows():
    assert play(append("a"), mirror("m"), append("b").model_copy(update={"expected_version": 1})).became == (
        "context_changed"
    )
    assert play(append("a"), mirror("m", expected_version=1)).became == "applied"
    assert play(append("a"), append("b"), mirror("m", expected_version=1)).became == "context_changed"
    assert (
        play(mirror("m"), mirror("m"), append("b").model_copy(update={"expected_version": 1})).became
        == "applied"
    )


@pytest.mark.rule("RA5.mirror", "R1.6")
def test_a_mirror_opens_an_ended_context():
    played = play(append("a"), finish(), mirror("m"))
    assert not played.state.terms.ended
    assert play(ask(), onto=played).opened == [4]


@pytest.mark.rule("RA5.mirror", "RA5.recording")
def test_a_mirror_says_whether_it_is_a_recording():
    assert play(mirror("m", react=False), ask()).opened == []
    assert play(mirror("m", react=False), mirror("m"), ask()).opened == [3]
    assert play(context("x", react=False), mirror("m"), ask()).opened == [3]
    assert play(mirror("m", react=False), mirror(None, react=True), ask()).opened == [3]


@pytest.mark.rule("RA5.mirror")
def test_after_a_mirror_what_was_being_said_and_heard_until_then_is_not_written():
    """Whoever kept the history has written of it what belongs there. What comes from then on is written as ever."""
    played = play(KEPT, speak(), hear("kept elsewhere"), mirror(None), hear("kept here"), stop())
    assert played.texts == ["user: hello", "user: kept here"]
    played = play(KEPT, start(), tokens("kept elsewhere"), mirror(None), tokens(" kept here"), end())
    assert played.texts == ["user: hello", "assistant: kept here"]
    played = play(KEPT, start(), think(), thinking("hm"), mirror(None), thought("signed"), end())
    assert (played.texts, played.reasons[-2:]) == (["user: hello"], ["no_open_response", None])


@pytest.mark.rule("RA5.mirror")
def test_only_the_end_of_a_mirror_drops_what_is_being_said_and_heard():
    air = [start(), think(), thinking("hm"), tokens("said"), speak(), hear("heard")]
    kept = play(air, mirror(None), thought("signed"), end(), stop())
    assert kept.texts == ["thought: hm", "assistant: said", "user: heard"]
    for before, after in ((None, "m"), ("m", "m"), ("m", "n")):
        played = play(mirror(before), air, mirror(after))
        assert None not in (played.state.turn.words, played.state.speech.response.text)


@pytest.mark.rule("RA5.mirror", "R4.3")
def test_a_run_that_is_pending_at_the_end_of_a_mirror_is_opened():
    played = play(mirror("m"), ask(), start(2), ask(), mirror(None), end(2))
    assert played.opened == [2, 6]


@pytest.mark.rule("RA5.mirror", "R4.1.cough")
def test_an_interruption_in_a_mirror_defers_no_run_to_the_end_of_the_turn():
    played = play(mirror("m"), ask(), speak(), interrupt())
    assert not played.state.runs.owed_to_turn


@pytest.mark.rule("RA5.mirror", "RA5.attempts")
def test_after_a_mirror_the_next_attempt_takes_nothing_back_that_was_not_written_in_it():
    pushed = [start(2), tokens("it is", run=2), push(2), think(2), thought("signed", 2)]
    played = play(mirror("m"), ask(), pushed, mirror(None), start(2, attempt=2), end(2, attempt=2))
    assert (played.texts, played.became) == ([], "applied")


@pytest.mark.rule("RA5.mirror", "R6.7")
def test_after_a_mirror_what_was_heard_in_it_corrects_nothing():
    heard = play(mirror("m"), start(), tokens("it is"), interrupt("it"), mirror(None), interrupt("i"))
    assert (heard.texts, heard.changes) == ([], ())


@pytest.mark.rule("RA5.mirror", "R3.5")
def test_after_a_mirror_a_call_that_began_in_it_has_no_place_for_its_result():
    played = play(KEPT, begin("a"), begin("b", sync=False), mirror(None), result("a", 1))
    assert (played.became, played.texts, played.asked) == ("place_replaced", ["user: hello"], [])
    played = play(cancel("b"), onto=played)
    assert (played.became, len(played.messages)) == ("applied", 2)


@pytest.mark.rule("RA5.mirror", "R3.5")
def test_a_call_that_began_before_a_mirror_ends_in_it_without_a_word():
    played = play(begin("a"), mirror("m"), result("a", 1))
    assert (played.became, played.texts) == ("applied", ["assistant calls a(a)", "tool a: IN_PROGRESS"])
    assert play(mirror(None), cancel("a"), onto=played).became == "call_settled"


@pytest.mark.rule("RA5.mirror", "RA5.erase")
def test_an_erasure_ends_the_mirror():
    played = play(KEPT, LLMContextEraseFrame(why="asked"), [speak(), hear("hi"), stop()])
    assert (played.state.terms.mirror, played.texts) == (None, ["user: hi"])


@pytest.mark.rule("RA5.lives")
def test_what_is_said_for_a_mirror_of_an_erased_life_is_left_out():
    """A process that goes on with its conversation would store it anew."""
    erased = play(KEPT, LLMContextEraseFrame(why="asked"))
    assert play(by("m", append("still there")), onto=erased).steps[-1] is None
    for late in (ask(), interrupt(), finish(), break_off()):
        assert play(by("m", late), onto=erased).steps[-1] is None
    again = play(mirror("m"), by("m", append("anew")), onto=erased)
    assert again.texts == ["user: anew"]
    later = play(mirror("n"), by("m", append("late")), by("x", append("of nobody")), onto=again)
    assert [step and step.reason for step in later.steps[-2:]] == ["mirror_superseded", None]
    assert later.steps[-1] is None
    # A frame that names the mirror of this life is of this life, whichever run it names.
    assert play(tokens("late", run=1), onto=again).steps[-1] is None
    assert play(by("m", *tokens("late", run=1)), onto=again).became == "run_over"


@pytest.mark.rule("RA5.lives")
@pytest.mark.regression("bridge 52")
@pytest.mark.parametrize("frame_type", [*FRAME_TYPES, "pipecat/TTSStartedFrame"])
def test_whatever_a_process_publishes_whose_conversation_was_erased_begins_no_other_one(frame_type):
    erased = play(KEPT, LLMContextEraseFrame(why="asked"))
    late = by("m", next((one for one in EXAMPLES if one.type == frame_type), UnknownFrame(type=frame_type)))
    begins = frame_type in ("LLMMirrorFrame", "LLMContextEraseFrame")
    assert (play(late, onto=erased).steps[-1] is None) == (not begins)
    assert play(KEPT, late).steps[-1] is not None


@pytest.mark.rule("RA5.lives")
def test_the_life_after_an_erasure_knows_so_many_mirrors():
    erased = LLMContextEraseFrame(why="asked")
    played = play(erased, [mirror(f"m{n}") for n in range(KNOWN_MIRRORS + 1)])
    assert played.state.erased is not None
    assert len(played.state.erased.mirrors) == KNOWN_MIRRORS == 64
    assert play(by("m0", append("x")), onto=played).steps[-1] is None
    again = play(erased, mirror("a"), mirror("a"), mirror("b"), mirror("a"), mirror(None))
    assert again.state.erased.mirrors == ("a", "b", "a")
    assert play(by("m1", append("x")), onto=played).became == "mirror_superseded"


@pytest.mark.rule("RA5.mirror")
def test_a_mirror_is_part_of_the_stored_state():
    played = play(KEPT, begin("a"), rewrite(1, None))
    state = stored.load(stored.dump(played.state))
    assert state == played.state
    assert (state.terms.mirror, state.context_id) == ("m", CONTEXT)


def test_a_name_of_a_mirror_is_an_id():
    for name in ("", "x" * 256):
        with pytest.raises(ValueError, match="mirror"):
            LLMMessagesAppendFrame(messages=[], mirror=name)


@pytest.mark.rule("RA5.mirror", "R7.1")
@pytest.mark.parametrize("way", ["interrupt", "reject", "coalesce"])
def test_in_a_mirror_nothing_is_held_stopped_or_refused_for_a_second_input(way):
    """Who keeps the history interrupts by itself, and knows where each of its messages stands."""
    busy = [*KEPT, settings(second_input=way), ask(), start(4), *tokens("so", run=4)]
    played = play(busy, append("more", run_llm=True), [speak(), hear("and"), stop()])
    assert (played.texts, set(played.outcomes)) == (["user: hello", "user: more"], {"applied"})
    assert played.state.runs.open is not None


@pytest.mark.rule("RA5.mirror", "R7.5")
def test_what_was_held_for_a_run_is_written_before_somebody_else_keeps_the_history():
    held = play(settings(second_input="coalesce"), ask(), append("later", run_llm=True))
    assert held.texts == []
    assert play(mirror("m"), onto=held).texts == ["user: later"]
