"""The effects of frames (RA5.react)."""

from uuid import UUID

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    break_off,
    cancel,
    committed,
    context,
    effects_of,
    end,
    fail,
    finish,
    hear,
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

from frameledger.effects import to_wire
from frameledger.fold import Conversation, Folding
from frameledger.react import react

RUNS = [ask(), committed("a", run=1), begin("a", attempt=1)]


@pytest.mark.rule("RA5.react", "RA5.request")
def test_a_run_that_opens_is_to_be_run_at_the_version_that_opened_it():
    (effect,) = play(append("hi"), ask()).effects[-1]
    wire = to_wire(effect)
    assert str(UUID(wire["id"])) == wire.pop("id")
    assert wire == {
        "effect": "run_inference",
        "context_id": "conversation",
        "version": 2,
        "run_id": run_id(2),
    }


@pytest.mark.rule("RA5.react")
def test_all_effects_of_a_frame_name_it_as_their_cause():
    folding = Folding(Conversation.new("conversation"))
    frames = [ask(), start(1), announce("a", "b", run=1), end(1), begin("a", attempt=1), ask(), interrupt()]
    named = []
    for number, frame in enumerate(frames):
        before = folding.state
        folding.step(frame)
        for effect in react(before, frame, folding.state, UUID(int=number)):
            named.append((to_wire(effect)["effect"], UUID(to_wire(effect)["causation_id"]).int))
    assert named == [
        ("run_inference", 0),
        ("call_function", 3),
        ("call_function", 3),
        ("cancel", 6),
        ("cancel", 6),
    ]


@pytest.mark.rule("RA5.react")
def test_the_cancel_of_a_run_names_the_frame_that_closed_it_as_its_cause():
    before = play(ask()).state
    after = play(ask(), interrupt()).state
    [stops] = react(before, interrupt(), after, UUID(int=7))
    assert (stops.run_id, stops.causation_id) == (run_id(1), UUID(int=7))


@pytest.mark.rule("RA5.react")
def test_a_call_is_handed_out_by_reference():
    played = play(ask(), start(1), announce(("a", "f"), ("b", "g"), run=1, group_id="x"), end(1))
    wires = [to_wire(effect) for effect in played.effects[-1]]
    assert [UUID(wire.pop("id")).version for wire in wires] == [5, 5]
    common = {
        "effect": "call_function",
        "context_id": "conversation",
        "version": 4,
        "requested_version": 3,
        "group_id": "x",
    }
    assert wires == [
        common | {"ordinal": 0, "tool_call_id": "a", "function_name": "f"},
        common | {"ordinal": 1, "tool_call_id": "b", "function_name": "g"},
    ]


@pytest.mark.rule("RA5.react")
def test_the_ordinal_is_the_place_in_the_announcement_also_behind_a_skipped_id():
    played = play(begin("a"), ask(), start(2), announce("a", "b", run=2), end(2))
    assert [(effect.tool_call_id, effect.ordinal) for effect in played.effects[-1]] == [("b", 1)]


@pytest.mark.rule("RA5.react")
def test_a_cancel_names_exactly_one_thing_to_stop():
    played = play(begin("b"), ask(), interrupt())
    wires = [to_wire(effect) for effect in played.effects[-1]]
    assert sorted(wire.get("run_id") or wire["tool_call_id"] for wire in wires) == sorted([run_id(2), "b"])
    assert {tuple(sorted(set(wire) - {"run_id", "tool_call_id"})) for wire in wires} == {
        ("context_id", "effect", "id", "version")
    }
    assert [len(wire) for wire in wires] == [5, 5]


@pytest.mark.rule("RA5.react")
def test_a_remembered_run_is_handed_out_when_it_opens_and_not_before():
    played = play(ask(), start(1), ask(), append("x", run_llm=True), end(1))
    assert [effects_of(played, n) for n in range(1, 6)] == [["run 1"], [], [], [], ["run 3"]]


@pytest.mark.rule("RA5.react", "RA5.commit")
def test_a_remembered_run_is_handed_out_when_the_last_committed_call_starts():
    played = play(ask(), start(1), announce("a", run=1), ask(), end(1), begin("a", attempt=1))
    assert [effects_of(played, n) for n in (5, 6)] == [["call a"], ["run 4"]]


@pytest.mark.rule("RA5.react")
@pytest.mark.parametrize(
    ("closing", "effects"),
    [
        (end(1), []),
        (end(1, finish_reason="error"), []),
        (fail(1), ["stop run 1"]),
        (fail(1, 5), ["stop run 1"]),
        (interrupt(), ["stop run 1"]),
        (finish(), ["stop run 1"]),
        (break_off(), ["stop run 1"]),
        (start(1, 2), []),
    ],
)
def test_a_run_is_stopped_unless_it_ended_by_itself(closing, effects):
    assert effects_of(play(ask(), start(1), tokens("so", run=1), closing)) == effects


@pytest.mark.rule("RA5.react", "R2.1")
def test_a_second_start_stops_the_run_that_the_first_response_adopted():
    assert effects_of(play(ask(), start(), tokens("so"), start())) == ["stop run 1"]


@pytest.mark.rule("RA5.react")
@pytest.mark.parametrize("closing", [interrupt(), fail(1), finish()])
def test_calls_that_were_only_announced_have_nobody_to_stop(closing):
    assert effects_of(play(ask(), start(1), announce("a", run=1), closing)) == ["stop run 1"]
    assert effects_of(play(announce("a"), interrupt())) == []


@pytest.mark.rule("RA5.react")
@pytest.mark.parametrize("closing", [interrupt(), cancel("a"), cancel("a", run_llm=True), finish()])
def test_a_call_that_was_dispatched_is_stopped_before_it_starts(closing):
    assert effects_of(play(ask(), committed("a", run=1), closing)) == ["stop a"]


@pytest.mark.rule("RA5.react", "RA5.sequential")
def test_a_queued_call_has_nobody_to_stop():
    queued = [ask(), committed("a", "b", run=1, run_in_parallel=False)]
    assert effects_of(play(queued, cancel("b"))) == []
    assert effects_of(play(queued, interrupt())) == ["stop a"]


@pytest.mark.rule("RA5.react")
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("settled", [cancel("a"), cancel("a", opened_version=3), result("a", None)])
def test_a_running_call_that_others_settle_is_stopped(sync, settled):
    given = [ask(), committed("a", run=1), begin("a", attempt=1, sync=sync)]
    assert effects_of(play(given, settled)) == ["stop a"]


@pytest.mark.rule("RA5.react")
@pytest.mark.parametrize("settled", [cancel("a"), result("a", None)])
def test_a_call_that_waits_for_a_person_is_stopped_too(settled):
    waits = begin("a", attempt=1, waiting={"for": "a person"})
    assert effects_of(play(RUNS, waits, settled)) == ["stop a"]


@pytest.mark.rule("RA5.react", "R5.7")
def test_a_call_that_waits_for_a_person_is_stopped_by_an_interruption():
    waits = begin("a", attempt=1, waiting={"for": "a person"})
    assert effects_of(play(RUNS, waits, interrupt())) == ["stop a"]


@pytest.mark.rule("RA5.react")
def test_a_worker_that_reports_is_not_told_to_stop():
    assert effects_of(play(RUNS, result("a", None, attempt=1))) == []
    given = [ask(), committed("a", run=1), begin("a", attempt=1, sync=False)]
    assert effects_of(play(given, result("a", 1, attempt=1, final=False, says=False))) == []


@pytest.mark.rule("RA5.react")
def test_a_result_of_another_attempt_stops_the_worker_that_runs_the_call():
    assert effects_of(play(RUNS, result("a", None, attempt=2))) == ["stop a"]


@pytest.mark.rule("RA5.react", "R1.6")
def test_the_end_of_the_context_stops_everything():
    given = [begin("a"), begin("b", sync=False), ask(), committed("c", run=3), announce("d")]
    assert effects_of(play(given, finish())) == ["stop a", "stop b", "stop c"]
    assert effects_of(play(begin("a"), ask(), finish())) == ["stop run 2", "stop a"]


@pytest.mark.rule("RA5.react", "R5.7")
def test_an_interruption_stops_the_run_and_what_it_may_cancel():
    played = play(begin("a"), begin("b", sync=False), ask(), interrupt())
    assert effects_of(played) == ["stop run 3", "stop a"]


@pytest.mark.rule("RA5.react")
def test_a_frame_may_stop_one_run_and_open_the_next():
    assert effects_of(play(ask(), ask(), fail(1))) == ["stop run 1", "run 2"]


@pytest.mark.rule("RA5.react")
@pytest.mark.parametrize(
    "frame", [append("x"), update("x"), context("x"), settings(x=1), speak(), announce("b")]
)
def test_what_asks_for_nothing_has_no_effects(frame):
    assert effects_of(play(ask(), start(1), begin("a"), frame)) == []


@pytest.mark.rule("RA5.react")
def test_a_call_whose_place_was_replaced_is_stopped_when_others_settle_it():
    assert effects_of(play(RUNS, update(), cancel("a"))) == ["stop a"]


LONG = [
    [append("hi", run_llm=True), committed("a", "b", run=1, run_in_parallel=False), begin("a", attempt=1)],
    [result("a", 1, attempt=1), begin("b", attempt=1), ask(), interrupt(), cancel("b", attempt=1)],
    [speak(), hear("x"), stop(), answer("y", run=13), begin("a"), ask(), finish()],
]


@pytest.mark.rule("RA5.react")
def test_no_two_effects_of_a_conversation_share_an_id():
    ids = [effect.id for effects in play(LONG).effects for effect in effects]
    assert len(ids) == len(set(ids)) > 6


@pytest.mark.rule("RA5.react")
def test_the_same_conversation_has_the_same_effects_and_another_one_has_others():
    assert play(LONG).effects == play(LONG).effects
    ids = []
    for name in ("one", "two"):
        folding = Folding(Conversation.new(name))
        before = folding.state
        folding.step(ask())
        ids += [effect.id for effect in react(before, ask(), folding.state)]
    assert len(set(ids)) == 2
