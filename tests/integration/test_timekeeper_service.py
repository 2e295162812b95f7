"""The timekeeper on real servers settles each thing once, with other timekeepers and after outages."""

import asyncio
import logging
import signal
from contextlib import contextmanager

import psycopg
import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.tcp_proxy import proxy
from tests.support.tiers import long
from tests.support.timekeeper_process import timekeeper
from tests.unit.rules.dsl import ask, begin, committed, hear, interim, interrupt, speak, start, stop, tokens

from frameledger import derived
from frameledger.frames import encode_frame
from frameledger.ids import ContextId
from frameledger_services.timekeeper import service

AT_REST = """
    SELECT NOT EXISTS (SELECT FROM runs WHERE status IN ('open', 'requested'))
        AND NOT EXISTS (SELECT FROM tool_calls WHERE status IN ('announced', 'dispatched', 'running'))
        AND NOT EXISTS (
            SELECT FROM contexts WHERE turn_opened_version IS NOT NULL OR bot_since_version IS NOT NULL
        )
        AND NOT EXISTS (SELECT FROM outbox)
"""


@pytest.fixture
def settings(pipeline):
    """Settings by which everything is overdue at once, except for the deadlines of calls."""
    return pipeline.settings.model_copy(
        update={
            "timekeeper_every_secs": 0.05,
            "timekeeper_run_unclaimed_secs": 0.1,
            "timekeeper_run_silent_secs": 0.1,
            "timekeeper_call_unserved_secs": 0.1,
            "timekeeper_call_unstarted_secs": 0.1,
            "timekeeper_user_silent_secs": 0.1,
            "timekeeper_final_words_secs": 0.1,
            "timekeeper_bot_silent_secs": 0.1,
        }
    )


def records(context_id, *frames):
    return [Raw(context_id.encode(), encode_frame(frame)) for frame in frames]


def run_of(context_id, asked=1):
    return derived.run_id(ContextId(context_id), asked)


def conversations(count):
    """The records of `count` conversations for each thing that may fail to come."""
    found = []
    for number in range(count):
        names = [f"{kind}-{number}" for kind in ("unclaimed", "silent", "unserved", "speaking", "waiting")]
        unclaimed, silent, unserved, speaking, waiting = names
        found += records(unclaimed, speak(), hear("Hello?"), stop())
        found += records(silent, ask(), start(run_of(silent)), *tokens("It is", run=run_of(silent)))
        found += records(unserved, ask(), *committed("a", "b", run=run_of(unserved)))
        found += records(speaking, ask(), speak(), interim(), interrupt())
        found += records(waiting, speak(), hear("and"), interim(), stop())
    return found


def mark_dead(pipeline):
    """Move the heartbeat of every worker an hour back."""
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute("UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 hour'")


def ask_for(pipeline, query, *parameters):
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        return value_of(connection, query, *parameters)


@contextmanager
def judging(pipeline, settings, **options):
    """A timekeeper that has been connected for long enough to judge others."""
    with timekeeper(settings, **options) as process:
        pipeline.until("SELECT count(*) > 0 FROM workers WHERE pid = %s", process.pid)
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            connection.execute(
                "UPDATE workers SET connected_at = connected_at - interval '1 hour' WHERE pid = %s",
                (process.pid,),
            )
        yield process


@pytest.mark.long
def test_two_timekeepers_bring_everything_to_rest_and_each_thing_is_settled_once(pipeline, settings):
    with projector(pipeline.settings) as projecting:
        pipeline.publish(conversations(5))
        pipeline.until_idle(projecting)
        with judging(pipeline, settings) as first, judging(pipeline, settings) as second:
            pipeline.until(AT_REST)
            assert [first.stop(), second.stop()] == [0, 0]
        pipeline.check(projecting)
    assert ask_for(pipeline, "SELECT count(*) FROM rejected_frames") == 0
    assert ask_for(pipeline, "SELECT count(*) FROM workers WHERE stopped_at IS NULL") == 0
    # Every run has ended in one of these ways: none is open, and none was dropped.
    assert (
        ask_for(pipeline, "SELECT count(*) FROM runs WHERE status NOT IN ('failed', 'interrupted', 'ended')")
        == 0
    )
    for kind, settled in {"unserved": 2, "unclaimed": 0}.items():
        query = "SELECT count(*) FROM tool_calls WHERE context_id LIKE %s AND status = 'failed'"
        assert ask_for(pipeline, query, f"{kind}-%") == 5 * settled
    twice = """
        SELECT count(*) FROM (
            SELECT FROM frames WHERE type = 'FunctionCallResultFrame' AND outcome = 'applied'
            GROUP BY context_id, tool_call_id HAVING count(*) > 1
        ) AS twice
    """
    assert ask_for(pipeline, twice) == 0


@pytest.mark.parametrize("point", [long("after sweep"), "after publish"])
def test_whoever_is_killed_leaves_what_the_next_one_finishes(pipeline, settings, point):
    with projector(pipeline.settings) as projecting:
        pipeline.publish(conversations(1))
        pipeline.until_idle(projecting)
        # Each dies at the first look at which it may publish: after a claim, after a start, after a result ...
        for _ in range(4):
            with judging(pipeline, settings, dies_at=point) as dying:
                assert dying.ended() == -signal.SIGKILL
            mark_dead(pipeline)
            pipeline.until_idle(projecting)
        with judging(pipeline, settings) as last:
            pipeline.until(AT_REST)
            assert last.stop() == 0
        pipeline.check(projecting)
    assert ask_for(pipeline, "SELECT count(*) FROM rejected_frames") == 0
    results = "SELECT count(*) FROM frames WHERE type = 'FunctionCallResultFrame' AND outcome = 'applied'"
    assert ask_for(pipeline, results) == 2


def test_it_continues_when_its_database_session_is_terminated(pipeline, settings):
    with projector(pipeline.settings) as projecting, timekeeper(settings) as keeping:
        pipeline.until("SELECT count(*) > 0 FROM workers")
        sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s"
        assert ask_for(pipeline, sessions, "frameledger timekeeper") == 1
        pipeline.publish(conversations(1)[:1])
        pipeline.until_idle(projecting)
        pipeline.until("SELECT turn_opened_version IS NULL FROM contexts")
        assert keeping.stop() == 0


@pytest.mark.regression("fault 220")
def test_runs_have_time_to_be_taken_over_when_it_begins(pipeline, settings):
    """As on a machine that was off or suspended: the workers have lost their leases too."""
    an_hour = settings.model_copy(update={"timekeeper_run_silent_secs": 3_600})
    with projector(pipeline.settings) as projecting:
        pipeline.publish(records("ctx", ask(), start(run_of("ctx")), *tokens("It is", run=run_of("ctx"))))
        pipeline.publish(records("speaking", speak()))
        pipeline.until_idle(projecting)
        with psycopg.connect(pipeline.address) as connection:
            # A trigger forbids changes of frames.
            connection.execute("ALTER TABLE frames DISABLE TRIGGER keep_frames")
            connection.execute("UPDATE frames SET recorded_at = recorded_at - interval '2 hours'")
            connection.execute("ALTER TABLE frames ENABLE TRIGGER keep_frames")
            connection.execute("UPDATE runs SET opened_at = opened_at - interval '2 hours'")
        with timekeeper(an_hour) as keeping:
            # This limit does not depend on how long the timekeeper has run. Once it is over, there was a look.
            pipeline.until("SELECT turn_opened_version IS NULL FROM contexts WHERE context_id = 'speaking'")
            assert ask_for(pipeline, "SELECT status FROM runs WHERE context_id = 'ctx'") == "open"
            assert keeping.stop() == 0


def test_during_an_outage_of_the_broker_it_sends_heartbeats_and_then_continues(pipeline, settings, kafka):
    with (
        projector(pipeline.settings) as projecting,
        proxy(kafka.port) as to_kafka,
        timekeeper(settings, broker=(kafka.port, to_kafka.port)) as keeping,
    ):
        pipeline.publish(records("ctx", speak()))
        pipeline.until("SELECT count(*) > 0 FROM frames WHERE type = 'UserStoppedSpeakingFrame'")
        to_kafka.cut()
        # Longer than the timeout of a request to the broker: the look failed, and the heartbeats went on.
        pipeline.until("SELECT max(heartbeat_at) > min(started_at) + interval '6 s' FROM workers")
        to_kafka.mend()
        pipeline.publish(records("later", speak()))
        pipeline.until(
            "SELECT count(*) > 0 FROM frames WHERE context_id = 'later' AND type = 'UserStoppedSpeakingFrame'"
        )
        pipeline.until_idle(projecting)
        assert keeping.stop() == 0


def test_it_stops_at_once_where_no_broker_answers(pipeline, settings):
    with projector(pipeline.settings) as projecting:
        pipeline.publish(records("ctx", speak()))
        pipeline.until_idle(projecting)
    nowhere = settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"})
    with timekeeper(nowhere) as keeping:
        pipeline.until("SELECT count(*) > 0 FROM workers WHERE heartbeat_at > started_at + interval '1 s'")
        assert keeping.stop() == 0
    assert ask_for(pipeline, "SELECT stopped_at IS NOT NULL FROM workers")


def test_it_says_that_it_waits_for_the_database_and_stops_meanwhile(pipeline, settings, caplog):
    """It runs in this process, so that its log can be read: the message is the signal to stop it."""

    async def run():
        stopping = asyncio.Event()

        class Stopping(logging.Handler):
            def emit(self, record):
                stopping.set()

        logger.addHandler(handler := Stopping())
        try:
            async with asyncio.timeout(ON_SERVERS):
                await service.serve(nowhere, stopping)
        finally:
            logger.removeHandler(handler)

    nowhere = settings.model_copy(update={"database_url": SecretStr("host=127.0.0.1 port=1")})
    logger = logging.getLogger("frameledger.timekeeper")
    asyncio.run(run())
    (said,) = [record.frameledger for record in caplog.records if record.name == logger.name]
    assert said["event"] == "service.retrying"
    assert "port 1 failed" in str(said["reason"])


def test_a_context_is_not_judged_while_its_frames_are_still_on_their_way(pipeline, settings):
    with projector(pipeline.settings) as projecting:
        pipeline.publish(records("ctx", speak(), begin("a")))
        pipeline.until_idle(projecting)
        projecting.send(signal.SIGSTOP)
        pipeline.publish(records("ctx", hear("Hello"), stop()))
        with judging(pipeline, settings) as keeping:
            pipeline.until(
                "SELECT count(*) > 0 FROM workers WHERE heartbeat_at > started_at + interval '1 s'"
            )
            projecting.send(signal.SIGCONT)
            pipeline.until("SELECT count(*) > 0 FROM runs WHERE status = 'failed'")
            assert keeping.stop() == 0
    stops = "SELECT count(*) FROM frames WHERE type = 'UserStoppedSpeakingFrame'"
    assert ask_for(pipeline, stops) == 1
