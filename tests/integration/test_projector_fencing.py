"""Two projectors on one partition, frozen projectors that resume, and servers that fail: each frame is stored once."""

import asyncio
import signal
from contextlib import ExitStack

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.batches import TOPIC, TOPICS, Log, value_of
from tests.support.formatted_broker import formatted
from tests.support.killable import OWNER, STATEMENT_PER_TABLE, Plan, projector
from tests.support.log_in_memory import Feed, Group
from tests.support.pipeline import PARTITIONS, Raw, die, histories, made, mixed, own_pipeline  # noqa: F401  # a fixture
from tests.support.tiers import long
from tests.support.turns import turns

from frameledger_services.embedded import kafka as embedded_kafka
from frameledger_services.embedded import postgres as embedded_postgres
from frameledger_services.embedded.ports import choose
from frameledger_services.projector import group_member
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.instance_id import Instance
from frameledger_services.projector.notifier import Notifier
from frameledger_services.projector.relay import Relay
from frameledger_services.store import binary_copy, migration, projections

FEW = ("barge-in", "parallel-tools", "tool-changes", "old-names")


@pytest.mark.long
def test_processes_of_one_group_come_and_go_and_each_frame_counts_once(pipeline):
    with projector(pipeline.settings) as first:
        pipeline.publish(mixed("1", FEW))
        with projector(pipeline.settings) as second:
            for number in range(2, 6):
                pipeline.publish(mixed(str(number), FEW))
            pipeline.until_idle(first, second)
            first.send(signal.SIGKILL)
            pipeline.publish(mixed("6", FEW))
            pipeline.until_idle(second)
            with projector(pipeline.settings) as third:
                pipeline.publish(mixed("7", FEW))
                assert second.stop() == 0
                pipeline.publish(mixed("8", FEW))
                pipeline.until_idle(third)
                assert third.stop() == 0
    pipeline.check()


def test_two_who_both_believe_that_they_own_everything_fence_each_other_and_each_frame_counts_once(pipeline):
    with (
        projector(pipeline.settings, Plan(group="one")) as first,
        projector(pipeline.settings, Plan(group="another")) as second,
    ):
        for number in range(12):
            pipeline.publish(mixed(str(number), FEW[:2]))
        pipeline.until_idle(first, second)
        assert first.stop() == second.stop() == 0
    pipeline.check()


@pytest.mark.parametrize(
    ("point", "group"),
    [long("before COPY messages", None), ("in the middle of COPY messages", "another")],
    ids=["between two statements", "in the middle of a COPY"],
)
def test_a_frozen_projector_is_ended_by_the_next_owner_and_comes_back_as_one_who_owns_nothing(
    pipeline, point, group
):
    plan = Plan(point=point, signal=signal.SIGSTOP, small=STATEMENT_PER_TABLE)
    with projector(pipeline.settings, plan) as frozen:
        pipeline.until_idle(frozen)
        frozen.arm()
        pipeline.publish(mixed("1", FEW))
        frozen.frozen()
        with projector(pipeline.settings, Plan(group=group)) as other:
            pipeline.until_idle(other)
            frozen.send(signal.SIGCONT)
            pipeline.publish(mixed("2", FEW))
            pipeline.until_idle(frozen, other)
            assert other.stop() == 0
        pipeline.publish(mixed("3", FEW))
        pipeline.until_idle(frozen)
        assert frozen.stop() == 0
    pipeline.check()


@pytest.mark.long
def test_a_connection_that_drops_in_the_middle_of_a_copy_is_made_again(pipeline):
    plan = Plan(point="in the middle of COPY messages", signal=signal.SIGSTOP, small=STATEMENT_PER_TABLE)
    with projector(pipeline.settings, plan) as running:
        pipeline.until_idle(running)
        running.arm()
        pipeline.publish(mixed("1", FEW))
        running.frozen()
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            connection.execute(f"SELECT pg_terminate_backend(({OWNER}), 10000)")
        running.send(signal.SIGCONT)
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()


@pytest.mark.long
def test_who_was_frozen_until_the_database_gave_up_on_its_transaction_goes_on(pipeline):
    plan = Plan(
        point="after lock",
        signal=signal.SIGSTOP,
        small=STATEMENT_PER_TABLE,
        then="SET LOCAL idle_in_transaction_session_timeout = 1",
    )
    with projector(pipeline.settings, plan) as running:
        pipeline.until_idle(running)
        running.arm()
        pipeline.publish(mixed("1", FEW))
        running.frozen()
        pipeline.until(f"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ({OWNER}))")
        running.send(signal.SIGCONT)
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()


@pytest.mark.long
def test_a_database_and_a_broker_that_start_again_are_waited_for(tmp_path):
    with ExitStack() as kept:
        ports = choose(0), choose(0)

        def start_postgres():
            stack = ExitStack()
            server = stack.enter_context(
                embedded_postgres.running(tmp_path / "p", port=ports[0], settings={"fsync": "off"})
            )
            kept.push(stack)
            return stack, server

        def start_kafka():
            stack = ExitStack()
            server = stack.enter_context(embedded_kafka.running(tmp_path / "k", port=ports[1]))
            kept.push(stack)
            return stack, server

        stop_postgres, postgres = start_postgres()
        formatted(tmp_path / "k")
        stop_kafka, kafka = start_kafka()
        migration.migrate(postgres.dsn)
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE offline TEMPLATE frameledger")
        offline = make_conninfo(postgres.dsn, dbname="offline")
        pipeline = made(kafka.bootstrap_servers, postgres.dsn, lambda: offline)
        with projector(pipeline.settings) as running:
            pipeline.publish(mixed("1", FEW))
            pipeline.until_idle(running)
            stop_postgres.close()
            pipeline.publish(mixed("2", FEW))
            start_postgres()
            pipeline.until_idle(running)
            stop_kafka.close()
            start_kafka()
            pipeline.publish(mixed("3", FEW))
            pipeline.until_idle(running)
            assert running.stop() == 0
        pipeline.check()


def test_a_fence_in_the_first_of_several_batches_takes_no_record_of_the_others_with_it(database, monkeypatch):
    """One poll returns records for several batches, and another owner takes over the first partition meanwhile."""
    monkeypatch.setattr(group_member, "MAX_BATCH_BYTES", 1)
    log = Log()
    for number in range(3 * PARTITIONS):
        log.add(f"ctx-{number}", b'{"type":"LLMRunFrame"}')
    assert {record.partition for record in log.records} == set(range(PARTITIONS))

    fences = [log.records[0].partition]

    async def failpoint(step):
        if step == "before lock" and fences:
            with psycopg.connect(database) as other:
                other.execute(
                    "UPDATE projections SET epoch = epoch + 1 WHERE partition = %s", (fences.pop(),)
                )

    asyncio.run(project_in_memory(database, log, failpoint, looks=3))
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM frames") == len(log.records)


def test_where_three_crashed_at_one_offset_each_record_has_a_transaction_of_its_own(database):
    log = Log()
    for _ in range(10):
        log.add("ctx", b'{"type":"LLMRunFrame"}')
    commits = []

    async def failpoint(step):
        if step == "after commit":
            commits.append(step)

    for _ in range(3):
        die(database, TOPIC, log.records[0].partition)
    asyncio.run(project_in_memory(database, log, failpoint, looks=1))
    assert len(commits) == len(log.records)


def test_those_who_live_and_only_fence_each_other_park_nothing(database):
    log = Log()
    for _ in range(3):
        log.add("ctx", b'{"type":"LLMRunFrame"}')

    async def run():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as other:
            fences = [log.records[0].partition] * 12

            async def failpoint(step):
                if step == "before lock" and fences:
                    await projections.assign(other, TOPIC, fences.pop(), "another one who lives")

            await project_in_memory(database, log, failpoint, looks=13)

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT json_agg(outcome) FROM frames") == ["applied"] * 3


@pytest.mark.parametrize("hanging", [False, long(True)], ids=["it kills", "it never ends"])
def test_a_frame_that_ends_whoever_folds_it_parks_its_conversation_and_no_other(pipeline, hanging):
    records = histories("good", ["barge-in", "parallel-tools"])
    deadly = Raw(b"bad", b'{"type":"TranscriptionFrame","user_id":"u","timestamp":"","text":"deadly"}')
    records[5:5] = [deadly, Raw(b"bad", b'{"type":"LLMRunFrame"}')]
    pipeline.publish(records)
    # The sixth projector parks it. On a busy machine the watchdog may kill one that only folds slowly.
    for _ in range(20):
        with projector(pipeline.settings, Plan(deadly="deadly", hanging=hanging, member="it")) as running:
            if not pipeline.until_idle_or_dead(running):
                break
            assert running.ended() == (-signal.SIGALRM if hanging else -signal.SIGKILL)
    else:
        raise AssertionError("the twentieth projector died of it too")
    with psycopg.connect(pipeline.address) as connection:
        outcomes = connection.execute(
            "SELECT context_id = 'bad', outcome = 'parked', count(*)::int FROM frames GROUP BY 1, 2 ORDER BY 1"
        ).fetchall()
        assert outcomes == [(False, False, len(records) - 2), (True, True, 2)]


async def project_in_memory(database, log, failpoint, *, looks):
    """Run a projector on a log in memory until this many polls were made."""

    async def send(_):
        return []

    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as connection,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as relaying,
    ):
        binary_copy.prepare(connection)
        group, feed = Group(TOPIC, PARTITIONS), Feed(log.records)
        relay, notifier = Relay(relaying, send, failpoint), Notifier(relaying, TOPIC, failpoint)
        projector = group_member.GroupMember(
            group,
            feed,
            Commits(connection, TOPICS, HeadCache(), failpoint),
            relay,
            notifier,
            Looked(log.records),
            Instance("here"),
        )
        await projector.on_partitions_assigned(group.assignment())
        await projector._take_over_assigned()
        for _ in range(looks):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(projector._prefetch.receive(feed.answer()))
                await turns(1)
                look = projector._prefetch.read(group_member.MAX_RECORDS)
            await projector._store(look)
            await projector._take_over_assigned()


class Looked:
    """The part of a log probe that a takeover of a partition uses."""

    def __init__(self, records):
        self._records = records

    async def offsets(self, partition):
        return 0, sum(record.partition == partition for record in self._records)

    async def ends(self, partitions, deadline):
        return {partition: (await self.offsets(partition))[1] for partition in partitions}

    async def record_at(self, partition, offset):
        return next(one for one in self._records if (one.partition, one.offset) == (partition, offset))
