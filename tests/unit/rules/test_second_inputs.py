"""Input while a run is open: enqueue, interrupt, reject, coalesce (R7)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    bot_speaks,
    committed,
    context,
    effects_of,
    end,
    finish,
    hear,
    interim,
    interrupt,
    play,
    result,
    run_id,
    settings,
    speak,
    start,
    stop,
    tokens,
    update,
)

from frameledger.evolve.changes import CallSettled, RunClosed
from frameledger.frames import LLMContextEraseFrame

WAYS = ("enqueue", "interrupt", "reject", "coalesce")

# The user asks, and the model has said something: run 1 is open.
TALKING = [append("one", run_llm=True), start(1), *tokens("First", run=1)]


def inputs(**fields):
    return [
        append("two", run_llm=True, **fields),
        update("two", run_llm=True, **fields),
        context("two", run_llm=True) if not fields else context_with("two", **fields),
        ask(**fields),
        hear("two", **fields),
    ]


def context_with(text, **fields):
    return context(text, run_llm=True).model_copy(update=fields)


@pytest.mark.rule("R7.1")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(5))
def test_the_first_input_is_taken_whatever_it_says(way, number):
    played = play(settings(second_input="reject"), inputs(second_input=way)[number])
    assert played.became == "applied"
    assert (played.asked, played.opened) == ([2], [2])


@pytest.mark.rule("R7.1")
def test_an_input_says_what_it_does_else_the_setting_does_else_it_is_enqueued():
    for setting, said, became in (
        (None, None, "applied"),
        (None, "reject", "busy"),
        ("reject", None, "busy"),
        ("reject", "enqueue", "applied"),
        ("enqueue", "reject", "busy"),
    ):
        played = play(settings(second_input=setting), append("one", run_llm=True), ask(second_input=said))
        assert played.became == became


@pytest.mark.rule("R7.1")
@pytest.mark.parametrize("value", ["rejct", 1, True, [], {}, "Reject"])
def test_a_setting_that_is_none_of_the_four_counts_for_nothing(value):
    assert play(settings(second_input=value), *TALKING, ask()).became == "applied"


@pytest.mark.rule("R7.1")
@pytest.mark.parametrize("way", WAYS)
def test_in_a_recording_every_input_is_noted(way):
    played = play(
        context("one", run_llm=True), context(react=False), append("two", run_llm=True, second_input=way)
    )
    assert played.became == "applied"
    assert played.texts == ["user: two"]


@pytest.mark.rule("R7.1")
@pytest.mark.parametrize(
    ("way", "wrote"), [("interrupt", ["First"]), ("enqueue", []), ("coalesce", []), (None, [])]
)
def test_in_a_recording_an_input_interrupts_the_response_that_is_open(way, wrote):
    recorded = [context("one", react=False), start(), *tokens("First")]
    played = play(recorded, append("two", run_llm=True, second_input=way))
    assert played.texts == ["user: one", *(f"assistant: {text}" for text in wrote), "user: two"]


@pytest.mark.rule("R7.1")
def test_in_a_recording_an_input_interrupts_nothing_while_no_response_is_open():
    recorded = [context("one", react=False), announce("a", "b"), begin("a")]
    played = play(recorded, append("two", run_llm=True, second_input="interrupt"))
    assert list(played.state.calls.open) == ["a", "b"]
    assert not played.state.calls.open["a"].running.interrupted


@pytest.mark.rule("R7.1")
@pytest.mark.parametrize("way", WAYS)
def test_what_requests_no_run_is_no_input(way):
    played = play(*TALKING, append("a note", second_input=way), update("another", second_input=way))
    assert played.became == "applied"
    assert played.texts == ["user: another"]
    assert played.state.runs.open.run_id == run_id(1)


@pytest.mark.rule("R7.1")
def test_a_result_is_no_input():
    busy = play(
        settings(second_input="reject"),
        append("one", run_llm=True),
        *committed("a", "b", run=2),
        begin("a", sync=False, attempt=1),
        begin("b", sync=False, attempt=1),
        ask(),
        result("a", 1, says=True),
    )
    assert busy.became == "applied"
    assert busy.asked == [2, 8, 9]


@pytest.mark.rule("R7.2")
@pytest.mark.parametrize("number", range(5))
def test_enqueued_it_is_written_at_once_and_answered_by_the_next_run(number):
    said = play(*TALKING, inputs(second_input="enqueue")[number])
    assert said.state.runs.open.run_id == run_id(1)
    assert said.state.runs.wanted.run_id == run_id(4)
    plain = play(*TALKING, inputs()[number])
    assert (said.texts, said.state.runs) == (plain.texts, plain.state.runs)


@pytest.mark.rule("R7.3")
@pytest.mark.parametrize("number", range(5))
def test_rejected_it_changes_nothing(number):
    before = play(*TALKING)
    after = play(inputs(second_input="reject")[number], onto=before)
    assert after.became == "busy"
    assert after.changes == ()
    assert after.messages == before.messages
    assert after.state.runs == before.state.runs


@pytest.mark.rule("R7.3")
def test_a_turn_that_is_rejected_does_not_begin():
    asked = [settings(second_input="reject"), append("one", run_llm=True), start(2)]
    played = play(asked, speak(), hear("two"), stop(), end(2), hear("three"))
    assert played.reasons[3:] == ["busy", "busy", "no_open_turn", None, None]
    assert played.texts == ["user: one", "user: three"]


@pytest.mark.rule("R7.3")
@pytest.mark.regression("fault 90")
@pytest.mark.parametrize(
    ("turn", "reasons"),
    [
        ([speak(second_input="reject"), hear("two"), hear("three"), stop()], ["busy"] * 3 + ["no_open_turn"]),
        (
            [speak(second_input="reject"), stop(), hear("two"), hear("own")],
            ["busy", "no_open_turn", "busy", None],
        ),
        (
            [speak(second_input="reject"), hear("two"), interim(), stop(), hear("three"), hear("own")],
            ["busy", "busy", "no_open_turn", "no_open_turn", "busy", None],
        ),
        ([speak(second_input="reject"), stop(), stop(), hear("own")], ["busy", *["no_open_turn"] * 2, None]),
        (
            [speak(second_input="reject"), hear("two"), stop(), hear("own")],
            ["busy"] * 2 + ["no_open_turn", None],
        ),
        (
            [speak(second_input="reject"), stop(opened_version=1), hear("two")],
            ["busy", "target_over", "busy"],
        ),
        (
            [speak(second_input="reject"), hear("two"), stop(4), hear("own")],
            ["busy"] * 2 + ["target_over", None],
        ),
        ([speak(second_input="reject"), speak(), hear("own"), stop()], ["busy", None, None, None]),
        (
            [speak(second_input="reject"), hear("own", second_input="enqueue"), stop()],
            ["busy", None, "no_open_turn"],
        ),
    ],
)
def test_the_words_of_a_turn_that_its_own_start_rejected_are_rejected_too(turn, reasons):
    played = play(*TALKING, turn)
    assert played.reasons[3:] == reasons
    assert played.texts == ["user: one"] + (["user: own"] if None in reasons else [])
    assert (played.state.rejected_turn is None) == (reasons[-1] != "busy")


@pytest.mark.rule("R7.3")
def test_the_words_of_a_rejected_turn_are_taken_when_nothing_is_open_any_more():
    played = play(*TALKING, speak(second_input="reject"), end(1), hear("two"), stop())
    assert played.texts == ["user: one", "assistant: First", "user: two"]
    assert (played.asked, played.state.rejected_turn) == ([1, 6], None)


@pytest.mark.rule("R7.3")
@pytest.mark.parametrize("over", [finish(), LLMContextEraseFrame(why="asked")])
def test_a_rejected_turn_is_over_with_its_context(over):
    assert play(*TALKING, speak(second_input="reject"), over).state.rejected_turn is None


@pytest.mark.rule("R7.3")
def test_a_start_that_the_setting_rejects_says_nothing_for_its_words():
    rejected = [
        settings(second_input="reject"),
        *TALKING[:1],
        start(2),
        speak(second_input="reject"),
        speak(),
    ]
    played = play(rejected, settings(second_input=None), hear("two"))
    assert played.texts == ["user: one", "user: two"]


@pytest.mark.rule("R7.3")
def test_what_is_said_after_the_answer_is_taken_again():
    talking = [append("one", run_llm=True), *answer("First", run=2)]
    played = play(settings(second_input="reject"), *talking, speak(), hear("three"), stop())
    assert played.became == "applied"
    assert played.texts == ["user: one", "assistant: First", "user: three"]
    assert played.opened == [2, 8]


@pytest.mark.rule("R7.3")
def test_a_turn_that_had_begun_before_is_enqueued():
    played = play(settings(second_input="reject"), speak(), hear("one"), ask(), stop())
    assert played.became == "applied"
    assert played.texts == ["user: one"]
    assert played.asked == [4, 5]


@pytest.mark.rule("R7.3")
def test_a_turn_that_waits_for_its_words_goes_on_waiting():
    played = play(speak(), stop(), ask(), speak(second_input="reject"), hear("late"))
    assert played.reasons == [None, None, None, "busy", None]
    assert played.texts == ["user: late"]


@pytest.mark.rule("R7.4")
def test_interrupting_it_keeps_what_was_said_and_its_run_takes_the_place_of_the_open_one():
    played = play(*TALKING, append("two", run_llm=True, second_input="interrupt"))
    assert played.texts == ["user: one", "assistant: First", "user: two"]
    assert effects_of(played) == ["stop run 1", "run 4"]
    assert [one.end for one in played.changes if isinstance(one, RunClosed)] == ["interrupted"]
    assert played.opened == [1, 4]
    late = play(*tokens(" words", run=1), end(1), onto=played)
    assert late.reasons[-2:] == ["run_over", "run_over"]


@pytest.mark.rule("R7.4")
def test_interrupting_it_forgets_what_has_not_started_and_cancels_what_can_be():
    calls = committed("sync", "late", run=1)
    played = play(
        append("one", run_llm=True), *calls, begin("sync", attempt=1), ask(second_input="interrupt")
    )
    assert [(one.tool_call_id, one.end) for one in played.changes if isinstance(one, CallSettled)] == [
        ("late", "forgotten")
    ]
    assert effects_of(played) == ["stop sync", "stop late", "run 6"]


@pytest.mark.rule("R7.4")
def test_it_interrupts_once_for_all_that_was_requested_before():
    played = play(
        *TALKING,
        ask(),
        bot_speaks(),
        speak(),
        append("two", run_llm=True, second_input="interrupt"),
        *answer("x", run=7),
    )
    assert played.opened == [1, 7]
    assert played.state.runs.wanted is None
    assert not played.state.runs.owed_to_turn


@pytest.mark.rule("R7.4")
def test_a_turn_interrupts_when_it_closes_with_words_and_not_by_a_cough():
    cough = play(*TALKING, speak(second_input="interrupt"), stop())
    assert cough.state.runs.open.run_id == run_id(1)
    said = play(*TALKING, speak(second_input="interrupt"), hear("two"), stop())
    assert said.texts == ["user: one", "assistant: First", "user: two"]
    assert effects_of(said) == ["stop run 1", "run 6"]


@pytest.mark.rule("R7.5")
def test_coalesced_they_are_written_after_the_answer_and_answered_by_one_run():
    played = play(
        settings(second_input="coalesce"),
        append("one", run_llm=True),
        start(2),
        *tokens("First", run=2),
        append("two", run_llm=True),
        hear("three"),
        speak(),
        hear("four"),
        stop(),
    )
    assert played.texts == ["user: one"]
    assert played.reasons == [None] * 9
    answered = play(end(2), onto=played)
    assert answered.texts == ["user: one", "assistant: First", "user: two", "user: three", "user: four"]
    assert effects_of(answered) == ["run 5"]
    assert answered.opened == [2, 10]
    assert play(*answer("All", run=5), onto=answered).state.runs.wanted is None


@pytest.mark.rule("R7.5")
def test_coalesced_they_wait_for_the_calls_of_the_answer_to_start():
    played = play(
        append("one", run_llm=True),
        *committed("a", run=1),
        append("two", run_llm=True, second_input="coalesce"),
    )
    assert played.texts == ["user: one"]
    began = play(begin("a", attempt=1), onto=played)
    assert began.texts == ["user: one", "assistant calls a(a)", "tool a: IN_PROGRESS", "user: two"]
    assert effects_of(began) == ["run 5"]


@pytest.mark.rule("R7.5")
@pytest.mark.parametrize(("ending", "opened"), [(interrupt(), [1]), (finish(), [1])])
def test_what_is_held_is_written_when_its_run_is_dropped(ending, opened):
    played = play(*TALKING, append("two", run_llm=True, second_input="coalesce"), ending)
    assert played.texts == ["user: one", "assistant: First", "user: two"]
    assert played.opened == opened
    assert played.state.runs.wanted is None


@pytest.mark.rule("R1.6", "R7.5")
def test_what_is_held_is_written_before_what_is_being_said_when_the_context_ends():
    held = append("two", run_llm=True, second_input="coalesce")
    played = play(*TALKING, held, speak(), hear("three"), finish())
    assert played.texts == ["user: one", "assistant: First", "user: two", "user: three"]
    assert played.asked == [1, 4]


@pytest.mark.rule("R7.5")
def test_what_is_held_outlives_a_replaced_history():
    played = play(*TALKING, append("two", run_llm=True, second_input="coalesce"), update("a summary"), end(1))
    assert played.texts == ["user: a summary", "assistant: First", "user: two"]
    recorded = play(
        *TALKING, append("two", run_llm=True, second_input="coalesce"), context("new", react=False)
    )
    assert recorded.texts == ["user: new", "user: two"]


@pytest.mark.rule("R7.5")
def test_what_is_held_is_written_when_another_input_interrupts():
    played = play(
        *TALKING, append("two", run_llm=True, second_input="coalesce"), ask(second_input="interrupt")
    )
    assert played.texts == ["user: one", "assistant: First", "user: two"]
    assert played.opened == [1, 5]


@pytest.mark.rule("R7.5")
def test_after_what_was_held_nothing_heard_corrects_the_answer():
    played = play(*TALKING, append("two", run_llm=True, second_input="coalesce"), end(1), interrupt("Fi"))
    assert played.texts == ["user: one", "assistant: First", "user: two"]


@pytest.mark.rule("R7.5")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_replaced_history_and_a_bare_request_have_nothing_to_hold(number):
    coalesced = play(*TALKING, inputs(second_input="coalesce")[number])
    assert coalesced.texts == play(*TALKING, inputs()[number]).texts
    assert coalesced.state.runs.wanted.run_id == run_id(4)


@pytest.mark.rule("R7.1", "R7.5", "R1.4")
@pytest.mark.regression("fold 1")
@pytest.mark.parametrize("by_setting", [False, True])
@pytest.mark.parametrize(
    "second",
    [
        lambda **fields: [append("two", run_llm=True, **fields)],
        lambda **fields: [hear("two", **fields)],
        lambda **fields: [speak(**fields), hear("two"), stop()],
    ],
    ids=["append", "words", "turn"],
)
def test_where_the_model_is_run_elsewhere_what_coalesces_is_written_at_once(second, by_setting):
    elsewhere = settings(answered_elsewhere=True, second_input="coalesce" if by_setting else None)
    frames = second() if by_setting else second(second_input="coalesce")
    played = play(*TALKING, elsewhere, *frames)
    assert played.texts == ["user: one", "user: two"]
    assert played.state.runs.open.run_id == run_id(1)
    assert play(end(1), onto=played).texts == ["user: one", "user: two", "assistant: First"]


@pytest.mark.rule("R7.3", "R7.4")
def test_where_the_model_is_run_elsewhere_a_run_that_is_still_open_is_interrupted_or_rejects():
    elsewhere = settings(answered_elsewhere=True)
    assert play(*TALKING, elsewhere, ask(second_input="reject")).became == "busy"
    stopped = play(*TALKING, elsewhere, append("two", run_llm=True, second_input="interrupt"))
    assert stopped.texts == ["user: one", "assistant: First", "user: two"]
    assert effects_of(stopped) == ["stop run 1"]
    assert stopped.state.runs.noted == run_id(5)
