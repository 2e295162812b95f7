"""One call: its identity, its results, and the text of its messages (R3.1-R3.5)."""

import json

import pytest
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    cancel,
    committed,
    context,
    end,
    finish,
    in_background,
    interrupt,
    play,
    result,
    start,
    tokens,
    update,
)

from frameledger.decode_error import DecodeError
from frameledger.evolve.changes import CallSettled
from frameledger.record import decode

PAIR = ["assistant calls a(a)", "tool a: IN_PROGRESS"]


@pytest.mark.rule("R3.1")
def test_a_start_repeated_while_the_call_runs_is_the_same_call():
    played = play(begin("a"), begin("a"))
    assert played.became == "call_started"
    assert played.texts == PAIR


@pytest.mark.rule("R3.1")
@pytest.mark.parametrize("settled", [result("a", 1), result("a", None), cancel("a")])
def test_an_id_used_again_after_its_call_settled_is_a_new_call(settled):
    played = play(begin("a"), settled, begin("a"), result("a", 2))
    assert played.texts[2:] == ["assistant calls a(a)", "tool a: 2"]
    first, second = played.frames_with(CallSettled)
    assert (first, second) == (2, 4)
    assert played.steps[1].changes[0].key != played.changes[0].key


@pytest.mark.rule("R3.1")
def test_a_new_call_with_an_old_id_leaves_the_old_result_alone():
    played = play(begin("a"), result("a", "old"), begin("a"), cancel("a"))
    assert played.texts == [
        "assistant calls a(a)",
        'tool a: "old"',
        "assistant calls a(a)",
        "tool a: CANCELLED",
    ]


@pytest.mark.rule("R3.1")
def test_an_asynchronous_id_may_come_again_as_a_synchronous_call():
    played = play(begin("a", sync=False), result("a", 1), begin("a"), result("a", 2))
    assert in_background(played) == [("started", "a", None), ("final", "a", "1")]
    assert played.texts[-2:] == ["assistant calls a(a)", "tool a: 2"]


NAMED = begin("a", opened_version=4)
"""A start of the call that the fourth frame announces in `ANNOUNCED`, by whoever has the function too."""

ANNOUNCED = [append("go"), ask(), *committed("a", run=2)]
AGAIN = [*ANNOUNCED, begin("a", attempt=1), result("a", 1, attempt=1), *committed("a", run=7)]


@pytest.mark.rule("R3.1")
@pytest.mark.parametrize(
    ("given", "became"),
    [
        (ANNOUNCED, "applied"),
        ([announce("b"), *ANNOUNCED[1:], begin("a", attempt=1)], "call_started"),
        ([*ANNOUNCED, begin("a", attempt=1), result("a", 1, attempt=1)], "target_over"),
        ([*ANNOUNCED, begin("a", attempt=1), cancel("a")], "target_over"),
        ([*ANNOUNCED, begin("a", attempt=1), finish()], "target_over"),
        ([*ANNOUNCED, interrupt()], "call_forgotten"),
        ([*ANNOUNCED, cancel("a")], "call_forgotten"),
        (AGAIN, "target_over"),
        ([*AGAIN, begin("a", attempt=1)], "target_over"),
        (ANNOUNCED[:-2], "target_over"),
    ],
    ids=[
        *("in time", "it runs", "it has a result", "it is cancelled", "the context has ended"),
        *("it is forgotten", "it was cancelled unstarted", "its id was announced again"),
        *("another call of its id runs", "nobody announced it"),
    ],
)
def test_a_start_that_names_its_call_starts_that_one_or_none(given, became):
    before = play(given)
    played = play(NAMED, onto=before)
    assert played.became == became
    if became != "applied":
        assert played.changes == ()
        assert played.messages == before.messages
        assert dict(played.state.calls.open) == dict(before.state.calls.open)


@pytest.mark.rule("R3.1")
def test_a_call_that_was_announced_again_starts_by_the_version_of_the_later_announcement():
    later = begin("a", opened_version=9)
    assert play(AGAIN, NAMED).became == "target_over"
    assert play(AGAIN, NAMED, later).became == "applied"


@pytest.mark.rule("R3.1")
def test_no_rule_looks_at_the_name_of_the_function():
    other = {"function_name": "other"}
    started = play(announce(("a", "f")), begin("a", function_name="g"), begin("a", function_name="h"))
    assert started.became == "call_started"
    assert started.texts == ["assistant calls g(a)", "tool a: IN_PROGRESS"]
    assert play(begin("a"), result("a", 1).model_copy(update=other)).texts[-1] == "tool a: 1"
    assert play(begin("a"), cancel("a").model_copy(update=other)).texts[-1] == "tool a: CANCELLED"


@pytest.mark.rule("R3.1")
def test_two_calls_of_one_function_with_equal_arguments_are_two_calls():
    played = play(begin("a", function_name="f"), begin("b", function_name="f"), result("b", 2))
    assert played.texts[1::2] == ["tool a: IN_PROGRESS", "tool b: 2"]


@pytest.mark.rule("R3.2")
@pytest.mark.parametrize("value", [0, False, "", [], {}, 0.0, "null"])
def test_everything_but_null_is_a_result(value):
    synchronous = play(begin("a"), result("a", value))
    assert json.loads(synchronous.messages[-1]["content"]) == value
    assert synchronous.asked == [2]
    background = play(begin("a", sync=False), result("a", value, final=False), result("a", value))
    assert [json.loads(said) for _, _, said in in_background(background)[1:]] == [value, value]
    assert background.asked == [2, 3]


@pytest.mark.rule("R3.2", "R3.5")
def test_null_is_no_result():
    assert play(begin("a"), result("a", None)).texts == [PAIR[0], "tool a: COMPLETED"]
    assert play(begin("a"), result("a", None)).asked == []
    background = play(begin("a", sync=False), result("a", None))
    assert in_background(background)[-1] == ("final", "a", "COMPLETED")
    assert background.asked == []


@pytest.mark.rule("R3.2", "R3.4")
def test_a_result_frame_without_the_field_is_no_frame():
    with pytest.raises(DecodeError):
        decode(b'{"type": "FunctionCallResultFrame", "function_name": "f", "tool_call_id": "a"}')


@pytest.mark.rule("R3.3")
@pytest.mark.parametrize("text", ['{"b":1,  "a":2}', '"already a string"', "{cut off", "", "  ", "K\u00f6ln"])
def test_arguments_that_come_as_text_stay_that_text(text):
    message = play(begin("a", arguments=text)).messages[0]
    assert message["tool_calls"][0]["function"] == {"name": "a", "arguments": text}


@pytest.mark.rule("R3.3")
@pytest.mark.parametrize("value", [{"city": "K\u00f6ln", "n": [1, 2.5, None]}, {}, [], None, 3, False])
def test_all_other_arguments_are_written_as_json(value):
    arguments = play(begin("a", arguments=value)).messages[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == value
    assert "\\u" not in arguments


@pytest.mark.rule("R3.3")
def test_the_arguments_of_the_start_count_whatever_a_result_repeats():
    repeated = result("a", 1).model_copy(update={"arguments": {"x": 2}})
    played = play(begin("a", arguments={"x": 1}), repeated)
    assert json.loads(played.messages[0]["tool_calls"][0]["function"]["arguments"]) == {"x": 1}


@pytest.mark.rule("R3.4")
def test_a_start_that_does_not_say_otherwise_is_asynchronous():
    bare = b'{"type":"FunctionCallInProgressFrame","function_name":"a","tool_call_id":"a","arguments":{}}'
    played = play(decode(bare))
    assert in_background(played) == [("started", "a", None)]


IGNORED = {
    "a result of a call nobody made": ([], result("a", 1), "call_unknown"),
    "an intermediate one of a call nobody made": ([], result("a", 1, final=False), "call_unknown"),
    "a cancel of a call nobody made": ([], cancel("a"), "call_unknown"),
    "a result with a word of a call nobody made": ([], result("a", 1, run_llm=True), "call_unknown"),
    "a result before the start": ([announce("a")], result("a", 1), "call_unknown"),
    "a result before the dispatched start": ([ask(), committed("a", run=1)], result("a", 1), "call_unknown"),
    "a second result, while the id is announced again": (
        [begin("a"), result("a", 1), announce("a")],
        result("a", 2),
        "call_settled",
    ),
    "a second result": ([begin("a"), result("a", 1)], result("a", 2), "call_settled"),
    "a second result with a word": ([begin("a"), result("a", 1)], result("a", 2, says=True), "call_settled"),
    "a cancel after the result": ([begin("a"), result("a", 1)], cancel("a"), "call_settled"),
    "a deadline after the result": ([begin("a"), result("a", 1)], cancel("a", run_llm=True), "call_settled"),
    "a result after the cancel": ([begin("a"), cancel("a")], result("a", 1), "call_settled"),
    "a second cancel": ([begin("a"), cancel("a")], cancel("a"), "call_settled"),
    "news after the final result": (
        [begin("a", sync=False), result("a", 1)],
        result("a", 2, final=False),
        "call_settled",
    ),
    "a result after the end of the context": ([begin("a"), finish()], result("a", 1), "call_settled"),
    "a result of a forgotten call": ([announce("a"), interrupt()], result("a", 1), "call_forgotten"),
    "a cancel of a forgotten call": ([announce("a"), interrupt()], cancel("a"), "call_forgotten"),
    "news of a synchronous call": (
        [begin("a")],
        result("a", 1, final=False),
        "intermediate_of_synchronous",
    ),
    "news of a synchronous call with a word": (
        [begin("a")],
        result("a", 1, final=False, says=True),
        "intermediate_of_synchronous",
    ),
    "absent news": ([begin("a", sync=False)], result("a", None, final=False), "nothing_said"),
    "absent news with a word": (
        [begin("a", sync=False)],
        result("a", None, final=False, says=True, run_llm=True),
        "nothing_said",
    ),
    "a cancel that means an earlier call of the id": (
        [begin("a"), result("a", None), begin("a")],
        cancel("a", opened_version=1),
        "target_over",
    ),
    "a cancel that means a call that is over": (
        [begin("a"), result("a", None)],
        cancel("a", opened_version=1),
        "target_over",
    ),
}


@pytest.mark.rule("R3.4")
@pytest.mark.parametrize(("given", "last", "reason"), IGNORED.values(), ids=IGNORED.keys())
def test_what_no_open_call_can_take_is_ignored(given, last, reason):
    before = play(given)
    played = play(last, onto=before)
    assert played.became == reason
    assert played.changes == ()
    assert played.messages == before.messages
    assert played.asked == before.asked
    assert played.effects[-1] == ()


@pytest.mark.rule("R3.4")
@pytest.mark.parametrize("late", [result("a", 1), result("a", 1, final=False), cancel("a"), begin("a")])
def test_nothing_comes_of_a_call_that_was_cancelled_before_it_started(late):
    played = play(announce("a"), cancel("a"), late)
    assert played.outcomes == ["applied", "applied", "ignored"]
    assert played.texts == []


@pytest.mark.rule("R3.4")
@pytest.mark.parametrize("run_llm", [False, True])
def test_a_cancel_of_a_call_that_has_not_started_settles_it_and_writes_nothing(run_llm):
    played = play(announce("a"), cancel("a", run_llm=run_llm))
    assert played.became == "applied"
    assert [change.end for change in played.changes] == ["cancelled"]
    assert played.texts == []
    assert played.asked == []
    assert dict(played.state.calls.open) == {}


@pytest.mark.rule("R3.4")
def test_a_cancel_that_names_the_version_of_its_call_settles_it():
    assert play(append("hi"), begin("a"), cancel("a", opened_version=2)).texts[-1] == "tool a: CANCELLED"


@pytest.mark.rule("R3.5")
@pytest.mark.parametrize(
    ("settled", "says"),
    [
        (result("a", {"x": [1, "\u00e9"]}), '{"x":[1,"\u00e9"]}'),
        (result("a", "COMPLETED"), '"COMPLETED"'),
        (result("a", "CANCELLED"), '"CANCELLED"'),
        (result("a", None), "COMPLETED"),
        (cancel("a"), "CANCELLED"),
        (cancel("a", run_llm=True), "CANCELLED"),
    ],
)
def test_a_synchronous_call_is_settled_where_it_was_made(settled, says):
    played = play(begin("a"), append("meanwhile"), settled)
    assert played.texts == ["assistant calls a(a)", f"tool a: {says}", "user: meanwhile"]


@pytest.mark.rule("R3.5")
def test_an_asynchronous_call_keeps_its_start_and_speaks_at_the_end():
    played = play(
        begin("a", sync=False),
        append("meanwhile"),
        result("a", 1, final=False),
        append("and then"),
        result("a", 2),
    )
    assert in_background(played) == [("started", "a", None), ("intermediate", "a", "1"), ("final", "a", "2")]
    roles = [message["role"] for message in played.messages]
    assert roles == ["assistant", "tool", "user", "developer", "user", "developer"]


@pytest.mark.rule("R3.5")
def test_an_asynchronous_result_is_a_developer_message_even_if_nothing_was_said_in_between():
    played = play(begin("a", sync=False), result("a", 1))
    assert in_background(played) == [("started", "a", None), ("final", "a", "1")]


@pytest.mark.rule("R3.5")
def test_a_cancelled_asynchronous_call_ends_with_a_final_message():
    played = play(begin("a", sync=False), result("a", 1, final=False), cancel("a"))
    assert in_background(played)[-1] == ("final", "a", "CANCELLED")
    assert played.asked == [2]


@pytest.mark.rule("R3.5")
@pytest.mark.parametrize("replaced", [update("anew", "and more"), context("anew", "and more")])
def test_an_asynchronous_result_comes_also_after_the_history_was_replaced(replaced):
    played = play(begin("a", sync=False), replaced, result("a", 1, final=False), result("a", 2))
    assert played.texts[:2] == ["user: anew", "user: and more"]
    assert in_background(played) == [("intermediate", "a", "1"), ("final", "a", "2")]
    assert played.asked == [3, 4]


@pytest.mark.rule("R3.5")
@pytest.mark.parametrize("replaced", [update("anew", "and more"), context("anew", "and more")])
@pytest.mark.parametrize(
    ("settled", "kept"),
    [
        (result("a", 1), 1),
        (result("a", 1, run_llm=True), 1),
        (result("a", 1, says=True), 1),
        (cancel("a"), None),
        (cancel("a", run_llm=True), None),
    ],
)
def test_a_synchronous_call_whose_place_was_replaced_settles_without_a_trace(replaced, settled, kept):
    played = play(begin("a"), replaced, settled)
    assert played.became == "place_replaced"
    assert [change.result for change in played.changes if isinstance(change, CallSettled)] == [kept]
    assert played.texts == ["user: anew", "user: and more"]
    assert played.asked == []
    assert play(result("a", 2), onto=played).became == "call_settled"


@pytest.mark.rule("R3.5")
def test_a_call_that_started_in_the_new_history_has_its_place_there():
    assert play(begin("a"), update(), begin("b"), result("b", 1)).texts == [
        "assistant calls b(b)",
        "tool b: 1",
    ]


@pytest.mark.rule("RA5.valid")
@pytest.mark.parametrize(
    "frames",
    [
        [begin("a"), begin("b", sync=False), result("b", 1, final=False), cancel("a"), result("b", 2)],
        [start(), tokens("so"), begin("a"), tokens(" what"), begin("b"), result("b", 1), end(), cancel("a")],
        [announce("a", "b"), begin("b"), interrupt(), begin("a"), result("b", 1), begin("a")],
        [
            ask(),
            start(1),
            tokens("x", run=1),
            announce("a", run=1),
            start(1, 2),
            end(1, 2),
            begin("a", attempt=1),
        ],
        [start(), tokens("one"), begin("a"), interrupt(heard_text=""), result("a", 1), begin("a"), finish()],
        [ask(), committed("a", "b", run=1), begin("b", attempt=1), finish(), begin("a"), begin("b")],
        [begin("a"), begin("a"), result("a", 1), begin("a"), cancel("a", run_llm=True), cancel("a")],
        [begin("a", sync=False), update(), result("a", 1), begin("a"), update(), result("a", 1)],
    ],
)
def test_every_call_is_answered_right_behind_it_after_every_frame(frames):
    played = play()
    for frame in frames:
        played = play(frame, onto=played)
        messages = [message for message in played.messages if message["role"] != "developer"]
        for place, message in enumerate(messages):
            made = message.get("tool_calls", [])
            behind = messages[place + 1 : place + 1 + len(made)]
            assert [answered.get("tool_call_id") for answered in behind] == [call["id"] for call in made]
            if message["role"] == "tool":
                assert "tool_calls" in messages[place - 1]
            if message["role"] == "assistant":
                assert made or message["content"].strip()


@pytest.mark.rule("R3.4")
def test_the_newest_32_calls_that_are_over_are_known_as_settled():
    over = [str(number) for number in range(33)]
    played = play(*([begin(call), result(call, 1)] for call in over))
    assert play(result("0", 2), onto=played).became == "call_unknown"
    assert play(result("1", 2), onto=played).became == "call_settled"
