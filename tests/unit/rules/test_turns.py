"""The user's turns: when they are written, and when they are answered (R1.1 to R1.5)."""

import pytest
from tests.unit.rules.dsl import (
    append,
    ask,
    break_off,
    end,
    finish,
    hear,
    interim,
    interrupt,
    play,
    speak,
    start,
    stop,
    tokens,
    update,
)

from frameledger.frames import TranscriptionFrame, TranslationFrame


@pytest.mark.rule("R1.1", "R1.2")
@pytest.mark.parametrize(
    ("frames", "texts", "asked"),
    [
        ([speak(), hear("hi"), stop()], ["user: hi"], [3]),
        ([speak(), hear("I am"), hear("here"), stop()], ["user: I am here"], [4]),
        ([speak(), stop(), hear("hi")], ["user: hi"], [3]),
        ([speak(), interim(), stop(), hear("hi")], ["user: hi"], [4]),
        ([speak(), hear("I am"), interim("here"), stop(), hear("here")], ["user: I am here"], [5]),
        ([speak(), hear("I am"), interim("he"), stop(), stop()], ["user: I am"], [5]),
        ([speak(), interim(), hear("hi"), stop()], ["user: hi"], [4]),
        ([speak(), stop(), interim(), hear("hi")], ["user: hi"], [4]),
        ([speak(), interim(), stop(), interim(), hear("hi")], ["user: hi"], [5]),
    ],
)
def test_a_turn_is_one_message_and_one_run_once_its_words_are_final(frames, texts, asked):
    played = play(frames)
    assert (played.texts, played.asked, played.opened) == (texts, asked, asked)
    assert played.state.turn is None


@pytest.mark.rule("R1.2")
@pytest.mark.parametrize(
    "frames",
    [
        [speak(), hear("hi")],
        [speak(), interim()],
        [speak(), hear("hi"), interim()],
        [speak(), hear("hi"), interim(), stop()],
        [speak(), interim(), stop()],
        [speak(), stop()],
    ],
)
def test_a_turn_that_is_not_closed_writes_and_asks_for_nothing(frames):
    played = play(frames)
    assert (played.texts, played.asked) == ([], [])
    assert played.state.turn is not None


@pytest.mark.rule("R1.2")
@pytest.mark.parametrize("between", [[], [interim()], [hear("  ")]])
def test_a_turn_without_words_writes_and_asks_for_nothing_whatever_stops_it(between):
    played = play(speak(), between, stop(), stop())
    assert (played.texts, played.asked, played.state.turn) == ([], [], None)
    assert played.became == "applied"


@pytest.mark.rule("R1.2")
def test_words_that_come_after_an_interim_answer_for_it():
    played = play(speak(), interim("go"), hear("go"), stop())
    assert (played.texts, played.asked) == (["user: go"], [4])


@pytest.mark.rule("R1.2")
def test_an_interim_after_the_stop_lets_the_second_stop_close_the_turn_and_its_late_words_be_their_own():
    played = play(speak(), hear("one"), interim("tw"), stop(), interim("two"), stop(), hear("two"))
    assert played.texts == ["user: one", "user: two"]
    assert played.asked == [6, 7]


@pytest.mark.rule("R1.2")
def test_a_turn_is_trimmed_and_joined_with_one_space_where_none_is():
    played = play(speak(), hear("  so "), hear("what"), hear("now \n"), stop())
    assert played.messages == [{"role": "user", "content": "so what now"}]


@pytest.mark.rule("R1.2", "R2.2")
def test_words_that_bring_their_own_spaces_are_joined_as_they_are():
    spaced = [hear(text, includes_inter_frame_spaces=True) for text in ("un", "believ", "able")]
    assert play(speak(), spaced, hear("news"), stop()).texts == ["user: unbelievable news"]


@pytest.mark.rule("R1.2")
@pytest.mark.parametrize(
    "frames", [[], [speak(), hear("hi"), stop()], [hear("hi")], [speak(), stop(), stop()]]
)
def test_a_stop_outside_a_turn_is_ignored(frames):
    before = play(frames)
    after = play(stop(), onto=before)
    assert after.became == "no_open_turn"
    assert (after.messages, after.asked) == (before.messages, before.asked)


@pytest.mark.rule("R1.2")
@pytest.mark.parametrize(
    ("frames", "opened", "became"),
    [
        ([speak(), hear("hi"), interim(), stop()], 1, "applied"),
        ([speak(), hear("hi")], 1, "applied"),
        ([append("x"), speak(), hear("hi")], 1, "target_over"),
        ([speak(), hear("hi"), stop(), speak(), hear("ho")], 1, "target_over"),
        ([speak(), hear("hi"), stop()], 1, "target_over"),
        ([speak(), speak(), hear("hi")], 2, "target_over"),
        ([speak(), interim(), stop(), speak()], 1, "target_over"),
    ],
)
def test_a_stop_that_names_its_turn_closes_no_other(frames, opened, became):
    before = play(frames)
    after = play(stop(opened), onto=before)
    assert after.became == became
    assert (after.messages == before.messages) == (became == "target_over")


@pytest.mark.rule("R1.1")
def test_an_interim_outside_a_turn_is_ignored_and_holds_no_later_turn_back():
    played = play(interim(), speak(), hear("hi"), stop())
    assert played.reasons == ["no_open_turn", None, None, None]
    assert (played.texts, played.asked) == (["user: hi"], [4])


@pytest.mark.rule("R1.1")
def test_interims_never_reach_the_context():
    played = play(speak(), interim("secret"), stop(), interim("secret"), stop(), interim("secret"))
    assert (played.messages, played.asked) == ([], [])


@pytest.mark.rule("R1.3")
@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u00a0\u2003"])
def test_whitespace_is_no_transcription(blank):
    alone = play(hear(blank))
    assert (alone.became, alone.messages, alone.asked) == ("nothing_said", [], [])
    waiting = play(speak(), interim(), stop(), hear(blank))
    assert (waiting.became, waiting.messages) == ("nothing_said", [])
    assert play(hear("hi"), onto=waiting).texts == ["user: hi"]


@pytest.mark.rule("R1.3")
def test_a_blank_interim_does_not_hold_a_turn_back():
    played = play(speak(), hear("hi"), interim("  "), stop())
    assert played.reasons == [None, None, "nothing_said", None]
    assert (played.texts, played.asked) == (["user: hi"], [4])


@pytest.mark.rule("R1.3")
def test_a_blank_final_does_not_answer_for_an_interim():
    played = play(speak(), hear("one"), interim("two"), hear(" "), stop())
    assert (played.texts, played.asked) == ([], [])
    assert play(hear("two"), onto=played).texts == ["user: one two"]


@pytest.mark.rule("R1.4")
def test_words_outside_a_turn_are_turns_of_their_own():
    played = play(hear(" hi "), hear("there"))
    assert played.texts == ["user: hi", "user: there"]
    assert (played.asked, played.opened) == ([1, 2], [1])


@pytest.mark.rule("R1.4")
def test_words_that_come_after_their_turn_closed_are_written_at_once_and_not_joined_to_the_next():
    played = play(speak(), hear("one"), stop(), hear("two"), speak(), hear("three"), stop())
    assert played.texts == ["user: one", "user: two", "user: three"]
    assert played.asked == [3, 4, 7]


@pytest.mark.rule("R1.4")
def test_words_without_a_turn_go_before_the_response_that_is_streaming():
    played = play(start(), tokens("I am"), hear("wait"), tokens(" here"), end())
    assert played.texts == ["user: wait", "assistant: I am here"]


@pytest.mark.rule("R1.5")
@pytest.mark.parametrize("said", [[], [hear("hi")], [interim()], [hear("hi"), interim()]])
def test_a_repeated_start_changes_nothing_while_the_user_speaks(said):
    once = play(speak(), said)
    again = play(speak(), said, speak())
    assert (again.became, again.changes) == ("applied", ())
    assert again.state.turn == once.state.turn
    assert play(hear("now"), stop(), onto=again).messages == play(hear("now"), stop(), onto=once).messages


@pytest.mark.rule("R1.5")
def test_a_start_closes_the_turn_that_waits_with_the_words_there_are_and_opens_the_next():
    played = play(speak(), hear("one"), interim("tw"), stop(), speak())
    assert (played.texts, played.asked) == (["user: one"], [5])
    assert played.state.turn.opened_version == 5
    assert play(hear("two"), stop(), onto=played).texts == ["user: one", "user: two"]


@pytest.mark.rule("R1.5")
@pytest.mark.parametrize("waiting", [[speak(), stop()], [speak(), interim(), stop()]])
def test_a_start_closes_a_waiting_turn_without_words_silently(waiting):
    played = play(waiting, speak())
    assert (played.texts, played.asked) == ([], [])
    then = play(hear("hi"), stop(), onto=played)
    assert (then.texts, len(then.asked)) == (["user: hi"], 1)


@pytest.mark.rule("R1.5")
def test_the_pending_interim_of_a_closed_turn_does_not_hold_the_next_one_back():
    played = play(speak(), interim(), stop(), speak(), hear("hi"), stop())
    assert (played.texts, played.asked) == (["user: hi"], [6])


@pytest.mark.rule("R1.2")
def test_a_turn_closed_while_a_run_is_open_asks_and_is_remembered():
    played = play(ask(), start(1), speak(), hear("hi"), stop(), end(1))
    assert (played.asked, played.opened) == ([1, 5], [1, 6])


@pytest.mark.rule("R1.1")
def test_a_translation_changes_nothing():
    played = play(speak(), hear("hallo"), TranslationFrame(text="hello"), stop())
    assert (played.texts, played.outcomes) == (["user: hallo"], ["applied"] * 4)


@pytest.mark.rule("R1.1")
def test_an_append_inside_a_turn_stands_before_its_words_and_leaves_the_turn_open():
    played = play(speak(), hear("hi"), append("by hand"), stop())
    assert (played.texts, played.asked) == (["user: by hand", "user: hi"], [4])


@pytest.mark.rule("R1.2", "RA5.messages")
def test_a_turn_goes_on_when_the_history_is_replaced():
    played = play(append("old"), speak(), hear("hi"), update("new"), hear("there"), stop())
    assert (played.texts, played.asked) == (["user: new", "user: hi there"], [6])


@pytest.mark.rule("R1.4")
def test_every_word_of_a_user_is_written_once_whatever_stands_between():
    frames = [
        hear("0"),
        speak(),
        hear("1"),
        interrupt(),
        hear("2"),
        speak(),
        stop(),
        hear("3"),
        interim(),
        hear("4"),
    ]
    frames += [speak(), interim(), stop(), hear("5"), finish(), hear("6"), speak(), hear("7"), break_off()]
    played = play(frames)
    said = " ".join(message["content"] for message in played.messages)
    assert said.split() == [frame.text for frame in frames if isinstance(frame, TranscriptionFrame)]


@pytest.mark.rule("R1.2")
def test_a_turn_that_waits_for_its_words_says_when_it_was_stopped():
    waits = play(speak(), interim(), stop())
    assert (waits.state.turn.opened_version, waits.state.turn.stopped_version) == (1, 3)
    assert play(interim(), onto=waits).state.turn.stopped_version == 3
