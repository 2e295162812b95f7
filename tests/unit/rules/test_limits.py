"""The limits of a conversation: a frame that exceeds one is ignored, with the limit as its reason (R8)."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.rules.dsl import (
    CONTEXT,
    announce,
    answer,
    append,
    ask,
    begin,
    bot_stops,
    cancel,
    committed,
    context,
    effects_of,
    end,
    fail,
    finish,
    hear,
    interrupt,
    limits,
    play,
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
    words,
)

from frameledger.evolve.changes import RunOpened, SettingChanged
from frameledger.fold import Conversation, Folding
from frameledger.frames import encode_frame
from frameledger.record import decode


def a_round(run, call, version):
    """A run that calls, and its result, which requests the next run: five frames from `version` on."""
    return [*committed(call, run=run), begin(call, attempt=1), result(call, version, attempt=1)]


def rounds(count, first=2):
    """So many rounds, one after another, of the run that frame `first` requested."""
    frames, run = [], first
    for number in range(count):
        frames += a_round(run, f"c{number}", first)
        run = first + 5 * (number + 1)
    return frames


@pytest.mark.rule("R8.1")
def test_limits_are_replaced_whole_and_a_context_frame_leaves_them():
    played = play(limits(rounds=3, calls_per_run=2), context("hi"), update("you"), limits(rounds=4))
    assert played.changes == (SettingChanged("limits", {"rounds": 4}),)
    assert play(limits(), onto=played).state.terms.limits == {}
    assert play(limits(), limits()).changes == ()


@pytest.mark.rule("R8.1")
def test_without_limits_nothing_is_limited():
    played = play(append("go", run_llm=True), rounds(60, first=1))
    assert set(played.reasons) == {None}


@pytest.mark.rule("R8.1")
def test_in_a_recording_no_limit_acts():
    recorded = context("hi", react=False)
    played = play(limits(rounds=1, calls_per_run=1), recorded, *(announce("a", "b") for _ in range(3)))
    assert "too_many_calls" not in played.reasons
    assert "too_many_rounds" not in played.reasons


@pytest.mark.rule("R8.2")
def test_an_announcement_with_more_calls_than_a_run_may_have_is_ignored_whole():
    played = play(limits(calls_per_run=2), ask(), start(2), announce("a", "b", "c", run=2))
    assert played.became == "too_many_calls"
    assert played.state.calls.open == {}
    then = play(end(2), onto=played)
    assert then.became == "applied"
    assert then.state.runs.open is None


@pytest.mark.rule("R8.2")
def test_the_calls_of_all_announcements_of_a_run_count():
    played = play(
        limits(calls_per_run=2),
        ask(),
        start(2),
        announce("a", run=2),
        announce("b", "c", run=2),
        announce("d", run=2),
    )
    assert played.reasons[3:] == [None, "too_many_calls", None]
    assert list(played.state.calls.open) == ["a", "d"]


@pytest.mark.rule("R8.2")
def test_calls_of_another_run_and_of_an_earlier_attempt_do_not_count():
    again = play(
        limits(calls_per_run=1),
        ask(),
        start(2),
        announce("a", run=2),
        start(2, attempt=2),
        announce("b", run=2, attempt=2),
    )
    assert again.became == "applied"
    another = play(
        limits(calls_per_run=1),
        ask(),
        *committed("a", run=2),
        begin("a", sync=False),
        ask(),
        start(7),
        announce("b", run=7),
    )
    assert another.became == "applied"


@pytest.mark.rule("R8.2", "R8.3")
def test_a_call_that_is_open_already_is_no_more_of_them_and_its_announcement_no_round():
    played = play(limits(calls_per_run=1), ask(), start(2), announce("a", run=2), announce("a", run=2))
    assert played.became == "call_open_already"
    again = play(limits(rounds=1), start(), announce("a"), end(), start(), announce("a"))
    assert again.became == "call_open_already"


@pytest.mark.rule("R8.2")
def test_a_call_that_nobody_announced_and_one_of_another_response_do_not_count():
    begun = play(limits(calls_per_run=1), begin("x"), start(), announce("a"))
    assert begun.became == "applied"
    assert play(end(), start(), announce("b"), onto=begun).became == "applied"


@pytest.mark.rule("R8.2")
def test_a_response_that_names_no_run_is_limited_too():
    played = play(limits(calls_per_run=1), start(), announce("a"), announce("b"))
    assert played.became == "too_many_calls"
    assert play(limits(calls_per_run=1), announce("a", "b")).became == "too_many_calls"


@pytest.mark.rule("R8.2")
@pytest.mark.regression("fault 56")
def test_an_attempt_without_a_run_is_no_other_announcer():
    played = play(limits(calls_per_run=1), start(), announce("a", attempt=1), announce("b", attempt=2))
    assert played.became == "too_many_calls"


@pytest.mark.rule("R8.2", "R8.3")
def test_an_announcement_outside_a_response_counts_by_itself():
    played = play(limits(calls_per_run=1, rounds=2), announce("a"), announce("b"), announce("c"))
    assert played.reasons == [None, None, None, "too_many_rounds"]


@pytest.mark.rule("R8.3")
def test_a_model_that_calls_itself_for_ever_is_stopped():
    frames = rounds(2)
    played = play(
        limits(rounds=2), append("go", run_llm=True), frames, start(12), announce("more", run=12), end(12)
    )
    assert played.reasons[-3:] == [None, "too_many_rounds", None]
    assert played.state.runs.open is None
    assert played.state.runs.wanted is None
    assert played.state.calls.open == {}


@pytest.mark.rule("R8.3")
@pytest.mark.parametrize("said", [append("on", run_llm=True), hear("on"), ask(), update("on", run_llm=True)])
def test_an_input_begins_to_count_anew(said):
    stopped = play(limits(rounds=1), ask(), rounds(1), start(7), announce("more", run=7), end(7))
    assert stopped.reasons[-2] == "too_many_rounds"
    on = play(said, rounds(1, first=11), start(16), announce("more", run=16), onto=stopped)
    assert on.reasons[11:] == [None] * 6 + ["too_many_rounds"]


@pytest.mark.rule("R8.3")
@pytest.mark.parametrize("said", [append("a note"), update("a summary")])
def test_what_requests_no_run_is_no_input(said):
    played = play(limits(rounds=1), ask(), rounds(1), said, start(7), announce("more", run=7))
    assert played.became == "too_many_rounds"


@pytest.mark.rule("R8.3")
def test_all_attempts_of_a_run_are_one_round():
    played = play(
        limits(rounds=1),
        ask(),
        start(2),
        announce("a", run=2),
        start(2, attempt=2),
        announce("b", run=2, attempt=2),
    )
    assert played.became == "applied"
    assert played.state.pace.rounds == 1


@pytest.mark.rule("R8.3")
def test_a_run_without_calls_is_no_round():
    played = play(limits(rounds=1), ask(), *answer("hm", run=2))
    assert played.state.pace.rounds == 0


@pytest.mark.rule("R8.3")
def test_answers_that_name_no_run_are_counted_each():
    played = play(limits(rounds=1), start(), announce("a"), end(), start(), announce("b"))
    assert played.became == "too_many_rounds"


@pytest.mark.rule("R8.3")
def test_all_that_one_answer_announces_is_a_round_and_each_announcement_outside_of_one():
    answers = play(limits(rounds=1), start(), announce("a"), announce("b"))
    assert answers.became == "applied"
    while_a_run_is_open = play(limits(rounds=1), ask(), announce("a"), announce("b"))
    assert while_a_run_is_open.reasons == [None, None, None, "too_many_rounds"]


@pytest.mark.rule("R8.3")
def test_as_a_run_opens_the_rounds_before_it_are_counted():
    played = play(append("go", run_llm=True), rounds(2, first=1))
    opened = [
        (one.run_id, step.state.pace.rounds)
        for step in played.steps
        for one in step.changes
        if isinstance(one, RunOpened)
    ]
    assert opened == [(run_id(1), 0), (run_id(6), 1), (run_id(11), 2)]


# R8.4: room. The fold reckons ENVELOPE bytes for each message that it makes itself.


@pytest.mark.rule("R8.4")
def test_an_append_that_has_no_room_is_ignored_whole():
    played = play(limits(context_messages=2), append("a"), append("b", "c"), append("b"), append("c"))
    assert played.reasons == [None, None, "context_full", None, "context_full"]
    assert played.texts == ["user: a", "user: b"]


@pytest.mark.rule("R8.4")
def test_a_history_that_is_replaced_makes_room():
    played = play(
        limits(context_messages=2), append("a", "b"), update("c"), append("d"), update("e", "f", "g")
    )
    assert played.reasons == [None, None, None, None, "context_full"]
    assert played.texts == ["user: c", "user: d"]
    assert play(context("x", "y", "z"), onto=played).became == "context_full"


@pytest.mark.rule("R8.4")
def test_bytes_are_those_of_messages_as_json():
    exactly = len('{"role":"user","content":"ä"}'.encode())
    assert play(limits(context_bytes=exactly), append("ä")).became == "applied"
    assert play(limits(context_bytes=exactly - 1), append("ä")).became == "context_full"


@pytest.mark.rule("R8.4")
def test_what_is_open_keeps_its_room():
    played = play(limits(context_messages=2), start(), *tokens("Hi"), append("a"), append("b"), end())
    assert played.reasons[2:] == [None, None, "context_full", None]
    assert played.texts == ["user: a", "assistant: Hi"]
    turn = play(limits(context_messages=1), speak(), hear("one"), append("a"), hear("two"), stop())
    assert turn.reasons[2:] == [None, "context_full", None, None]
    assert turn.texts == ["user: one two"]


@pytest.mark.rule("R8.4")
def test_a_model_that_never_stops_is_cut_where_there_is_no_room():
    played = play(
        limits(context_bytes=10_000), ask(), start(2), [tokens("word " * 50, run=2) for _ in range(9)], end(2)
    )
    assert played.reasons[3:] == [None] * 4 + ["context_full"] * 5 + [None]
    assert played.state.place.bytes < 10_000


@pytest.mark.rule("R8.4")
def test_calls_that_have_no_room_are_not_announced_and_held_inputs_keep_theirs():
    played = play(
        limits(context_messages=4), ask(), start(2), announce("a", "b", run=2), announce("a", run=2)
    )
    assert played.reasons[3:] == ["context_full", None]
    held = play(
        limits(context_messages=2),
        append("one", run_llm=True),
        append("two", run_llm=True, second_input="coalesce"),
    )
    assert play(append("three"), onto=held).became == "context_full"
    written = play(start(2), end(2), onto=held)
    assert written.texts == ["user: one", "user: two"]


@pytest.mark.rule("R8.4")
def test_a_call_whose_arguments_have_no_room_is_forgotten_and_its_worker_told():
    calls = [ask(), *committed("a", run=2)]
    played = play(limits(context_bytes=5_000), calls, begin("a", attempt=1, arguments={"text": "x" * 5_000}))
    assert played.became == "context_full"
    assert played.state.calls.open == {}
    assert effects_of(played) == ["stop a"]
    assert played.texts == []
    unannounced = play(limits(context_messages=2), begin("a"))
    assert unannounced.became == "context_full"


@pytest.mark.rule("R7.5", "R8.4")
def test_what_is_held_for_a_run_that_waited_for_such_a_call_is_written():
    held = play(
        append("one", run_llm=True),
        *committed("a", run=1),
        append("two", run_llm=True, second_input="coalesce"),
        limits(context_messages=3),
    )
    assert held.texts == ["user: one"]
    forgotten = play(begin("a", attempt=1), onto=held)
    assert forgotten.became == "context_full"
    assert forgotten.texts == ["user: one", "user: two"]
    assert effects_of(forgotten) == ["stop a", "run 5"]


@pytest.mark.rule("R8.4")
def test_a_result_that_has_no_room_settles_its_call_and_changes_nothing():
    calls = [ask(), *committed("a", run=2), begin("a", attempt=1)]
    played = play(limits(context_bytes=9_000), calls, result("a", "x" * 5_000, attempt=1))
    assert played.became == "context_full"
    assert played.state.calls.open == {}
    assert played.texts == ["assistant calls a(a)", "tool a: IN_PROGRESS"]
    assert played.state.runs.wanted is None
    assert played.state.runs.open is None


@pytest.mark.rule("R8.4")
def test_a_result_in_between_and_one_of_a_person_have_no_room_either():
    calls = [ask(), *committed("a", run=2), begin("a", sync=False, attempt=1)]
    between = play(limits(context_bytes=9_000), calls, result("a", "x" * 5_000, attempt=1, final=False))
    assert between.became == "context_full"
    assert list(between.state.calls.open) == ["a"]
    ambiguous = play(limits(context_bytes=9_000), calls, result("a", 1, settled_as="ambiguous"))
    resolved = play(result("a", "x" * 5_000, settled_as="resolved"), onto=ambiguous)
    assert resolved.became == "context_full"
    assert play(result("a", "no", settled_as="resolved"), onto=resolved).became == "applied"


@pytest.mark.rule("R8.4")
def test_what_was_heard_and_has_no_room_leaves_the_text():
    said = [limits(context_bytes=3_000), start(), *tokens("First"), end()]
    assert play(said, interrupt("x" * 3_000)).texts == ["assistant: First"]
    assert play(said, interrupt("Fi")).texts == ["assistant: Fi"]


@pytest.mark.rule("R8.4")
def test_a_signature_and_announced_tools_take_room():
    opened = [limits(context_bytes=3_000), start(), think()]
    assert play(opened, thought("s" * 400)).became == "context_full"
    assert play(opened, thinking("x" * 400)).became == "context_full"
    assert play(opened, thinking("x"), thought("s")).became == "applied"
    assert (
        play(limits(context_bytes=900), settings(add_tool_change_messages=True), tools("f")).became
        == "context_full"
    )


# R8.5: by the log's time


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds, *frames):
    return [(frame, NOON + timedelta(seconds=seconds)) for frame in frames]


def timed(*parts):
    """The reasons of frames that were logged at these times."""
    folding = Folding(Conversation.new(CONTEXT))
    steps = [folding.step(decode(encode_frame(frame)), at) for part in parts for frame, at in part]
    return [step.reason for step in steps]


@pytest.mark.rule("R8.5")
def test_more_frames_than_a_second_takes_are_ignored_until_the_next():
    said = [append("a"), hear("b"), settings(x=1)]
    assert timed(
        at(0, limits(frames_per_second=2)),
        at(0.1, *said),
        at(0.9, append("c")),
        at(1, *said),
        at(5, append("d")),
    ) == [None, None, None, "too_many_frames", "too_many_frames", None, None, "too_many_frames", None]


@pytest.mark.rule("R8.5")
def test_what_ends_something_and_what_a_run_or_a_call_says_is_never_too_many():
    never = [
        start(2), *tokens("x", run=2), announce("a", run=2), end(2), begin("a", attempt=1), result("a", 1, attempt=1),
        stop(), interrupt(), fail(), cancel("a"), bot_stops(), finish(), limits(),
    ]  # fmt: skip
    reasons = timed(at(0, limits(frames_per_second=1), ask(), *never))
    assert "too_many_frames" not in reasons
    # Nor does it count: two frames are two, with all of that between them.
    between = timed(at(0, limits(frames_per_second=2), ask(), *never[:-1], append("a"), append("b")))
    assert between[-2:] == [None, "too_many_frames"]


@pytest.mark.rule("R8.5")
def test_each_frame_counts_once_and_words_that_name_no_run_count_too():
    said = [start(), *words("a"), *tokens("b"), end(), append("c"), append("d")]
    assert timed(at(0, limits(frames_per_second=3), *said)) == [None] * 6 + ["too_many_frames"]


@pytest.mark.rule("R8.5", "R8.3")
def test_frames_are_counted_beside_rounds():
    counted = limits(frames_per_second=3, rounds=1)
    calls = [start(2), announce("a", run=2), append("note"), start(2, 2), announce("b", run=2, attempt=2)]
    reasons = timed(at(0, counted, ask(), *calls, append("more", run_llm=True), append("too many")))
    assert reasons == [None] * 8 + ["too_many_frames"]


@pytest.mark.rule("R8.5")
def test_only_what_comes_while_there_is_a_limit_counts():
    said = [append("a"), append("b")]
    before = timed(at(0, limits(rounds=9), *said, limits(frames_per_second=2), append("c"), append("d")))
    assert before[-2:] == [None, "too_many_frames"]
    assert timed(at(0, limits(frames_per_second=1), append("a"), limits(rounds=9), *said)) == [None] * 5


@pytest.mark.rule("R8.5")
def test_without_the_logs_time_and_in_a_recording_no_time_limits():
    said = [append("a"), append("b")]
    assert play(limits(frames_per_second=1), *said).reasons == [None] * 3
    recording = timed(at(0, limits(frames_per_second=2), context(react=False), *said))
    assert recording == [None] * 4
    lowered = [limits(frames_per_second=1), *said]
    counted = [limits(frames_per_second=3), append("a"), context(react=False), *lowered]
    assert timed(at(0, *counted)) == [None] * 6
    # Nothing of a recording counts after it either.
    after = [append("a"), context(), append("b"), append("c")]
    assert timed(at(0, limits(frames_per_second=2), context(react=False), *said, *after))[-2:] == [
        None,
        "too_many_frames",
    ]


@pytest.mark.rule("R8.5")
def test_a_frame_that_sets_limits_counts_and_one_too_many_is_ignored_for_nothing_else():
    setting = limits(frames_per_second=1)
    assert timed(at(0, setting, setting, hear(" "), setting)) == [None, None, "too_many_frames", None]


@pytest.mark.rule("R8.4")
def test_what_was_open_when_the_limit_was_set_is_written_but_for_results():
    opened = [start(), tokens("so"), begin("a", sync=False), begin("b", sync=False), limits(context_bytes=1)]
    played = play(opened, end(), cancel("a"), result("b", 1))
    assert played.reasons[-3:] == [None, None, "context_full"]
    assert len(played.messages) == 6


@pytest.mark.rule("R8.5")
def test_frames_that_are_ignored_do_not_count():
    assert timed(at(0, limits(frames_per_second=1), hear(" "), hear(" "), append("a"), append("b"))) == [
        None, "nothing_said", "nothing_said", None, "too_many_frames",
    ]  # fmt: skip
