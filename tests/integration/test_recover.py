"""Recovery on real servers: logs that lost their newest or oldest records, and recreated topics."""

import asyncio
import base64
import json
import os
import random
import signal
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import psycopg
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # three that it does not list
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from tests.bounds import ON_SERVERS
from tests.support import pipeline as pipelines
from tests.support.batches import dump, value_of
from tests.support.killable import STATEMENT_PER_TABLE, Plan, projector
from tests.support.pipeline import PARTITIONS, Raw, fold_topic, mixed, until_session_gone
from tests.support.polling import look_again
from tests.support.processes import Process
from tests.support.recovering import (  # noqa: F401  # fixtures
    RUN,
    SAID,
    all_put_back,
    applied,
    command_on_pipeline,
    diagnosed,
    expire,
    frames_of,
    in_generations,
    looked,
    lose,
    machine_with_power,
    make_again,
    pipeline_with_power_cuts,
    projected,
    refused,
    until_gone,
    without_duplicates,
)

from frameledger.partition import partition_for
from frameledger.record import read
from frameledger_services.cli.terminal import output
from frameledger_services.event_log import reader
from frameledger_services.event_log.producer import Producer
from frameledger_services.recovery import comparison, recover, republish
from frameledger_services.settings import Settings
from frameledger_services.store import parked, projections, recovery
from frameledger_services.store.frame_ids import frame_uuid

FEW = ("barge-in", "failed-runs", "tool-changes")

pipeline = pipelines.own_pipeline


def test_what_a_power_cut_took_is_put_back_and_changes_nothing(machine, fragile_pipeline, run):
    key = b"plain"
    home = partition_for(key, PARTITIONS)
    projected(fragile_pipeline, [Raw(key, SAID % b"first"), *mixed("1", FEW)])
    kept = fragile_pipeline.ends()
    foreign = Raw(b"abroad", RUN, partition=(partition_for(b"abroad", PARTITIONS) + 1) % PARTITIONS)
    headed = Raw(key, SAID % b"second", (("ce_source", b"a client"),))
    projected(
        fragile_pipeline, [Raw(key, RUN), headed, foreign, *mixed("2", FEW)], [Raw(key, SAID % b"third")]
    )
    before, frames, ends = (
        dump(fragile_pipeline.address),
        frames_of(fragile_pipeline.address),
        fragile_pipeline.ends(),
    )
    with psycopg.connect(fragile_pipeline.address) as connection:
        rejected = value_of(connection, "SELECT count(*) FROM rejected_frames")

    shorter = lose(machine, fragile_pipeline, kept)
    assert shorter == kept
    assert kept != ends
    refused(fragile_pipeline)
    assert "Kafka lost records that are stored here" in diagnosed(fragile_pipeline, run)

    found, happened = looked(fragile_pipeline, run, 1)
    assert {partition for partition, what in happened.items() if what == "lost_tail"} == {
        partition for partition in ends if ends[partition] != kept[partition]
    }
    lost = sum(part["to_put_back"] for part in found["partitions"])
    assert lost > 10
    said = run(fragile_pipeline, "recover")
    assert said.exit_code == 1
    assert "publishes" in said.stdout
    done = applied(fragile_pipeline, run)
    assert (done["generation"], done["put_back"], done["left"]) == (2, lost, 0)
    assert looked(fragile_pipeline, run, 0)[0]["generation"] == 2

    again = Raw(key, RUN)  # without an id, of the same conversation, at an offset that repeats
    projected(fragile_pipeline, [])
    assert without_duplicates(dump(fragile_pipeline.address)) == without_duplicates(before)
    with psycopg.connect(fragile_pipeline.address) as connection:
        counted = value_of(connection, "SELECT sum(duplicate_count) FROM contexts")
        assert counted >= lost
        # Dead letters were not republished.
        assert value_of(connection, "SELECT count(*) FROM rejected_frames") == rejected
    (place,) = fragile_pipeline.publish([again])
    projected(fragile_pipeline, mixed("3", FEW))
    assert place[0] == home
    assert frames < frames_of(fragile_pipeline.address)
    folded = fold_topic(in_generations(fragile_pipeline))
    assert set(folded.frames) == frames_of(fragile_pipeline.address)
    with psycopg.connect(fragile_pipeline.address) as connection:
        runs = value_of(
            connection, "SELECT count(*) FROM frames WHERE context_id = 'plain' AND type = 'LLMRunFrame'"
        )
        assert runs == 2
        assert value_of(connection, "SELECT count(*) FROM rejected_frames") > rejected
        assert_dead_letters_are_found(fragile_pipeline, run)
        assert value_of(connection, "SELECT bool_and(intact) FROM contexts, verify_chain(context_id)")
        assert connection.execute("SELECT DISTINCT generation FROM frames ORDER BY 1").fetchall() == [
            (1,),
            (2,),
        ]


@pytest.mark.long
def test_records_that_were_written_since_the_power_cut_are_read_where_they_lie(
    machine, fragile_pipeline, run, monkeypatch
):
    """Services published before the operator came, so the log is longer than what is stored. The result does not depend
    on how far back the comparison starts."""
    key = b"quick"
    home = partition_for(key, PARTITIONS)
    words = [Raw(key, SAID % b"%d" % number) for number in range(6)]
    for one in words[:3]:
        projected(fragile_pipeline, [one])
    kept = fragile_pipeline.ends()
    projected(fragile_pipeline, words[3:])
    lose(machine, fragile_pipeline, kept)
    # The first one equals the lost record at that offset.
    fragile_pipeline.publish([words[3]])
    fragile_pipeline.publish([Raw(key, SAID % b"since %d" % number) for number in range(4)])
    refused(fragile_pipeline)
    found, _ = looked(fragile_pipeline, run, 1)
    (changed,) = [part for part in found["partitions"] if part["happened"] != "fine"]
    assert (changed["partition"], changed["begins_at"], changed["to_put_back"]) == (home, 3, 3)
    monkeypatch.setattr(comparison, "LOOK_BACK", 1)
    assert looked(fragile_pipeline, run, 1)[0] == found
    assert applied(fragile_pipeline, run)["put_back"] == 3
    projected(fragile_pipeline, [])
    with psycopg.connect(fragile_pipeline.address) as connection:
        spoken = [
            message["content"] for message in value_of(connection, "SELECT context_at('quick') -> 'messages'")
        ]
        assert spoken == ["0", "1", "2", "3", "4", "5", "3", *(f"since {number}" for number in range(4))]


@pytest.mark.long
def test_who_lives_through_the_power_cut_does_not_pass_over_what_was_written_since(machine, fragile_pipeline):
    """Before its next fetch, the partition is longer again than what the projector has read."""
    key = b"living"
    words = [Raw(key, SAID % b"%d" % number) for number in range(6)]
    with projector(fragile_pipeline.settings) as running:
        for one in words[:3]:
            fragile_pipeline.publish([one])
        fragile_pipeline.until_idle(running)
        kept = fragile_pipeline.ends()
        for one in words[3:]:
            fragile_pipeline.publish([one])
        fragile_pipeline.until_idle(running)
        running.send(signal.SIGSTOP)
        lose(machine, fragile_pipeline, kept)
        for number in range(8):
            fragile_pipeline.publish([Raw(key, SAID % b"since %d" % number)])
        running.send(signal.SIGCONT)
        assert running.ended() == 1
    with psycopg.connect(fragile_pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM frames WHERE context_id = 'living'") == 6


@pytest.mark.long
def test_a_log_that_loses_what_was_put_back_gets_it_back_again(machine, fragile_pipeline, run):
    key = b"twice"
    words = [Raw(key, SAID % b"%d" % number) for number in range(5)]
    for one in words[:2]:
        projected(fragile_pipeline, [one])
    kept = fragile_pipeline.ends()
    projected(fragile_pipeline, words[2:4])
    lose(machine, fragile_pipeline, kept)
    assert applied(fragile_pipeline, run) == all_put_back(generation=2, frames=2)
    projected(fragile_pipeline, words[4:])
    frames = frames_of(fragile_pipeline.address)
    lose(machine, fragile_pipeline, kept)
    assert applied(fragile_pipeline, run) == all_put_back(generation=3, frames=3)
    projected(fragile_pipeline, [])
    assert frames_of(fragile_pipeline.address) == frames
    assert set(fold_topic(in_generations(fragile_pipeline)).frames) == frames


ERASE = b'{"type":"LLMContextEraseFrame","id":"%s","why":"asked"}'


def spoken_in(address):
    """The texts of the messages of each conversation, by its id."""
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT context_id, context_at(context_id) -> 'messages' FROM contexts")
        return {name: [one["content"] for one in messages] for name, messages in found.fetchall()}


@pytest.mark.long
@pytest.mark.regression("fault 37")
def test_what_was_said_before_an_erasure_was_put_back_is_in_a_database_that_is_filled_anew(
    machine, fragile_pipeline, run
):
    """One conversation has no frames of the next life, and one has some; one was erased again since; and the erasure of
    one was published twice."""
    keys = (b"quiet", b"goes-on", b"again", b"retried")
    projected(fragile_pipeline, [Raw(key, SAID % b"of before") for key in keys])
    kept = fragile_pipeline.ends()
    projected(fragile_pipeline, [Raw(key, ERASE % b"first") for key in keys])
    projected(fragile_pipeline, [Raw(key, SAID % b"lost") for key in keys[1:]])
    lose(machine, fragile_pipeline, kept)
    fragile_pipeline.publish([Raw(key, SAID % b"since") for key in keys])
    fragile_pipeline.publish([Raw(b"again", ERASE % b"second"), Raw(b"again", SAID % b"of a third life")])
    fragile_pipeline.publish([Raw(b"retried", ERASE % b"first")])
    # The log is longer than what is stored, as after services have continued.
    applied(fragile_pipeline, run)
    projected(fragile_pipeline, [])
    live = {
        "quiet": ["since"],
        "goes-on": ["lost", "since"],
        "again": ["of a third life"],
        "retried": ["lost", "since"],
    }
    assert spoken_in(fragile_pipeline.address) == live
    anew = spoken_in(fragile_pipeline.folded_offline(fragile_pipeline.records()))
    assert {name: sorted(words) for name, words in anew.items()} == live
    looked(fragile_pipeline, run, 0)
    assert run(fragile_pipeline, "verify", "--all", "--from", "kafka").exit_code == 0


LIMIT = 100_000
"""Bytes of a batch: the limit of a topic is for batches, and a large record is a batch of its own."""


def batch_bytes(raw):
    """Returns the size of a record on the log if it is sent alone and uncompressed."""
    batch = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=0,
        batch_size=2 * LIMIT,
    )
    batch.append(0, timestamp=0, key=raw.key, value=raw.value, headers=list(raw.headers))
    return len(batch.build())


def at_the_limit(key, start, headers=()):
    """Returns a record of LIMIT bytes whose value begins with `start` and hardly compresses."""
    noise = base64.b64encode(random.Random(start).randbytes(LIMIT))

    def of(length):
        content = noise[:length]
        return Raw(key, start + b',"messages":[{"role":"user","content":"%s"}]}' % content, headers)

    length = LIMIT - (batch_bytes(of(LIMIT)) - LIMIT)
    assert batch_bytes(of(length)) == LIMIT
    return of(length)


def set_limit(one, most):
    """Set the size limit of the frames topic."""
    operator = AdminClient({"bootstrap.servers": one.settings.kafka_bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", str(most), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, one.names.frames, incremental_configs=[entry])
    for done in operator.incremental_alter_configs([topic]).values():
        done.result(timeout=ON_SERVERS)


@pytest.mark.long
def test_a_frame_as_large_as_the_topic_takes_is_put_back_with_fewer_headers_or_told(
    machine, fragile_pipeline, run
):
    key, said = b"large", b'{"type":"LLMMessagesAppendFrame"'
    ours = (
        ("ce_specversion", b"1.0"),
        ("ce_type", b"LLMMessagesAppendFrame"),
        ("ce_source", b"a client"),
        ("ce_subject", key),
    )
    trace = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
    large = [
        at_the_limit(key, said + b',"id":"own"', trace),
        at_the_limit(key, said, ours),
        at_the_limit(key, said, trace),
    ]
    # It has no header that could be left out, and its copy needs one that identifies the frame.
    hopeless = at_the_limit(key, said)
    others = [Raw(b"%d" % number, SAID % b"beside") for number in range(10)]
    projected(fragile_pipeline, [Raw(key, SAID % b"kept")])
    kept = fragile_pipeline.ends()
    set_limit(fragile_pipeline, LIMIT)
    # Sent one by one, because records that are sent together share a batch.
    bursts = [[one] for one in (*large, hopeless)]
    projected(fragile_pipeline, *bursts, [Raw(key, SAID % b"after"), *others])
    frames, rows = frames_of(fragile_pipeline.address), dump(fragile_pipeline.address)
    lose(machine, fragile_pipeline, kept)

    result = run(fragile_pipeline, "recover", "--apply", "--yes", "--json")
    assert result.exit_code == 1, result.output
    done = json.loads(result.stdout)["applied"]
    assert (done["put_back"], done["left"], done["too_large"]) == (14, 0, 1)
    (missed,) = done["not_put_back"]
    place = missed["partition"], missed["generation"], missed["offset"]
    assert (missed["context_id"], *place) == ("large", partition_for(key, PARTITIONS), 1, kept[place[0]] + 3)
    assert "kafka-configs.sh --bootstrap-server BROKER --alter" in result.stderr
    assert "max.message.bytes" in result.stderr
    projected(fragile_pipeline, [])
    assert frames_of(fragile_pipeline.address) == frames

    # Only the partition of that frame is not finished.
    found, _ = looked(fragile_pipeline, run, 1)
    assert [part["partition"] for part in found["partitions"] if part["to_put_back"]] == [missed["partition"]]
    assert "'large': frame " in run(fragile_pipeline, "recover", "--apply", "--yes").stderr
    set_limit(fragile_pipeline, LIMIT + 100)
    again = run(fragile_pipeline, "recover", "--apply", "--yes")
    assert again.exit_code == 0, again.output
    looked(fragile_pipeline, run, 0)
    projected(fragile_pipeline, [])
    assert frames_of(fragile_pipeline.address) == frames
    assert without_duplicates(dump(fragile_pipeline.address)) == without_duplicates(rows)
    assert on_the_log(fragile_pipeline) == in_the_tables(fragile_pipeline)


def on_the_log(one):
    """Each frame on the log by its id, with what the chain of its conversation is made from."""
    return {
        (read(record).context_id, frame_uuid(read(record).frame_id), read(record).source, record.value)
        for record in in_generations(one)
    }


def in_the_tables(one):
    with psycopg.connect(one.address) as connection:
        return set(
            connection.execute(
                "SELECT context_id, frame_id, source, convert_to(payload::text, 'UTF8') FROM frames"
            ).fetchall()
        )


@pytest.mark.long
def test_the_look_reads_the_table_as_often_for_many_changed_partitions_as_for_one(pipeline, run, monkeypatch):
    """Log and tables differ from the beginning of each partition on, so the second, full comparison is needed."""
    monkeypatch.setattr(comparison, "LOOK_BACK", 1)
    words = [Raw(b"%d" % number, SAID % b"%d" % (number % 3)) for number in range(40)]
    projected(pipeline, words)
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE frames SET payload = '{}'")
        connection.execute("UPDATE projections SET last_hash = 'x' WHERE partition = 0")
    of_one = scans_of_frames(pipeline)
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("UPDATE projections SET last_hash = 'x'")
    of_all = scans_of_frames(pipeline)
    # One scan near the end, one of everything, and one to count what is lost.
    assert of_one == of_all == {"scans": 3, "rows": 3 * len(words)}
    _, happened = looked(pipeline, run, 1)
    assert happened == dict.fromkeys(range(PARTITIONS), "lost_tail")


@pytest.mark.long
@pytest.mark.regression("fault 210")
def test_records_that_expire_during_the_look_do_not_end_it(pipeline, run, monkeypatch):
    """The partitions are read one after another, and the retention of the topic goes on meanwhile."""
    projected(pipeline, [Raw(b"%d" % number, SAID % b"%d" % number) for number in range(40)])
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("UPDATE projections SET last_hash = 'x'")
    read = reader.partition_records

    async def read_behind_retention(settings, topic, partition, first, end):
        await expire(pipeline, partition, end - 1)
        async with aclosing(read(settings, topic, partition, first, end)) as records:
            async for record in records:
                yield record

    monkeypatch.setattr(comparison, "partition_records", read_behind_retention)
    found, happened = looked(pipeline, run, 1)
    assert happened == dict.fromkeys(range(PARTITIONS), "lost_tail")
    assert not any(part["to_put_back"] for part in found["partitions"]), (
        "all have their last record in common"
    )


def scans_of_frames(one):
    """Returns how often an examination scans the table of frames, and how many rows it reads."""
    seen = "SELECT seq_scan, seq_tup_read, coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'frames'"
    others = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """

    async def look():
        async with await psycopg.AsyncConnection.connect(one.address, autocommit=True) as connection:
            # The reads of a session are published at the latest when it ends, which is after its client has closed it.
            async with asyncio.timeout(ON_SERVERS):
                while (await (await connection.execute(others)).fetchone())[0]:
                    await look_again()
            await connection.execute("ANALYZE frames")
            before = await (await connection.execute(seen)).fetchone()
            await recover.examine(one.settings, connection)
            await connection.execute("SELECT pg_stat_force_next_flush()")
            after = await (await connection.execute(seen)).fetchone()
            assert after[2] == before[2]
            return {"scans": after[0] - before[0], "rows": after[1] - before[1]}

    return asyncio.run(look())


def assert_dead_letters_are_found(one, run):
    """Assert that each dead letter is found by its listed position, also two at one offset."""
    listed = [json.loads(line) for line in run(one, "dlq", "list", "--json").stdout.splitlines()]
    assert {said["generation"] for said in listed} == {1, 2}
    for said in listed:
        shown = json.loads(run(one, "dlq", "show", said["where"], "--json").stdout)
        assert {name: shown[name] for name in said} == said


@pytest.mark.long
def test_records_that_expired_before_they_were_stored_are_told_and_the_rest_is_read(pipeline, run):
    key = b"late"
    home = partition_for(key, PARTITIONS)
    projected(pipeline, [Raw(key, SAID % b"stored")])
    pipeline.publish([Raw(key, SAID % b"%d" % number) for number in range(5)])
    asyncio.run(expire(pipeline, home, 3))
    refused(pipeline)
    assert "have expired" in diagnosed(pipeline, run)
    found, happened = looked(pipeline, run, 1)
    assert happened[home] == "expired"
    assert found["partitions"][home]["missing"] == 2
    said = run(pipeline, "recover", "--apply", "--yes")
    assert said.exit_code == 0, said.output
    assert "stay missing: 2." in said.stdout
    looked(pipeline, run, 0)
    projected(pipeline, [])
    with psycopg.connect(pipeline.address) as connection:
        spoken = [
            message["content"] for message in value_of(connection, "SELECT context_at('late') -> 'messages'")
        ]
        assert spoken == ["stored", "2", "3", "4"]
        assert connection.execute(
            "SELECT stored_offset, first_offset, missing FROM recoveries WHERE happened = 'expired'"
        ).fetchall() == [(1, 3, 2)]


@pytest.mark.long
def test_a_topic_that_was_made_again_is_read_from_its_beginning_beside_what_is_stored(pipeline, run):
    key = b"moved"
    projected(
        pipeline, [Raw(key, SAID % b"old"), Raw(key, b'{"type":"LLMRunFrame","id":"a"}'), *mixed("1", FEW)]
    )
    frames = frames_of(pipeline.address)
    asyncio.run(make_again(pipeline))
    until_gone(pipeline)
    pipeline.make_topics()
    pipeline.publish(
        [Raw(key, SAID % b"new"), Raw(key, b'{"type":"LLMRunFrame","id":"a"}'), Raw(key, SAID % b"newer")]
    )
    refused(pipeline)
    assert "deleted and recreated" in diagnosed(pipeline, run)
    found, _ = looked(pipeline, run, 1)
    assert found["same_topic"] is False
    assert applied(pipeline, run) == all_put_back(generation=2, frames=0)
    looked(pipeline, run, 0)
    projected(pipeline, [])
    assert frames < frames_of(pipeline.address)
    with psycopg.connect(pipeline.address) as connection:
        spoken = [
            message["content"] for message in value_of(connection, "SELECT context_at('moved') -> 'messages'")
        ]
        assert spoken == ["old", "new", "newer"]
        assert value_of(connection, "SELECT duplicate_count FROM contexts WHERE context_id = 'moved'") == 1
        assert value_of(connection, "SELECT count(*) FROM topics") == 2


@pytest.mark.long
def test_a_projector_that_runs_is_fenced_and_goes_on_in_the_new_generation(pipeline, run):
    """Another partition changed, too. The row in the outbox of the old generation is published."""
    projected(pipeline, mixed("1", FEW))
    with psycopg.connect(pipeline.address) as connection:
        connection.execute(
            'INSERT INTO outbox (topic, partition, "offset", ordinal, kind, to_topic, context_id, key, value, headers) '
            """VALUES (%s, 0, 0, 9, 'effect', %s, 'x', 'x', '{"id":"left"}', '[]')""",
            (pipeline.names.frames, pipeline.names.cancellations),
        )
        connection.execute(
            "UPDATE projections SET next_offset = next_offset + 5 WHERE partition = %s", (PARTITIONS - 1,)
        )
    looked(pipeline, run, 1)
    assert applied(pipeline, run)["generation"] == 2
    with projector(pipeline.settings) as running:
        pipeline.publish(mixed("2", FEW))
        pipeline.until_idle(running)
        with psycopg.connect(pipeline.address) as connection:
            connection.execute("UPDATE topics SET topic_id = gen_random_uuid() WHERE generation = 2")
            connection.execute("UPDATE projections SET last_hash = 'x' WHERE sealed_at IS NULL")
        assert applied(pipeline, run)["generation"] == 3
        pipeline.publish(mixed("3", FEW))
        pipeline.until_idle(running)
        assert running.stop() == 0
    folded = fold_topic(in_generations(pipeline))
    assert set(folded.frames) == frames_of(pipeline.address)
    values = [record.value for record in pipeline.records(pipeline.names.cancellations)]
    assert values.count(b'{"id":"left"}') == 1
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM projections WHERE sealed_at IS NULL") == PARTITIONS
        assert value_of(connection, "SELECT count(*) FROM lag") == PARTITIONS


@pytest.mark.long
def test_a_projector_that_is_frozen_in_a_transaction_does_not_keep_a_generation(pipeline, run):
    projected(pipeline, [Raw(b"ctx", RUN)])
    idle = next(number for number in range(PARTITIONS) if number != partition_for(b"ctx", PARTITIONS))
    plan = Plan(point="after lock", signal=signal.SIGSTOP, small=STATEMENT_PER_TABLE)
    with projector(pipeline.settings, plan) as running:
        pipeline.until_idle(running)
        running.arm()
        pipeline.publish([Raw(b"ctx", RUN)])
        running.frozen()
        with psycopg.connect(pipeline.address) as connection:
            connection.execute("UPDATE projections SET next_offset = 5 WHERE partition = %s", (idle,))
        assert applied(pipeline, run)["generation"] == 2
        running.send(signal.SIGCONT)
        pipeline.until_idle(running)
        assert running.stop() == 0
    assert set(fold_topic(in_generations(pipeline)).frames) == frames_of(pipeline.address)


@pytest.mark.regression("fault 309")
def test_one_that_stalls_in_its_transaction_stops_no_projector(pipeline, monkeypatch):
    """It has locked the rows of all partitions."""
    monkeypatch.setattr(recover, "IDLE_TIMEOUT_MS", 100)
    projected(pipeline, [Raw(b"ctx", RUN)])
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("UPDATE projections SET next_offset = 9 WHERE next_offset > 0")

    async def run():
        async with await psycopg.AsyncConnection.connect(pipeline.address, autocommit=True) as operator:

            async def stall(point: str) -> None:
                if point == "before commit":
                    until_session_gone(pipeline.address, operator.info.backend_pid)

            examined = await recover.examine(pipeline.settings, operator)
            assert examined.needs_generation
            with pytest.raises(psycopg.Error):
                await recover.begin_generation(operator, examined, stall)

    asyncio.run(run())
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM projections WHERE sealed_at IS NOT NULL") == 0


def test_another_number_of_partitions_is_not_recovered(pipeline, run):
    projected(pipeline, [Raw(b"ctx", RUN)])
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("UPDATE topics SET partitions = 7")
    result = run(pipeline, "recover", "--apply", "--yes")
    assert result.exit_code == 1
    assert "had 7 partitions" in result.stderr


def test_nothing_is_done_without_being_asked_for_or_where_nobody_can_be_asked(pipeline, run, monkeypatch):
    assert run(pipeline, "recover").exit_code == 0
    projected(pipeline, [Raw(b"ctx", RUN)])
    assert run(pipeline, "recover").exit_code == 0
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("UPDATE projections SET next_offset = 9 WHERE next_offset > 0")
    assert run(pipeline, "recover").exit_code == 1
    result = run(pipeline, "recover", "--apply")
    assert result.exit_code == 1
    assert "--yes" in result.stderr
    assert run(pipeline, "recover", "--yes").exit_code == 2
    monkeypatch.setattr(output, "can_ask", lambda: True)
    declined = run(pipeline, "recover", "--apply", answer="\n")
    assert declined.exit_code == 1
    assert "Nothing was changed." in declined.stderr
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM recoveries") == 0
    assert run(pipeline, "recover", "--apply", answer="y\n").exit_code == 0
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM recoveries") == PARTITIONS


POINTS = (
    "before sealing",
    "before commit",
    "after commit",
    "before republishing",
    "after some were republished",
    "before noting",
    "after noting",
)


@pytest.mark.long
def test_whatever_steps_it_is_killed_at_the_last_one_comes_to_the_same_end(machine, fragile_pipeline, run):
    """Each recovery is killed one step later than the one before, and continues from what that one left."""
    words = [Raw(b"%d" % number, SAID % b"kept") for number in range(3)]
    projected(fragile_pipeline, words)
    kept = fragile_pipeline.ends()
    projected(fragile_pipeline, words, [*words, *mixed("1", FEW)])
    frames, rows = frames_of(fragile_pipeline.address), dump(fragile_pipeline.address)
    lose(machine, fragile_pipeline, kept)
    for point in POINTS:
        assert looked(fragile_pipeline, run, 1)[0]["generation"] == (1 if point in POINTS[:3] else 2)
        with Process(_recover_and_die, fragile_pipeline.settings, point) as process:
            assert process.ended(point) == -signal.SIGKILL, point
    looked(fragile_pipeline, run, 0)
    projected(fragile_pipeline, [])
    assert frames_of(fragile_pipeline.address) == frames
    assert without_duplicates(dump(fragile_pipeline.address)) == without_duplicates(rows)
    folded = fold_topic(in_generations(fragile_pipeline))
    assert set(folded.frames) == frames
    # Two that were killed in the middle had republished some frames already.
    with psycopg.connect(fragile_pipeline.address) as connection:
        assert folded.repeated >= value_of(connection, "SELECT sum(put_back) FROM recoveries") + 2


def _recover_and_die(settings: Settings, at: str, _: object) -> None:
    vars(republish)["COPIES_AT_ONCE"] = 2

    async def failpoint(point: str) -> None:
        if point == at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def life() -> None:
        address = settings.database_url.get_secret_value()
        async with (
            await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
            Producer(settings) as producer,
        ):
            examined = await recover.examine(settings, connection)
            if examined.needs_generation:
                await recover.begin_generation(connection, examined, failpoint)
            publish = partial(producer.publish, examined.topic.name)
            reads = partial(reader.partition_records, settings, examined.topic.name)
            await republish.republish(connection, examined.topic.name, publish, reads, failpoint=failpoint)

    asyncio.run(life())


@pytest.mark.parametrize("meanwhile", ["taken over", "unparked"])
def test_who_waits_for_a_row_that_is_sealed_gets_that_of_the_next_generation(database, meanwhile):
    topic = "llm.frames"

    async def operate(connection, begun):
        async with connection.transaction():
            (sealed,) = await recovery.seal(connection, topic, 1, 1)
            begun.set()
            await until_somebody_waits(connection)
            await recovery.begin_topic(connection, topic, 2, 1, None)
            await recovery.begin_partitions(connection, topic, 2, [replace(sealed, next_offset=7)])

    async def run():
        async with (
            await psycopg.AsyncConnection.connect(database, autocommit=True) as operator,
            await psycopg.AsyncConnection.connect(database, autocommit=True) as other,
            asyncio.timeout(ON_SERVERS),
            asyncio.TaskGroup() as tasks,
        ):
            first = await projections.assign(other, topic, 0, "other")
            assert (first.generation, first.epoch, first.next_offset) == (1, 1, 0)
            begun = asyncio.Event()
            tasks.create_task(operate(operator, begun))
            await begun.wait()
            if meanwhile == "taken over":
                again = await projections.assign(other, topic, 0, "other")
                assert (again.generation, again.epoch, again.next_offset) == (2, 1, 7)
            else:
                await parked.fence(other, topic, 0)

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT generation, epoch FROM projections ORDER BY 1").fetchall()
        assert rows == [(1, 2), (2, 1)]


async def until_somebody_waits(connection):
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
    while not (await (await connection.execute(waiting)).fetchone())[0]:
        pass
