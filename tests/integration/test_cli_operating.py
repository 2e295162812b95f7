"""`doctor`, `status`, `dlq retry` and `unpark` on the whole pipeline: real servers, a running projector."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys

import psycopg
import pytest
from aiokafka import AIOKafkaProducer
from pydantic import SecretStr
from tests.bounds import PROGRAM, scaled
from tests.integration.test_timekeeper_unstarted import calls
from tests.support.batches import value_of
from tests.support.commands import environment
from tests.support.projecting import make_topics, projecting, settings_of_its_own, until_projected  # noqa: F401  # a fixture
from tests.support.tiers import long

from frameledger.evolve import evolve
from frameledger.frames import (
    ErrorFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMUpdateSettingsFrame,
    UnknownFrame,
    encode_frame,
)
from frameledger.partition import partition_for
from frameledger.record import LogPosition, Outgoing, outgoing
from frameledger_services.claims import unserved
from frameledger_services.cli.doctor import checks, partitions, servers
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector import batch_fold
from frameledger_services.store import dead_letters

HI = encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Hi"}]))


@pytest.fixture
def command(settings, command):
    """Run a command with the settings of this test's pipeline, or with others."""

    def run(*words, where=settings):
        return command(where, *words)

    return run


def lines(result, exit_code=0):
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def states(result, exit_code=0):
    return {one["check"]: one["state"] for one in lines(result, exit_code)}


async def publish(settings, *values, key=b"ctx"):
    async with Producer(settings) as producer:
        return await producer.publish(
            TopicNames(settings.topic_prefix).frames, [Outgoing(key, value, ()) for value in values]
        )


def database_of(settings):
    return psycopg.connect(settings.database_url.get_secret_value(), autocommit=True)


def test_doctor_is_content_with_a_pipeline_that_works(settings, command):
    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI))
            return await asyncio.to_thread(command, "doctor", "--json")

    found = states(asyncio.run(run()))
    assert set(found) == {
        *("settings", "broker", "topics", "database", "schema", "projector", "gap", "parked", "dead letters"),
        *("outbox", "types", "times", "runs", "calls", "timekeeper", "requests", "forwarding", "disk"),
    }
    assert set(found.values()) == {"ok"}


@pytest.mark.long
def test_erase_tells_which_records_kafka_still_holds_and_for_how_long(settings, command):
    def erase(*more):
        return command("erase", "ctx", "--why", "asked", "--requested-by", "desk", "--yes", *more)

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            places = await publish(settings, HI, HI)
            await until_projected(settings, places)
            first = await asyncio.to_thread(erase)
            again = await asyncio.to_thread(erase)
            forced = await asyncio.to_thread(erase, "--force", "--json")
            return places[0], first, again, forced

    place, result, again, forced = asyncio.run(run())
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert f"{place.topic}, partition {place.partition}, between offsets {place.offset} and" in result.stdout
    assert "kept for ever" in result.stdout
    assert "does not restore the conversation" in result.stdout
    assert again.exit_code == 0
    assert "is already erased. Nothing was published" in again.stderr
    assert again.stdout == result.stdout
    receipt = json.loads(forced.stdout)
    assert (receipt["frame_count"], receipt["version"], receipt["requested_by"]) == (0, 4, "desk")
    with database_of(settings) as connection:
        kept = connection.execute(
            "SELECT version, frame_count, encode(chain, 'hex') FROM erasures ORDER BY version"
        ).fetchall()
    assert kept[0][:2] == (3, 2)
    assert kept[1] == (4, 0, receipt["chain"])


@pytest.mark.regression("fault 123")
def test_erase_says_that_kafka_restores_what_was_deleted_in_sql_until_it_is_erased_there(settings, command):
    def erase(*more):
        return command("erase", "ctx", "--why", "asked", "--yes", *more)

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI, HI))
            with database_of(settings) as connection:
                connection.execute("SELECT erase('ctx', 'asked')")
                connection.commit()
            shown = await asyncio.to_thread(erase)
            as_json = await asyncio.to_thread(erase, "--json")
            await asyncio.to_thread(erase, "--force")
            return shown, as_json, await asyncio.to_thread(erase)

    shown, as_json, published = asyncio.run(run())
    assert "A rebuild from Kafka restores the conversation" in shown.stdout
    assert "None" not in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert json.loads(as_json.stdout)["frame_id"] is None
    assert "it does not restore the conversation" in published.stdout


def test_an_erasure_without_a_projector_stays_on_the_log_and_is_honoured_later(settings, command):
    within = str(scaled(3.0))

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI))
        waited = await asyncio.to_thread(
            command, "erase", "ctx", "--why", "asked", "--yes", "--within", within
        )
        async with projecting(settings):
            # A frame of another conversation, after the erasure in the same partition.
            await until_projected(settings, await publish(settings, HI, key=b"ctx"))
        return waited

    waited = asyncio.run(run())
    assert waited.exit_code == 1
    assert "for a projector to apply it" in waited.stderr
    assert "A projector applies it as soon as one runs" in waited.stderr
    with database_of(settings) as connection:
        assert connection.execute("SELECT version, frame_count FROM erasures").fetchall() == [(2, 1)]
        assert connection.execute("SELECT version FROM contexts").fetchall() == [(3,)]


@pytest.mark.long
def test_ctrl_c_says_what_was_published_and_the_same_command_prints_the_receipt_later(settings, command):
    """Twice, and no projector runs: both erasures are on the log, and the first one deletes."""
    words = ["erase", "ctx", "--why", "asked", "--requested-by", "desk", "--yes", "--within", str(PROGRAM)]
    neighbor = next(
        one for n in range(99) if partition_for((one := f"c{n}").encode(), 4) == partition_for(b"ctx", 4)
    )

    def interrupted():
        with subprocess.Popen(
            [sys.executable, "-m", "frameledger_services", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environment(settings),
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            waits = process.stderr.readline()
            assert "for a projector to apply it" in waits, waits
            process.send_signal(signal.SIGINT)
            printed, said = process.communicate(timeout=PROGRAM)
            assert (process.returncode, printed) == (130, ""), said
            return waits[waits.index("(") : waits.index(")")], said

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI))
        told = [await asyncio.to_thread(interrupted) for _ in range(2)]
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI, key=neighbor.encode()))
        return told

    for place, said in asyncio.run(run()):
        assert "Interrupted. The erasure stays on the log" in said
        assert place in said
        assert "Traceback" not in said
    receipts = [json.loads(command(*words, "--json").stdout) for _ in range(2)]
    assert receipts[0] == receipts[1]
    assert (receipts[0]["frame_count"], receipts[0]["version"]) == (1, 2)
    with database_of(settings) as connection:
        found = connection.execute("SELECT version, frame_count FROM erasures ORDER BY version").fetchall()
    assert found == [(2, 1), (3, 0)]


@pytest.mark.long
def test_doctor_says_what_is_set_aside_forwarded_and_not_read(settings, command, monkeypatch):
    monkeypatch.setattr(partitions, "PATIENCE", 0.0)
    foreign = next(f"c{n}".encode() for n in range(99) if partition_for(f"c{n}".encode(), 4) != 0)

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI, b"no frame"))
        await publish(settings, HI)
        async with AIOKafkaProducer(bootstrap_servers=settings.kafka_bootstrap_servers) as other:
            await other.send_and_wait(TopicNames(settings.topic_prefix).frames, HI, key=foreign, partition=0)

    asyncio.run(run())
    result = command("doctor", "--json")
    found = states(result, exit_code=1)
    assert {check: state for check, state in found.items() if state != "ok"} == {
        "projector": "fail",
        "gap": "fail",
        "dead letters": "warn",
        "forwarding": "warn",
    }
    assert all(one["remedy"] for one in lines(result, exit_code=1) if one["state"] != "ok")
    page = command("doctor")
    assert "murmur2_random" in page.stdout
    assert "frameledger run projector" in " ".join(page.stdout.split())


@pytest.mark.regression("trial C6", "fault 16")
def test_doctor_warns_of_a_read_only_database_and_of_a_long_transaction(
    settings,
    command,
    monkeypatch,
):
    monkeypatch.setattr(servers, "LONG_SECONDS", 0.0)
    with psycopg.connect(settings.database_url.get_secret_value(), application_name="a report") as report:
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.execute("SELECT count(*) FROM frames")
        with database_of(settings) as connection:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only TO on")
        said = {one["check"]: one for one in lines(command("doctor", "--json"), exit_code=1)}
    assert said["read only"]["state"] == "fail"
    assert "a report" in said["old rows"]["found"]


@pytest.mark.regression("journey 134")
def test_doctor_does_not_wait_for_a_table_that_somebody_has_locked(settings, command, monkeypatch):
    monkeypatch.setattr(checks, "LOCK_TIMEOUT", "1ms")
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute("LOCK TABLE projections")
        *_, last = [
            one for one in lines(command("doctor", "--json"), exit_code=1) if one["check"] == "database"
        ]
    assert (last["state"], "AccessExclusiveLock" in last["remedy"]) == ("fail", True)


def test_doctor_warns_of_a_database_that_forgets_commits(settings, command):
    assert "commits" not in states(command("doctor", "--json"), exit_code=1)
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET synchronous_commit = off")
    assert states(command("doctor", "--json"), exit_code=1)["commits"] == "warn"


def test_doctor_says_what_nobody_takes_and_how_to_have_it_taken(settings, command, monkeypatch):
    monkeypatch.setattr(unserved, "AFTER_SECONDS", 0.0)

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            places = await publish(
                settings,
                encode_frame(LLMUpdateSettingsFrame(settings={"model": "m1"})),
                encode_frame(LLMRunFrame()),
            )
            places += await publish(settings, *map(encode_frame, calls("book", of="calling")), key=b"calling")
            await until_projected(settings, places)
            return await asyncio.to_thread(command, "doctor", "--json")

    found = {one["check"]: one for one in lines(asyncio.run(run()), exit_code=1) if one["state"] != "ok"}
    assert {check: one["state"] for check, one in found.items()} == {
        "runs": "fail",
        "calls": "fail",
        "timekeeper": "warn",
    }
    assert " for the model m1," in found["runs"]["found"]
    assert "`frameledger run inference`" in found["runs"]["remedy"]
    assert " for the function book," in found["calls"]["found"]
    assert "`frameledger run functions --module " in found["calls"]["remedy"]
    assert "the timeouts of 1 run, 1 call" in found["timekeeper"]["found"]
    assert "`frameledger run timekeeper`" in found["timekeeper"]["remedy"]


@pytest.mark.regression("journey 6")
def test_doctor_warns_of_frames_whose_type_nobody_knows(settings, command):
    topic = TopicNames(settings.topic_prefix).frames

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            others = [HI, b'{"type":"SomethingNewFrame"}', b'{"type":"LLMTxtFrame"}']
            await until_projected(settings, await publish(settings, *others))
            async with Producer(settings) as producer:
                newest = outgoing(UnknownFrame(type="LLMTxtFrame"), "other", source="my-app")
                await until_projected(settings, await producer.publish(topic, [newest]))
            return await asyncio.to_thread(command, "doctor", "--json")

    found = {one["check"]: one for one in lines(asyncio.run(run()))}["types"]
    assert found["state"] == "warn"
    assert found["found"] == (
        "3 frames of unknown types in the last 7 days, newest LLMTxtFrame from my-app. Did you mean LLMTextFrame?"
    )


@pytest.mark.long
def test_doctor_says_that_messages_have_no_time_and_its_remedy_gives_it_to_them(settings, command):
    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, HI, HI))
        with database_of(settings) as connection:
            connection.execute("UPDATE messages SET said_at = NULL")
        warned = await asyncio.to_thread(command, "doctor", "--json")
        remedy = {one["check"]: one for one in lines(warned, exit_code=1)}["times"]["remedy"]
        _, *asked = shlex.split(remedy.split("`")[1])
        # psql takes the place of the process.
        remedied = await asyncio.create_subprocess_exec(sys.executable, "-m", "frameledger_services", *asked)
        assert await asyncio.wait_for(remedied.wait(), PROGRAM) == 0
        return warned, await asyncio.to_thread(command, "doctor", "--json")

    before, after = (
        {one["check"]: one for one in lines(result, exit_code=1)}["times"] for result in asyncio.run(run())
    )
    assert (before["state"], before["found"].split(",")[0]) == ("warn", "2 messages have no time (said_at)")
    assert after["state"] == "ok"


@pytest.mark.long
@pytest.mark.regression("journey 28")
def test_doctor_counts_the_conversations_that_a_provider_refuses_as_they_are(settings, command):
    def refused(code):
        failed = ErrorFrame(message="refused: messages[1].role 'usr'", code=code)
        return [
            encode_frame(LLMRunFrame()),
            *answered(failed, LLMFullResponseEndFrame(finish_reason="error")),
        ]

    def answered(*frames):
        return [encode_frame(frame) for frame in (LLMFullResponseStartFrame(), *frames)]

    well = [encode_frame(LLMRunFrame()), *answered(LLMFullResponseEndFrame())]

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            places = []
            for name, frames in {
                "wrong-role": refused("context_refused"),
                "no-form": [*well, *refused("unmappable")],
                "put-right": [*refused("context_refused"), *well],
                "other": refused("provider_unavailable"),
            }.items():
                places += await publish(settings, *frames, key=name.encode())
            await until_projected(settings, places)
            return await asyncio.to_thread(command, "doctor", "--json")

    (found,) = [one for one in lines(asyncio.run(run())) if one["check"] == "requests"]
    assert (found["state"], found["found"].split(" get ")[0]) == ("warn", "2 conversations")
    assert all(
        f"{name}: refused: messages[1].role 'usr'" in found["found"] for name in ("wrong-role", "no-form")
    )
    assert "`frameledger show CONTEXT`" in found["remedy"]


def test_doctor_goes_on_without_a_broker_or_a_database(settings, command, monkeypatch):
    no_broker = settings.model_copy(update={"kafka_bootstrap_servers": "localhost:1"})
    found = states(command("doctor", "--json", where=no_broker), exit_code=1)
    assert (found["broker"], found["database"]) == ("fail", "ok")
    no_database = settings.model_copy(update={"database_url": SecretStr("postgresql://localhost:1/none")})
    found = states(command("doctor", "--json", where=no_database), exit_code=1)
    assert (found["broker"], found["topics"], found["database"]) == ("ok", "fail", "fail")
    monkeypatch.setenv("FRAMELEDGER_NO_SETTING", "1")
    assert states(command("doctor", "--json"), exit_code=1) == {"settings": "fail"}


def test_status_says_how_far_each_partition_was_read_and_by_whom(settings, command):
    def partitions():
        return json.loads(command("status", "--json").stdout)["partitions"]

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            places = await publish(settings, HI, HI)
            await until_projected(settings, places)
            return places[0].partition, await asyncio.to_thread(partitions)

    assert partitions() == []
    partition, found = asyncio.run(run())
    (one,) = [row for row in found if row["partition"] == partition]
    assert (one["next_offset"], one["gap"], one["is_owned"]) == (2, 0, True)
    assert not any(row["is_owned"] for row in partitions())
    assert "nobody" in command("status").stdout


def test_a_retried_dead_letter_is_folded_once_it_can_be(settings, command):
    topic = TopicNames(settings.topic_prefix).frames

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            # The second one stands for what a release refused that its successor can read.
            (bad,) = await publish(settings, b"no frame")
            await until_projected(settings, [bad])
            with database_of(settings) as connection:
                connection.execute(
                    "INSERT INTO rejected_frames "
                    "SELECT topic, partition, %s, logged_at, recorded_at, retried_at, code, error, context_id, key, "
                    "%s, headers FROM rejected_frames",
                    (999, HI),
                )
            retried = await asyncio.to_thread(command, "dlq", "retry", "--all")
            again = await asyncio.to_thread(command, "dlq", "retry", f"{bad.partition}:999")
            await until_projected(settings, [LogPosition(topic, bad.partition, 2)])
        return bad, retried, again

    bad, retried, again = asyncio.run(run())
    assert retried.exit_code == 0, retried.output
    assert [line.split()[1] for line in retried.stdout.splitlines()] == [
        f"{bad.partition}:0",
        f"{bad.partition}:999",
    ]
    assert again.exit_code == 1
    assert "--again" in again.stderr
    with database_of(settings) as connection:
        assert connection.execute("SELECT context_id, version FROM contexts").fetchall() == [("ctx", 1)]
        assert connection.execute(
            "SELECT count(*) FROM rejected_frames WHERE retried_at IS NULL"
        ).fetchone() == (1,)


@pytest.mark.regression("fault 237")
@pytest.mark.parametrize(
    "headers",
    [
        "7",
        long('[["a", {}]]'),
        long('[["a", "b", "c"]]'),
        r'[["\ud800", "b"]]',
        long("[" * 3_000 + "]" * 3_000),
    ],
    ids=lambda headers: headers[:20],
)
def test_a_dead_letter_whose_headers_nobody_can_read_is_named_and_holds_up_no_other(
    settings, command, headers
):
    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, *[b"no frame"] * 3))
            with database_of(settings) as connection:
                connection.execute(
                    'UPDATE rejected_frames SET headers = %s WHERE "offset" = 1 RETURNING partition',
                    (headers,),
                )
                partition = value_of(connection, "SELECT min(partition) FROM rejected_frames")
            listed = await asyncio.to_thread(command, "dlq", "list", "--json")
            shown = await asyncio.to_thread(command, "dlq", "show", f"{partition}:1")
            as_json = await asyncio.to_thread(command, "dlq", "show", f"{partition}:1", "--json")
            retried = await asyncio.to_thread(command, "dlq", "retry", "--all")
        return partition, listed, shown, as_json, retried

    partition, listed, shown, as_json, retried = asyncio.run(run())
    assert [one["offset"] for one in lines(listed)] == [2, 1, 0]
    assert (shown.exit_code, as_json.exit_code) == (0, 0), shown.output
    assert f"headers   unreadable: {headers[:5]}" in shown.stdout
    assert (json.loads(as_json.stdout)["headers"], json.loads(as_json.stdout)["value"]) == (None, "no frame")
    assert retried.exit_code == 1, retried.output
    assert [line.split()[1] for line in retried.stdout.splitlines()] == [f"{partition}:0", f"{partition}:2"]
    [why] = retried.stderr.splitlines()
    assert why.startswith(f"{partition}:1 was not published: its headers are not those of a record")
    with database_of(settings) as connection:
        assert value_of(connection, 'SELECT count(retried_at) FROM rejected_frames WHERE "offset" = 1') == 0


@pytest.mark.regression("fault 23")
def test_retrying_all_dead_letters_reads_a_page_of_values_at_a_time_and_each_once(
    settings, command, monkeypatch
):
    """A record that is refused again becomes a new dead letter, which the same command does not retry."""
    read, pages = dead_letters.at, []

    async def at(connection, places):
        pages.append(len(places))
        return await read(connection, places)

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            await until_projected(settings, await publish(settings, *[b"no frame"] * 5))
            with monkeypatch.context() as patched:
                patched.setattr(dead_letters, "AT_ONCE", 2)
                patched.setattr(dead_letters, "at", at)
                retried = await asyncio.to_thread(command, "dlq", "retry", "--all")
            await until_projected(settings, await publish(settings, HI))
        return retried

    retried = asyncio.run(run())
    assert retried.exit_code == 0, retried.output
    assert len(retried.stdout.splitlines()) == 5
    assert pages == [2, 2, 1]
    with database_of(settings) as connection:
        counted = connection.execute("SELECT count(*), count(retried_at) FROM rejected_frames").fetchone()
    assert counted == (10, 5)


def test_unpark_beside_a_running_projector_loses_nothing(settings, command, monkeypatch):
    broken = {"fold": True}

    def failing(state, frame, *others):
        if broken["fold"] and state.context_id == "ctx" and state.version == 1:
            raise ValueError("cannot fold")
        return evolve(state, frame, *others)

    monkeypatch.setattr(batch_fold, "evolve", failing)

    async def run():
        await make_topics(settings)
        async with projecting(settings):
            places = await publish(settings, HI, HI, encode_frame(LLMRunFrame()))
            await until_projected(settings, places)
            assert "cannot fold" in (await asyncio.to_thread(command, "parked")).stdout
            broken["fold"] = False
            result = await asyncio.to_thread(command, "unpark", "ctx", "--json")
            places = await publish(settings, HI) + await publish(settings, HI, HI, key=b"other")
            await until_projected(settings, places)
        return result

    (done,) = lines(asyncio.run(run()))
    assert (done["folded"], done["error"], done["published"], done["unsent"]) == (2, None, 1, None)
    with database_of(settings) as connection:
        assert len(value_of(connection, "SELECT context_at('ctx')")["messages"]) == 3
        assert len(value_of(connection, "SELECT context_at('other')")["messages"]) == 2
        assert connection.execute("SELECT count(*) FROM parked").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        assert connection.execute("SELECT count(DISTINCT outcome) FROM frames").fetchone() == (1,)
