"""Faults of the log and its readers, repeatedly: run by `make chaos`, not by `make test`.

The topic is recreated while a projector runs or is frozen; several projectors have the same instance id; half of the
partitions have no leader for twenty seconds. Rounds and seeds are as in `failover`.
"""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import wait

import psycopg
from tests.bounds import ON_SERVERS
from tests.chaos.calls import NAMES
from tests.chaos.failover import (  # noqa: F401  # a fixture
    drawn_talks,
    drawn_workers,
    end,
    reference,
    rounds,
    said_of,
)
from tests.chaos.projectors import POINTS as PROJECTOR_POINTS
from tests.support.batches import value_of
from tests.support.call_accounts import ask_for, check, interrupt, until_at_rest
from tests.support.killable import Plan, finish, projector
from tests.support.killable_tools import DOOMED, HEIRS, Effects, tools
from tests.support.pipeline import FEW, fold_topic, made, mixed
from tests.support.polling import pause
from tests.support.recovering import (  # noqa: F401  # a fixture
    applied,
    command_on_pipeline,
    frames_of,
    in_generations,
    looked,
    make_again,
    refused,
    until_gone,
)
from tests.support.two_brokers import two_brokers

from frameledger_services.event_log import broker, feed
from frameledger_services.settings import Settings

AWAY_SECONDS = 20.0

FROZEN_AT = ("before load", "after load", "after commit", "after send")
"""Points that a projector reaches in a batch, whichever way it writes."""


def test_a_topic_that_was_made_anew_is_not_gone_on_with_until_somebody_recovers(kafka, reference, run):  # noqa: F811
    for number, draw in rounds("topic"):
        pipeline = made(kafka.bootstrap_servers, reference(), reference)
        _make_anew(pipeline, run, draw, number)


def _make_anew(pipeline, run, draw, number):
    """The new topic is empty, has other records, or has all records of the old one."""
    point = draw.choice([None, "at rest", draw.choice(FROZEN_AT)])
    old = mixed(f"{number}-old", FEW)
    new = draw.choice([[], old, mixed(f"{number}-new", FEW[:2]), mixed(f"{number}-new", FEW) + old])
    print(f"{number}: frozen {point}; {len(old)} records, then {len(new)}", flush=True)
    plan = Plan(point if point in FROZEN_AT else None, signal.SIGSTOP)
    with projector(pipeline.settings, plan) as living:
        pipeline.publish(old)
        pipeline.until_idle(living)
        if point == "at rest":
            living.send(signal.SIGSTOP)
        elif point is not None:
            living.arm()
            pipeline.publish(mixed(f"{number}-under-way", FEW[:1]))
            living.frozen()
        before, since = pipeline.records(), time.monotonic()
        asyncio.run(make_again(pipeline))
        until_gone(pipeline)
        pipeline.make_topics()
        pipeline.publish(new)
        while time.monotonic() < since + 2 * feed.FROZEN_SECONDS:
            pause()
        if point is not None:
            living.send(signal.SIGCONT)
        assert living.ended() == 1
    refused(pipeline)
    found, _ = looked(pipeline, run, 1)
    assert found["same_topic"] is False
    with psycopg.connect(pipeline.address) as connection:
        read = value_of(connection, "SELECT json_object_agg(partition, next_offset) FROM projections")
    assert applied(pipeline, run)["generation"] == 2
    with projector(pipeline.settings) as living:
        pipeline.publish(mixed(f"{number}-after", FEW[:2]))
        pipeline.until_idle(living)
        assert living.stop() == 0
    looked(pipeline, run, 0)
    known = [record for record in before if record.offset < read[str(record.partition)]]
    folded = fold_topic([*known, *in_generations(pipeline)], every=20)
    assert frames_of(pipeline.address) == set(folded.frames)
    with psycopg.connect(pipeline.address) as connection:
        for (context_id, version), context in folded.contexts.items():
            assert value_of(connection, "SELECT context_at(%s, %s)", context_id, version) == context
        assert value_of(connection, "SELECT bool_and(intact) FROM contexts, verify_chain(context_id)")
        assert value_of(connection, "SELECT count(*) FROM outbox") == 0


def test_of_projectors_of_one_name_one_goes_on(kafka, reference):  # noqa: F811
    for number, draw in rounds("name"):
        pipeline = made(kafka.bootstrap_servers, reference(), reference)
        _be_named_alike(pipeline, draw, number)
        pipeline.check(every=20)


def _be_named_alike(pipeline, draw, number):
    """The first projector runs, dies or freezes, and may lose its sessions, while others start; then it resumes."""
    befalls = draw.choice([None, signal.SIGKILL, signal.SIGSTOP])
    point = draw.choice(PROJECTOR_POINTS if befalls == signal.SIGKILL else FROZEN_AT)
    others, hung_up_on = draw.randint(1, 2), draw.choice(["never", "before", "after"])
    said = f"{befalls.name} {point}" if befalls else "lives"
    print(f"{number}: the first {said}; {others} more come; it is hung up on {hung_up_on}", flush=True)
    plan = Plan(point if befalls else None, befalls or signal.SIGKILL, member="it")
    with ExitStack() as stack:
        first = stack.enter_context(projector(pipeline.settings, plan))
        pipeline.until("SELECT count(*) = 4 FROM projections")
        pipeline.publish(mixed(f"{number}-1", FEW))
        pipeline.until_idle(first)
        first.arm()
        pipeline.publish(mixed(f"{number}-2", FEW))
        if befalls == signal.SIGSTOP:
            first.frozen()
        owners = _hang_up(pipeline) if hung_up_on == "before" else []
        named = [
            first,
            *(stack.enter_context(projector(pipeline.settings, Plan(member="it"))) for _ in range(others)),
        ]
        if hung_up_on == "after":
            _hang_up(pipeline)
        pipeline.publish(mixed(f"{number}-3", FEW))
        if befalls == signal.SIGSTOP:
            pipeline.until("SELECT count(*) = 0 FROM projections WHERE owner_pid = ANY (%s)", owners)
            first.send(signal.SIGCONT)
        while len(living := [one for one in named if one.is_alive()]) > 1:
            assert wait([one._process.sentinel for one in living], ON_SERVERS), (
                "they have one name and all live"
            )
        assert all(one.ended() in (1, -signal.SIGKILL) for one in named if one not in living)
        last = living[0] if living else stack.enter_context(projector(pipeline.settings, Plan(member="it")))
        pipeline.publish(mixed(f"{number}-4", FEW))
        pipeline.until_idle(last)
        assert last.stop() == 0


def _hang_up(pipeline):
    """End the sessions that own a partition. Returns their pids."""
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        pids = [pid for (pid,) in connection.execute("SELECT DISTINCT owner_pid FROM projections")]
        connection.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) AS pid", (pids,))
    return pids


def test_calls_are_run_once_while_half_of_the_partitions_have_no_leader(reference, tmp_path):  # noqa: F811
    with two_brokers(tmp_path / "brokers") as cluster:
        for number, draw in rounds("leaders"):
            asyncio.run(_until_both_are_there(cluster))
            pipeline = made(cluster.bootstrap_servers, reference(), reference)
            _be_without_leaders(cluster, pipeline, draw, number, tmp_path / f"effects-{number}.sqlite")
            finish(pipeline)
            pipeline.check(every=20)


async def _until_both_are_there(cluster):
    """Only then a topic has leaders on both."""
    settings = Settings(kafka_bootstrap_servers=cluster.bootstrap_servers)
    async with asyncio.timeout(ON_SERVERS), broker.connect(settings) as ask:
        while len(ask._client.cluster.brokers()) < 2:
            await ask._client.force_metadata_update()


def _be_without_leaders(cluster, pipeline, draw, number, path):
    """Some calls run when the leader is lost, others are requested meanwhile, and workers die or freeze."""
    short, long = (pipeline.settings.model_copy(update=update) for update in (DOOMED, HEIRS))
    effects, talks, plans = Effects(path), drawn_talks(draw, str(number)), drawn_workers(draw, 2)
    earlier, ended = draw.randrange(len(talks) + 1), draw.random() < 0.5
    print(f"{number}: {said_of(plans)}; {earlier} calls before, ended by then: {ended}", flush=True)
    names = list(talks)

    def ask(some):
        return {talk: ask_for(pipeline, talk, talks[talk][0])[0] for talk in some}

    with ExitStack() as stack:
        living = stack.enter_context(projector(pipeline.settings))
        workers = [stack.enter_context(tools(short, NAMES, path, "workers", plan)) for plan in plans]
        steady = stack.enter_context(tools(long, NAMES, path, "workers"))
        steady.alive()
        calls = ask(names[:earlier])
        if ended:
            until_at_rest(pipeline, calls.values())
        asking = stack.enter_context(ThreadPoolExecutor(1))
        cluster.kill()
        try:
            asked = asking.submit(ask, names[earlier:])
            with psycopg.connect(pipeline.address, autocommit=True) as connection:
                connection.execute("LISTEN nothing")
                assert list(connection.notifies(timeout=AWAY_SECONDS)) == []
        finally:
            cluster.rise()
        calls |= asked.result()
        interrupt(pipeline, *(talk for talk, (_, interrupted) in talks.items() if interrupted))
        until_at_rest(pipeline, calls.values())
        end(workers, plans)
        assert steady.stop() == 0
        pipeline.until_idle(living)
        for talk, (word, interrupted) in talks.items():
            check(
                pipeline, effects, [calls[talk]], safe=NAMES[word], interrupted=None if interrupted else False
            )
