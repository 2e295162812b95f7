"""Functions that a client brings: it answers their calls, no worker receives them, and they wait (RA5.client)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    cancel,
    committed,
    effects_of,
    end,
    finish,
    interrupt,
    limits,
    mirror,
    play,
    result,
    run_id,
    start,
    tokens,
    tools,
    update,
)

from frameledger import stored
from frameledger.evolve.changes import CallDispatched, CallSettled, CallStarted, CallWaiting
from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame, LLMSetToolsFrame
from frameledger.tools import client_functions, of_client

pytestmark = pytest.mark.rule("RA5.client")

WAITS = ["assistant calls a(a)", "tool a: IN_PROGRESS"]


def brought(*names, served=()):
    """Tools of a client, and those of services."""
    schemas = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    own = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in served]
    return LLMSetToolsFrame(tools=[*own, *map(of_client, schemas)])


def stages(played):
    return {call_id: call.stage for call_id, call in played.state.calls.open.items()}


def test_a_call_of_it_waits_for_the_client_as_soon_as_it_is_committed_and_no_worker_is_asked():
    response = [start(2), tokens("Look. ", run=2), announce("a", run=2), end(2)]
    played = play(brought("a"), ask(), response)
    assert played.texts == ["assistant: Look.", *WAITS]
    assert effects_of(played) == []
    assert [
        type(one) for one in played.changes if isinstance(one, CallDispatched | CallStarted | CallWaiting)
    ] == [
        CallDispatched,
        CallStarted,
        CallWaiting,
    ]
    [waiting] = [one for one in played.changes if isinstance(one, CallWaiting)]
    assert (waiting.for_, waiting.deadline) == ("the client", None)
    [call] = played.state.calls.open.values()
    assert (call.running.synchronous, call.running.waiting, call.arguments) == (True, True, None)


def test_before_its_run_ends_nothing_of_it_is_there():
    announced = play(brought("a"), ask(), start(2), announce("a", run=2))
    assert announced.texts == []
    assert stages(announced) == {"a": "announced"}
    failed = play(end(2, finish_reason="error"), onto=announced)
    assert (failed.texts, stages(failed), effects_of(failed)) == ([], {}, [])
    again = play(start(2, 2), end(2, 2), onto=announced)
    assert (again.texts, stages(again)) == ([], {})


@pytest.mark.parametrize("arguments", ['{"city": "Brindle"}', {"city": "Brindle"}, [], None, "no JSON"])
def test_its_arguments_are_written_as_the_model_said_them(arguments):
    call = FunctionCallFromLLM(function_name="a", tool_call_id="a", arguments=arguments)
    said = FunctionCallsStartedFrame(
        function_calls=[call], run_id=play(brought("a"), ask()).state.runs.open.run_id
    )
    as_client = play(brought("a"), ask(), start(2), said, end(2))
    as_worker = play(tools("a"), ask(), start(2), said, end(2), begin("a", attempt=1, arguments=arguments))
    assert as_client.messages == as_worker.messages


def test_its_result_is_the_clients_and_asks_for_the_next_run():
    waits = play(brought("a"), ask(), committed("a", run=2))
    played = play(result("a", {"deck": 1}, opened_version=4), onto=waits)
    assert played.texts == [WAITS[0], 'tool a: {"deck":1}']
    assert effects_of(played) == [f"run {len(played.steps)}"]
    again = play(result("a", "other", opened_version=4), onto=played)
    assert (again.became, again.texts) == ("target_over", played.texts)


def test_no_worker_may_start_it():
    waits = play(brought("a"), ask(), committed("a", run=2))
    started = play(begin("a", attempt=1, worker="w"), onto=waits)
    assert (started.became, started.texts) == ("call_started", waits.texts)


def test_a_cancel_settles_it_and_tells_no_worker():
    played = play(brought("a"), ask(), committed("a", run=2), cancel("a", run_llm=True))
    assert played.texts == [WAITS[0], "tool a: CANCELLED"]
    assert effects_of(played) == [f"run {len(played.steps)}"]


def test_with_calls_of_workers_in_one_answer_one_run_follows_both_results():
    both = play(brought("a", served=("b",)), ask(), committed("a", "b", run=2))
    assert effects_of(both) == ["call b"]
    assert both.texts == WAITS
    of_worker = play(begin("b", attempt=1), result("b", 2, attempt=1), onto=both)
    assert effects_of(of_worker) == []
    played = play(result("a", 1), onto=of_worker)
    assert effects_of(played) == [f"run {len(played.steps)}"]
    assert played.texts == ["assistant calls a(a)", "tool a: 1", "assistant calls b(b)", "tool b: 2"]


def test_a_run_that_is_requested_meanwhile_does_not_wait_for_the_client():
    played = play(brought("a"), ask(), committed("a", run=2), append("And?", run_llm=True))
    assert effects_of(played) == [f"run {len(played.steps)}"]


@pytest.mark.rule("RA5.sequential")
def test_in_a_queue_it_lets_the_next_one_start_in_the_same_step():
    one_by_one = committed("a", "b", "c", run=2, run_in_parallel=False)
    played = play(brought("a", "b", served=("c",)), ask(), one_by_one)
    assert stages(played) == {"a": "running", "b": "running", "c": "dispatched"}
    assert effects_of(played) == ["call c"]
    behind = play(brought("a", served=("c",)), ask(), committed("c", "a", run=2, run_in_parallel=False))
    assert stages(behind) == {"c": "dispatched", "a": "queued"}
    done = play(begin("c", attempt=1), result("c", 1, attempt=1), onto=behind)
    assert done.texts == ["assistant calls c(c)", "tool c: 1", *WAITS]


@pytest.mark.rule("R5.7")
def test_an_interruption_leaves_it_open_and_what_the_client_did_is_still_told():
    interrupted = play(brought("a"), ask(), committed("a", run=2), interrupt())
    assert effects_of(interrupted) == []
    assert (stages(interrupted), interrupted.texts) == ({"a": "running"}, WAITS)
    played = play(result("a", "paid", opened_version=4), onto=interrupted)
    assert played.texts == [WAITS[0], 'tool a: "paid"']
    assert effects_of(played) == [f"run {len(played.steps)}"]


def test_one_that_was_announced_when_the_user_cut_in_is_forgotten():
    played = play(brought("a"), ask(), start(2), announce("a", run=2), interrupt())
    assert (stages(played), played.texts, effects_of(played)) == ({}, [], ["stop run 2"])


@pytest.mark.rule("R1.6")
def test_the_end_of_the_conversation_settles_it():
    played = play(brought("a"), ask(), committed("a", run=2), finish())
    assert played.texts == [WAITS[0], "tool a: CANCELLED"]
    assert effects_of(played) == []


def test_who_answers_is_decided_by_what_the_model_was_offered():
    removed = play(brought("a"), ask(), tools(), committed("a", run=2))
    assert (removed.texts, effects_of(removed)) == (WAITS, [])
    added = play(tools("a"), ask(), brought("a"), committed("a", run=2))
    assert (added.texts, effects_of(added)) == ([], ["call a"])


def test_a_name_that_a_service_has_too_is_the_services():
    both = brought("a", "b", served=("a",))
    assert client_functions(both.tools) == ("b",)
    played = play(both, ask(), committed("a", run=2))
    assert effects_of(played) == ["call a"]


@pytest.mark.parametrize("mark", ["service", None, True, {}, ["client"], "Client"])
def test_only_the_word_client_makes_it_the_clients(mark):
    schema = {"type": "function", "function": {"name": "a"}, "served_by": mark}
    played = play(LLMSetToolsFrame(tools=[schema]), ask(), committed("a", run=2))
    assert effects_of(played) == ["call a"]


def test_a_built_in_call_of_its_name_is_the_services():
    call = FunctionCallFromLLM(function_name="a", tool_call_id="a", arguments={}, builtin=True)
    said = FunctionCallsStartedFrame(
        function_calls=[call], run_id=play(brought("a"), ask()).state.runs.open.run_id
    )
    assert effects_of(play(brought("a"), ask(), start(2), said, end(2))) == ["call a"]


@pytest.mark.rule("R3.5")
def test_where_the_history_was_replaced_its_result_settles_it_and_is_not_written():
    replaced = play(brought("a"), ask(), committed("a", run=2), update("Anew."))
    played = play(result("a", 1), onto=replaced)
    assert (played.became, played.texts, stages(played)) == ("place_replaced", ["user: Anew."], {})


@pytest.mark.rule("RA5.mirror")
def test_in_a_mirror_it_waits_and_writes_nothing():
    played = play(brought("a"), mirror("pipecat"), ask(), committed("a", run=3))
    assert (stages(played), played.texts, effects_of(played)) == ({"a": "running"}, [], [])


def long(*names, **fields):
    """An announcement by the run of the second frame, of calls with long arguments."""
    calls = [
        FunctionCallFromLLM(function_name=name, tool_call_id=name, arguments={"text": "x" * 4000})
        for name in names
    ]
    return FunctionCallsStartedFrame(function_calls=calls, run_id=run_id(2), **fields)


@pytest.mark.rule("R8.4")
def test_one_that_has_no_room_is_forgotten():
    played = play(brought("a"), ask(), limits(context_bytes=9000), start(2), long("a"), end(2))
    [settled] = [one for one in played.changes if isinstance(one, CallSettled)]
    assert (settled.end, played.texts, stages(played)) == ("forgotten", [], {})


@pytest.mark.rule("R8.4")
def test_one_that_has_room_takes_what_its_announcement_reserved():
    played = play(brought("a"), limits(context_messages=3), ask(), committed("a", run=3))
    assert played.texts == WAITS


@pytest.mark.rule("R8.4", "RA5.sequential", "R3.7")
def test_in_a_queue_one_that_has_no_room_lets_the_next_one_start_and_no_result_waits_for_it():
    queue = [start(2), announce("c", run=2, group_id="g", run_in_parallel=False)]
    queue += [long("a", "b", group_id="g", run_in_parallel=False)]
    offered = play(brought("a", served=("b", "c")), ask(), limits(context_bytes=30_000), queue, end(2))
    settled = play(begin("c", attempt=1), result("c", 1, attempt=1), onto=offered)
    assert (effects_of(settled), stages(settled)) == (["call b"], {"b": "dispatched"})
    alone = play(brought("a", served=("c",)), ask(), limits(context_bytes=30_000))
    queue[-1] = long("a", group_id="g", run_in_parallel=False)
    done = play(queue, end(2), begin("c", attempt=1), result("c", 1, attempt=1), onto=alone)
    assert (effects_of(done), stages(done)) == ([f"run {len(done.steps)}"], {})


@pytest.mark.rule("R8.1", "RA5.mirror")
def test_in_a_mirror_it_waits_whatever_room_there_is():
    played = play(
        brought("a"), ask(), mirror("pipecat"), limits(context_bytes=1), start(2), long("a"), end(2)
    )
    assert stages(played) == {"a": "running"}


def test_a_call_that_names_no_run_is_none_of_the_clients():
    announced = play(brought("a"), ask(), start(2), announce("a"))
    assert not announced.state.calls.open["a"].by_client


def test_a_state_keeps_what_it_needs_of_it():
    announced = play(brought("a"), ask(), start(2), announce("a", run=2))
    assert stored.load(stored.dump(announced.state)) == announced.state
    waits = play(end(2), onto=announced)
    assert stored.load(stored.dump(waits.state)) == waits.state
