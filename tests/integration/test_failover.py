"""A promoted asynchronous standby lacks the latest claims, while the log has the frames published under them.

None of these frames is folded when the work is claimed again, because the projector is stopped until then. So the new
claim gets an attempt that was given out before. Usually no worker claims while the owner of a partition is gone; here
its session is simulated.
"""

import json
import signal

import pytest
from tests.bounds import scaled
from tests.support.answerers import Plan as AnswererPlan
from tests.support.answerers import answerer, ask, context, rows, until_closed
from tests.support.call_accounts import ask_for, status, until
from tests.support.killable import projector
from tests.support.killable_tools import Effects, Plan, tools
from tests.support.pipeline import made, owning
from tests.support.standby import pair

from frameledger_services.store import migration

STEADY = {"work_lease_secs": scaled(10.0), "work_heartbeat_secs": 0.1, "work_slots": 2}
"""Settings with which a worker keeps its session when it is frozen for a moment or its database restarts."""


@pytest.fixture
def servers(tmp_path):
    with pair(tmp_path / "databases") as made_pair:
        migration.migrate(made_pair.primary.dsn)
        yield made_pair


@pytest.fixture
def pipeline(kafka, servers):
    return made(kafka.bootstrap_servers, servers.address, lambda: servers.address)


def steady(pipeline, **update):
    return pipeline.settings.model_copy(update=STEADY | update)


CLAIMED_AGAIN = "SELECT count(*) = 1 FROM claims WHERE context_id = %s AND attempt = 1"


@pytest.mark.regression("trial C1")
def test_an_unsafe_function_begins_once_whose_claim_and_start_the_database_has_lost(
    servers, pipeline, tmp_path
):
    effects = Effects(tmp_path / "effects.sqlite")
    plan = Plan("before claim", signal.SIGSTOP, holds=True)
    with (
        projector(pipeline.settings) as folding,
        tools(steady(pipeline), {"pay": False}, tmp_path / "effects.sqlite", "payers", plan) as worker,
    ):
        worker.alive()
        [call] = ask_for(pipeline, "talk", "pay")
        worker.frozen()
        servers.until_the_standby_has(
            "SELECT count(*) = 1 FROM tool_calls WHERE tool_call_id = %s AND status = 'dispatched'", call
        )
        servers.withhold()
        worker.send(signal.SIGCONT)
        effects.until(call)
        folding.kill()
        servers.fail_over()
        assert status(pipeline, call) == "dispatched", "the start is lost"
        with owning(pipeline.address):
            pipeline.until(CLAIMED_AGAIN, "talk")
        with projector(pipeline.settings) as folding:
            until(pipeline, [call])
            pipeline.until_idle(folding)
            assert status(pipeline, call) == "ambiguous"
            worker.release()
            assert worker.stop() == 0
    assert len(effects.of(call)) == 1, "it has begun once"
    starts = rows(
        pipeline, "SELECT outcome FROM frames WHERE type = 'FunctionCallInProgressFrame' ORDER BY version"
    )
    assert starts == [("applied",), ("ignored",)]
    assert rows(pipeline, "SELECT count(*) FROM rejected_frames") == [(0,)], "no two frames have one id"


@pytest.mark.regression("trial C2", "fault 5")
def test_an_answer_is_one_model_s_whose_run_the_database_gave_to_two(servers, pipeline, tmp_path):
    def script(word, *end):
        path = tmp_path / f"{word}.json"
        pieces = [piece for number in range(40) for piece in ({"text": f"{word}{number} "}, {"delay": 0.05})]
        path.write_text(json.dumps({"replies": [{"say": [*pieces, *end]}]}))
        return {"inference_provider": "scripted", "inference_script": path}

    frozen = AnswererPlan("claim", signal.SIGSTOP)
    with (
        projector(pipeline.settings) as folding,
        # It never ends by itself, however late it is killed.
        answerer(steady(pipeline, **script("one", {"delay": 3_600})), frozen, service="models") as first,
    ):
        pipeline.until("SELECT count(*) = 1 FROM live_workers()")
        ask(pipeline, "talk")
        first.frozen()
        servers.until_the_standby_has("SELECT count(*) = 1 FROM runs WHERE status = 'open'")
        servers.withhold()
        first.send(signal.SIGCONT)
        pipeline.until("SELECT count(*) > 5 FROM frames WHERE type = 'LLMTextFrame'")
        folding.kill()
        first.kill()
        servers.fail_over()
        assert rows(pipeline, "SELECT attempt FROM runs") == [(0,)], "the start is lost"
        with answerer(steady(pipeline, **script("other")), service="models") as second:
            with owning(pipeline.address):
                pipeline.until(CLAIMED_AGAIN, "talk")
            with projector(pipeline.settings) as folding:
                until_closed(pipeline, "talk")
                pipeline.until_idle(folding)
            assert second.stop() == 0
    [answer] = [one["content"] for one in context(pipeline, "talk")["messages"] if one["role"] == "assistant"]
    assert answer == " ".join(f"other{number}" for number in range(40))
    assert rows(pipeline, "SELECT status, finish_reason FROM runs") == [("ended", "stop")]
    assert rows(pipeline, "SELECT count(*) FROM rejected_frames") == [(0,)], "no two frames have one id"


@pytest.mark.long
@pytest.mark.regression("journey 2")
def test_while_the_owner_of_a_partition_is_gone_nobody_takes_what_only_the_tables_call_open(
    servers, pipeline, tmp_path
):
    """The database lost the start and end of an answer. A worker looks for work before a projector owns the
    partition."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": [{"say": [{"text": "once"}]}]}))
    settings = steady(pipeline, inference_provider="scripted", inference_script=path)
    with (
        projector(pipeline.settings) as folding,
        answerer(settings, AnswererPlan("claim", signal.SIGSTOP), service="models") as first,
    ):
        pipeline.until("SELECT count(*) = 1 FROM live_workers()")
        ask(pipeline, "talk")
        first.frozen()
        servers.until_the_standby_has("SELECT count(*) = 1 FROM runs WHERE status = 'open'")
        servers.withhold()
        first.send(signal.SIGCONT)
        until_closed(pipeline, "talk")
        pipeline.until_idle(folding)
        folding.kill()
        first.kill()
        servers.fail_over()
        assert rows(pipeline, "SELECT status FROM runs") == [("open",)], "that it was answered is lost"
        with answerer(settings, service="models") as second:
            pipeline.until("SELECT count(*) > 0 FROM live_workers()")
            looked = (
                "SELECT count(*) = 1 FROM workers WHERE connected_at < clock_timestamp() - interval '3 s'"
            )
            pipeline.until(looked)
            assert rows(pipeline, "SELECT count(*) FROM claims") == [(0,)]
            with projector(pipeline.settings) as folding:
                pipeline.until_idle(folding)
            assert second.stop() == 0
    assert [
        one["content"] for one in context(pipeline, "talk")["messages"] if one["role"] == "assistant"
    ] == ["once"]
    assert rows(pipeline, "SELECT count(*) FROM claims WHERE attempt > 0") == [(0,)]
    assert rows(pipeline, "SELECT count(*) FROM frames WHERE type = 'LLMFullResponseStartFrame'") == [(1,)]
