"""Calls whose workers are killed, frozen or disconnected; the executions are counted by the tools themselves."""

import json
import signal
import time
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, scaled
from tests.support import databases
from tests.support.answerers import Plan as InferencePlan
from tests.support.answerers import answerer, ask, frame, rows, spoken
from tests.support.call_accounts import (
    RESULT,
    ask_for,
    check,
    interrupt,
    log_of,
    status,
    until,
    until_at_rest,
)
from tests.support.causation import without_origin
from tests.support.killable import AT_ONCE, SINGLE_STATEMENT, projector
from tests.support.killable import Plan as ProjectorPlan
from tests.support.killable_tools import DOOMED, LASTING, Effects, Plan, tools
from tests.support.pipeline import made
from tests.support.tcp_proxy import proxy
from tests.support.tiers import first
from tests.support.timekeeper_process import timekeeper

from frameledger_services.embedded import postgres as embedded_postgres
from frameledger_services.embedded.ports import choose
from frameledger_services.store import migration

UNSAFE = {
    "claim": ("before claim", "done", {1}),
    "claimed": ("after claim", "done", {1}),
    "uncommitted": ("before commit", "done", {1}),
    "begun": ("claimed", "done", {1}),
    "unsent": ("send FunctionCallInProgressFrame", "done", {1}),
    "sent": ("sent FunctionCallInProgressFrame", "ambiguous", {0, 1}),
    "acknowledged": ("in progress", "ambiguous", {0, 1}),
    "folded": ("folded", "ambiguous", {0}),
    "read": ("before the handler", "ambiguous", {0}),
    "entered": ("in the handler", "ambiguous", {0}),
    "effect": ("effect", "ambiguous", {1}),
    "answered": ("answered", "ambiguous", {1}),
    "result": ("send FunctionCallResultFrame", "ambiguous", {1}),
    "resulted": ("sent FunctionCallResultFrame", "done", {1}),
    "over": ("result", "done", {1}),
    "settling": ("before settling", "done", {1}),
    "settled": ("after settling", "done", {1}),
}
"""By a short name: the step at which the worker is killed, the final status in `tool_calls`, and the possible numbers
of effects.

A start may be folded, and the handler run, before the worker hears that Kafka has acknowledged it.
"""

SAFE = {
    "begun": ("claimed", 1),
    "unsent": ("send FunctionCallInProgressFrame", 2),
    "read": ("before the handler", 1),
    "entered": ("in the handler", 1),
    "effect": ("effect", 2),
    "answered": ("answered", 2),
    "result": ("send FunctionCallResultFrame", 2),
    "resulted": ("sent FunctionCallResultFrame", 1),
}
"""The same for functions that are safe to retry, which do not wait for the log, with the maximum number of effects."""

HALVES = ("each kind", "the rest")


def halves(steps):
    """Steps of each kind, before and behind each thing that is left, and for `make test-long` the rest."""
    return first(1, [list(steps)[1::2], list(steps)[::2]])


BEGUN = ("folded", "read", "entered", "effect", "answered", "result")
NOT_BEGUN = ("claim", "claimed", "begun", "unsent")
"""Steps at which a dead worker leaves an unsafe call running, and steps at which it does not, for the interruption that
comes then."""


@contextmanager
def a_pipeline(kafka, database_server, migrated_template):
    with ExitStack() as kept:

        def another_database():
            return kept.enter_context(databases.made(database_server, template=migrated_template))[1]

        yield made(kafka.bootstrap_servers, another_database(), another_database)


@pytest.fixture(scope="module", name="pipeline")
def one_pipeline_for_many(kafka, database_server, migrated_template):
    """For tests that stop neither servers nor the projector. At the end its tables must equal the fold of its log."""
    with a_pipeline(kafka, database_server, migrated_template) as pipeline:
        databases.without_takeover_delay(pipeline.address)
        with projector(pipeline.settings) as running:
            yield pipeline
            pipeline.check(running)
        with psycopg.connect(pipeline.address) as connection:
            assert without_origin(connection) == []


@pytest.fixture(name="pipeline_without_projector")
def a_pipeline_of_its_own(kafka, database_server, migrated_template):
    with a_pipeline(kafka, database_server, migrated_template) as pipeline:
        yield pipeline


@pytest.fixture(name="effects_path")
def an_effects_path(tmp_path):
    return tmp_path / "effects.sqlite"


@pytest.fixture(name="effects")
def the_effects(effects_path):
    return Effects(effects_path)


def doomed(pipeline):
    return pipeline.settings.model_copy(update=DOOMED)


def lasting(pipeline):
    return pipeline.settings.model_copy(update=LASTING)


def kill_all(stack, pipeline, effects_path, points, *, safe):
    """Start a worker for each point, which serves one function, is called, and is killed there. Returns the calls by
    point."""
    word = "safe" if safe else "unsafe"
    processes, calls = {}, {}
    for name, point in points.items():
        function = f"{word}_{name}"
        processes[name] = stack.enter_context(
            tools(doomed(pipeline), {function: safe}, effects_path, f"{function}-{stack.name}", Plan(point))
        )
        [calls[name]] = ask_for(pipeline, f"{function}-{stack.name}", function)
    for name, process in processes.items():
        assert process.ended() == -signal.SIGKILL, name
    return calls


class Stack(ExitStack):
    """The processes of one test. Its name is part of theirs."""

    def __init__(self, name):
        super().__init__()
        self.name = name


@pytest.mark.parametrize("names", halves(UNSAFE), ids=HALVES)
def test_whatever_step_a_worker_is_killed_at_an_unsafe_call_has_its_effect_once_at_most(
    pipeline, effects, effects_path, names
):
    with Stack("killed") as stack:
        points = {name: UNSAFE[name][0] for name in names}
        calls = kill_all(stack, pipeline, effects_path, points, safe=False)
        served = {f"unsafe_{name}": False for name in names}
        stack.enter_context(tools(lasting(pipeline), served, effects_path, f"heir-{names[0]}"))
        until_at_rest(pipeline, calls.values())
    for name in names:
        _, how, counts = UNSAFE[name]
        assert status(pipeline, calls[name]) == how, (name, log_of(pipeline, calls[name]))
        assert len(effects.of(calls[name])) in counts, (name, log_of(pipeline, calls[name]))
    check(pipeline, effects, calls.values(), safe=False)


@pytest.mark.parametrize("names", halves(SAFE), ids=HALVES)
def test_whatever_step_a_worker_is_killed_at_a_safe_call_is_done(pipeline, effects, effects_path, names):
    with Stack("killed") as stack:
        points = {name: SAFE[name][0] for name in names}
        calls = kill_all(stack, pipeline, effects_path, points, safe=True)
        served = {f"safe_{name}": True for name in names}
        stack.enter_context(tools(lasting(pipeline), served, effects_path, f"safe-heir-{names[0]}"))
        until_at_rest(pipeline, calls.values())
    for name, call in calls.items():
        assert status(pipeline, call) == "done", name
        assert 1 <= len(effects.of(call)) <= SAFE[name][1], name
    check(pipeline, effects, calls.values(), safe=True)


@pytest.mark.long
@pytest.mark.parametrize("safe", [False, True], ids=["unsafe", "safe"])
def test_a_call_that_is_interrupted_when_its_worker_is_dead_is_not_run(pipeline, effects, effects_path, safe):
    begun = ("sent", *BEGUN) if not safe else ("effect", "answered")
    points = {name: UNSAFE[name][0] for name in (*NOT_BEGUN, *begun)}
    if safe:
        # These do not wait for the log.
        points |= {"sent": UNSAFE["sent"][0]}
    with Stack("interrupted") as stack:
        calls = kill_all(stack, pipeline, effects_path, points, safe=safe)
        before = {name: effects.of(call) for name, call in calls.items()}
        interrupt(pipeline, *(call.rpartition("-")[0] for call in calls.values()))
        word = "safe" if safe else "unsafe"
        heir = {f"{word}_{name}": safe for name in points}
        stack.enter_context(tools(lasting(pipeline), heir, effects_path, f"heir-of-interrupted-{word}"))
        until_at_rest(pipeline, calls.values())
    assert {name: effects.of(call) for name, call in calls.items()} == before
    found = {name: status(pipeline, call) for name, call in calls.items()}
    if safe:
        assert found["sent"] == "cancelled"
        assert set(found.values()) <= {"cancelled", "forgotten"}, found
    else:
        assert found == dict.fromkeys(NOT_BEGUN, "forgotten") | dict.fromkeys(begun, "ambiguous")
    check(pipeline, effects, calls.values(), safe=safe, interrupted=True)


@pytest.mark.long
def test_a_worker_that_wakes_up_when_its_call_is_another_ones_changes_nothing(
    pipeline, effects, effects_path
):
    """Frames that its producer had already may be sent when it resumes: they are on the log, and ignored."""
    points = {
        "unsent": ("send FunctionCallInProgressFrame", False, "done", 1),
        "read": ("before the handler", False, "ambiguous", 0),
        "effect": ("effect", False, "ambiguous", 1),
        "again": ("effect", True, "done", 2),
        "late": (f"send {RESULT}", False, "ambiguous", 1),
        "later": (f"send {RESULT}", True, "done", 2),
    }
    with ExitStack() as stack:
        calls, frozen = {}, []
        for name, (point, safe, *_) in points.items():
            names, plan = {f"frozen_{name}": safe}, Plan(point, signal.SIGSTOP)
            frozen.append(
                stack.enter_context(tools(doomed(pipeline), names, effects_path, f"frozen-{name}", plan))
            )
            [calls[name]] = ask_for(pipeline, f"frozen-{name}", f"frozen_{name}")
        for one in frozen:
            one.frozen()
        names = {f"frozen_{name}": safe for name, (_, safe, *_) in points.items()}
        heir = stack.enter_context(tools(lasting(pipeline), names, effects_path, "heir-of-the-frozen"))
        until_at_rest(pipeline, calls.values())
        for one in frozen:
            one.send(signal.SIGCONT)
        for name in ("late", "later"):
            pipeline.until(
                "SELECT EXISTS (SELECT FROM frames WHERE tool_call_id = %s AND type = %s AND outcome = 'ignored' "
                "AND payload ->> 'call_attempt' = '1')",
                calls[name],
                RESULT,
            )
        assert {one.stop() for one in [*frozen, heir]} == {0}
    for name, (_, safe, how, count) in points.items():
        call = calls[name]
        assert (status(pipeline, call), len(effects.of(call))) == (how, count), log_of(pipeline, call)
        check(pipeline, effects, [call], safe=safe)


@pytest.mark.long
def test_workers_come_and_go_while_calls_run_and_each_is_run_once(pipeline, effects, effects_path):
    """The group is rebalanced each time; a worker that is killed leaves its calls ambiguous."""
    calls: list[str] = []

    def ask_some():
        some = [ask_for(pipeline, f"group-{len(calls) + number}", "group")[0] for number in range(6)]
        calls.extend(some)
        effects.until(*some)

    with ExitStack() as stack:

        def join():
            one = stack.enter_context(
                tools(lasting(pipeline), {"group": False}, effects_path, "group", Plan(holds=True))
            )
            one.alive()
            ask_some()
            return one

        def by(process):
            until(pipeline, calls, "running")
            query = "SELECT tool_call_id, worker FROM tool_calls WHERE tool_call_id = ANY (%s)"
            return [call for call, worker in rows(pipeline, query, calls) if f"/{process.pid}/" in worker]

        first, second, third = join(), join(), join()
        # The group may have rebalanced meanwhile, and assigned the partition to another worker.
        until_dealt = time.monotonic() + ON_SERVERS
        while not (by_second := by(second)):
            assert time.monotonic() < until_dealt, "the second one is given no calls"
            ask_some()
        second.kill()
        databases.dies(pipeline.address, second.pid)
        first.release()
        third.release()
        ask_some()
        until_at_rest(pipeline, calls)
        assert [first.stop(), third.stop()] == [0, 0]
    for call in calls:
        assert status(pipeline, call) == ("ambiguous" if call in by_second else "done"), call
        assert len(effects.of(call)) == 1, call
    check(pipeline, effects, calls, safe=False)


def test_a_worker_that_is_cut_off_from_kafka_keeps_its_call_and_reports_when_it_is_back(
    pipeline, kafka, effects, effects_path
):
    with proxy(kafka.port) as to_kafka, ExitStack() as stack:
        cut_off = stack.enter_context(
            tools(
                lasting(pipeline).model_copy(
                    update={"kafka_bootstrap_servers": f"127.0.0.1:{to_kafka.port}"}
                ),
                {"kafka": False},
                effects_path,
                "kafka",
                Plan(holds=True, broker=(kafka.port, to_kafka.port)),
            )
        )
        [kept] = ask_for(pipeline, "kafka-kept", "kafka")
        effects.until(kept)
        until(pipeline, [kept], "running")
        to_kafka.cut()
        cut_off.release()
        # The group moves the partitions to another worker, which serves later calls and does not take this one over.
        other = stack.enter_context(tools(lasting(pipeline), {"kafka": False}, effects_path, "kafka"))
        [meanwhile] = ask_for(pipeline, "kafka-meanwhile", "kafka")
        until_at_rest(pipeline, [meanwhile])
        [[at]] = rows(pipeline, "SELECT now()")
        # Its heartbeats continue, while the other worker looks for dead workers' calls each second.
        pipeline.until(
            "SELECT max(heartbeat_at) > %s + interval '3 s' FROM workers WHERE pid = %s", at, cut_off.pid
        )
        assert status(pipeline, kept) == "running"
        to_kafka.mend()
        until_at_rest(pipeline, [kept])
        assert [cut_off.stop(), other.stop()] == [0, 0]
    [[worker]] = rows(pipeline, "SELECT worker FROM tool_calls WHERE tool_call_id = %s", kept)
    assert f"/{cut_off.pid}/" in worker
    for call in (kept, meanwhile):
        assert (status(pipeline, call), len(effects.of(call))) == ("done", 1)
    check(pipeline, effects, [kept, meanwhile], safe=False)


@pytest.mark.long
def test_a_worker_that_is_cut_off_from_postgres_loses_its_calls_and_comes_back_as_another_one(
    pipeline, effects, effects_path
):
    names = {"postgres_unsafe": False, "postgres_safe": True}
    port = int(conninfo_to_dict(pipeline.address)["port"])
    with proxy(port) as to_postgres, ExitStack() as stack:
        address = SecretStr(make_conninfo(pipeline.address, host="127.0.0.1", port=to_postgres.port))
        cut_off = stack.enter_context(
            tools(
                doomed(pipeline).model_copy(update={"database_url": address}),
                names,
                effects_path,
                "postgres",
                Plan(holds=True),
            )
        )
        cut_off.alive()
        [unsafe] = ask_for(pipeline, "postgres-unsafe", "postgres_unsafe")
        [safe] = ask_for(pipeline, "postgres-safe", "postgres_safe")
        effects.until(unsafe, safe)
        until(pipeline, [unsafe, safe], "running")
        to_postgres.cut()
        assert [cut_off.hear(), cut_off.hear()] == ["stopped", "stopped"]
        with tools(lasting(pipeline), names, effects_path, "heir-of-postgres") as heir:
            until_at_rest(pipeline, [unsafe, safe])
            assert heir.stop() == 0
        [back] = ask_for(pipeline, "postgres-back", "postgres_unsafe")
        cut_off.release()
        to_postgres.mend()
        until_at_rest(pipeline, [back])
        assert cut_off.stop() == 0
    calls = {unsafe: ("ambiguous", 1), safe: ("done", 2), back: ("done", 1)}
    assert {call: (status(pipeline, call), len(effects.of(call))) for call in calls} == calls
    check(pipeline, effects, [unsafe, back], safe=False)
    check(pipeline, effects, [safe], safe=True)


def test_an_interruption_stops_a_call_whose_worker_hears_no_cancellations(pipeline, effects, effects_path):
    plan = Plan(holds=True, deaf=True)
    with tools(lasting(pipeline), {"deaf": False}, effects_path, "deaf", plan) as deaf:
        [call] = ask_for(pipeline, "deaf", "deaf")
        effects.until(call)
        until(pipeline, [call], "running")
        deaf.alive()
        interrupt(pipeline, "deaf")
        assert deaf.hear() == "stopped"
        until_at_rest(pipeline, [call])
        assert deaf.stop() == 0
    assert (status(pipeline, call), len(effects.of(call))) == ("cancelled", 1)
    check(pipeline, effects, [call], safe=False, interrupted=True)


@pytest.mark.long
def test_the_timekeeper_settles_what_the_dead_left_and_nothing_of_it_is_run_when_somebody_comes(
    pipeline, effects, effects_path
):
    quick = {
        "timekeeper_every_secs": 0.1,
        "timekeeper_interrupted_call_secs": 0.1,
        "timekeeper_call_unserved_secs": 0.1,
        "timekeeper_call_grace_secs": 0.0,
    }
    left = {
        "claimed": ("claimed", False, "failed", 0),
        "overdue": ("effect", False, "ambiguous", 1),
        "interrupted": ("effect", False, "ambiguous", 1),
        "stopped": ("sent FunctionCallInProgressFrame", True, "cancelled", None),
    }
    calls, names = {}, {f"left_{name}": safe for name, (_, safe, *_) in left.items()}
    with ExitStack() as stack:
        processes = {}
        for name, (point, safe, *_) in left.items():
            plan = Plan(point, timeout_secs=scaled(5.0 if name == "overdue" else 60.0))
            served = {f"left_{name}": safe}
            processes[name] = stack.enter_context(
                tools(doomed(pipeline), served, effects_path, f"left-{name}", plan)
            )
        for name, process in processes.items():
            process.alive()
            [calls[name]] = ask_for(pipeline, f"left-{name}", f"left_{name}")
        for process in processes.values():
            assert process.ended() == -signal.SIGKILL
        interrupt(pipeline, "left-interrupted", "left-stopped")
        before = {name: effects.of(call) for name, call in calls.items()}
        with timekeeper(pipeline.settings.model_copy(update=quick)) as keeper:
            until(pipeline, calls.values())
            assert keeper.stop() == 0
        heir = stack.enter_context(tools(lasting(pipeline), names, effects_path, "too-late"))
        [afterwards] = ask_for(pipeline, "left-afterwards", "left_overdue")
        until_at_rest(pipeline, [*calls.values(), afterwards])
        assert heir.stop() == 0
    assert {name: effects.of(call) for name, call in calls.items()} == before
    for name, (_, _, how, count) in left.items():
        assert status(pipeline, calls[name]) == how, (name, log_of(pipeline, calls[name]))
        assert count is None or len(effects.of(calls[name])) == count, name
    check(pipeline, effects, [calls["claimed"], calls["overdue"], afterwards], safe=False)
    check(pipeline, effects, [calls["interrupted"]], safe=False, interrupted=True)
    check(pipeline, effects, [calls["stopped"]], safe=True, interrupted=True)


@pytest.mark.long
def test_while_postgres_is_away_calls_end_as_they_can_and_none_is_run_twice(
    kafka, tmp_path, effects, effects_path
):
    """One handler ends within its lease, and its result is on the log. The workers of the others lose their lease."""
    with ExitStack() as kept:
        port = choose(0)

        def start():
            stack = ExitStack()
            server = stack.enter_context(
                embedded_postgres.running(tmp_path / "p", port=port, settings={"fsync": "off"})
            )
            kept.push(stack)
            return stack, server

        stop, postgres = start()
        migration.migrate(postgres.dsn)
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE offline TEMPLATE frameledger")
        offline = make_conninfo(postgres.dsn, dbname="offline")
        pipeline = made(kafka.bootstrap_servers, postgres.dsn, lambda: offline)
        running = kept.enter_context(projector(pipeline.settings))
        lives = {"quick": lasting(pipeline), "lost": doomed(pipeline)}
        served = {"quick": {"quick": False}, "lost": {"lost": False, "lost_safe": True}}
        workers = {
            name: kept.enter_context(tools(settings, served[name], effects_path, name, Plan(holds=True)))
            for name, settings in lives.items()
        }
        for worker in workers.values():
            worker.alive()
        names = ["quick", "lost", "lost_safe"]
        [quick, lost, safe] = [call for name in names for call in ask_for(pipeline, name, name)]
        effects.until(quick, lost, safe)
        until(pipeline, [quick, lost, safe], "running")
        stop.close()
        workers["quick"].release()
        asked_meanwhile = ask_for(pipeline, "meanwhile", "lost")
        assert [workers["lost"].hear() for _ in range(2)] == ["stopped", "stopped"]
        workers["lost"].release()
        start()
        until_at_rest(pipeline, [quick, lost, safe, *asked_meanwhile])
        assert {one.stop() for one in workers.values()} == {0}
        calls = {
            quick: ("done", 1),
            lost: ("ambiguous", 1),
            safe: ("done", 2),
            asked_meanwhile[0]: ("done", 1),
        }
        assert {call: (status(pipeline, call), len(effects.of(call))) for call in calls} == calls
        check(pipeline, effects, [quick, lost, *asked_meanwhile], safe=False)
        check(pipeline, effects, [safe], safe=True)
        pipeline.check(running)


@pytest.mark.long
def test_whatever_step_the_projector_is_killed_at_a_call_runs_once(
    pipeline_without_projector, effects, effects_path
):
    """It dies in the batch that has the call's dispatch, then in that of its start, then in that of its result."""
    pipeline = pipeline_without_projector
    rounds = (
        ("after commit", f"before {AT_ONCE}", f"after sending {AT_ONCE}"),
        ("after send", f"after sending {AT_ONCE}", "after commit"),
        (f"before {AT_ONCE}", "after commit", "before send"),
    )
    calls = []
    for number, (at_dispatch, at_start, at_result) in enumerate(rounds):
        name = f"projected_{number}"
        with ExitStack() as stack:
            with doomed_projector(pipeline, at_dispatch) as running:
                running.arm()
                calls += ask_for(pipeline, name, name)
                assert running.ended() == -signal.SIGKILL
            with doomed_projector(pipeline, at_start) as running:
                running.arm()
                worker = stack.enter_context(
                    tools(lasting(pipeline), {name: False}, effects_path, name, Plan(holds=True))
                )
                assert running.ended() == -signal.SIGKILL
            with doomed_projector(pipeline, at_result) as running:
                effects.until(calls[-1])
                pipeline.until_idle(running)
                running.arm()
                worker.release()
                assert running.ended() == -signal.SIGKILL
            with doomed_projector(pipeline, None):
                until_at_rest(pipeline, calls)
            assert worker.stop() == 0
    assert [(status(pipeline, call), len(effects.of(call))) for call in calls] == [("done", 1)] * len(calls)
    check(pipeline, effects, calls, safe=False)
    with doomed_projector(pipeline, None) as last:
        pipeline.check(last)


@contextmanager
def doomed_projector(pipeline, point):
    """Yields a projector that is killed at this point once it is armed."""
    with projector(
        pipeline.settings, ProjectorPlan(point=point, member="it", small=SINGLE_STATEMENT)
    ) as running:
        pipeline.until_idle(running)
        yield running


@pytest.mark.long
def test_whatever_step_the_inference_worker_is_killed_at_its_calls_run_once(
    pipeline, effects, effects_path, tmp_path
):
    """Calls that a dead attempt announced and did not commit are superseded with it, and never run."""
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps(
            {
                "replies": [
                    {"when": {"result_of": "inferred"}, "say": [{"text": "It is done."}]},
                    {"say": [{"text": "Let me see."}, {"call": "inferred", "arguments": {}}]},
                ]
            }
        )
    )
    scripted = {"inference_provider": "scripted", "inference_script": script}
    points = (
        "compose",
        "publish FunctionCallsStartedFrame",
        "published FunctionCallsStartedFrame",
        "publish LLMFullResponseEndFrame",
        "published LLMFullResponseEndFrame",
    )
    with ExitStack() as stack:
        worker = stack.enter_context(tools(lasting(pipeline), {"inferred": False}, effects_path, "inferred"))
        dying = {}
        for number, point in enumerate(points):
            model = f"{point} model"
            dying[point] = stack.enter_context(
                answerer(
                    doomed(pipeline).model_copy(update=scripted),
                    InferencePlan(point),
                    models=[model],
                    service=f"dying-inference-{number}",
                )
            )
            naming = frame("LLMUpdateSettingsFrame", settings={"model": model})
            ask(pipeline, point, "Please.", naming)
        for point, one in dying.items():
            assert one.ended() == -signal.SIGKILL, point
        heir = stack.enter_context(
            answerer(lasting(pipeline).model_copy(update=scripted), service="heir-of-inference")
        )
        for point in points:
            pipeline.until(
                "SELECT count(*) = 2 AND bool_and(status = 'ended') FROM runs WHERE context_id = %s", point
            )
        assert [worker.stop(), heir.stop()] == [0, 0]
    for point in points:
        assert spoken(pipeline, point)[-1] == ("assistant", "It is done."), point
        calls = rows(
            pipeline,
            "SELECT tool_call_id, status FROM tool_calls WHERE context_id = %s ORDER BY requested_version",
            point,
        )
        assert [how for _, how in calls] == ["forgotten"] * (len(calls) - 1) + ["done"], point
        # Two attempts may have given their calls the same id.
        assert sum(len(effects.of(call)) for call in {call for call, _ in calls}) == 1, (point, calls)
        assert len(effects.of(calls[-1][0])) == 1, point
