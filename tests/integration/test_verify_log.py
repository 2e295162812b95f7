"""Verifying against Kafka: a database that was rewritten as a whole is found, and expected differences are not
reported."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.support.batches import HISTORIES, value_of
from tests.support.killable import projector
from tests.support.pipeline import PARTITIONS, Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.recovering import expire
from tests.support.tampering import changed, rechained
from tests.support.tiers import long

from frameledger.ids import ContextId
from frameledger.partition import partition_for
from frameledger_services import failpoints
from frameledger_services.audit.log_comparison import compare_with_log
from frameledger_services.audit.restore import Restoring
from frameledger_services.audit.verify_many import connected
from frameledger_services.event_log.log_probe import open_probe

DESK = "a-day-at-the-desk"


@pytest.fixture
def filled(pipeline):
    """A pipeline on which all histories are projected."""
    publish_and_project(
        pipeline,
        [Raw(path.stem.encode(), line) for path in HISTORIES for line in path.read_bytes().splitlines()],
    )
    return pipeline


def publish_and_project(pipeline, records):
    with projector(pipeline.settings) as running:
        pipeline.publish(records)
        pipeline.until_idle(running)
        assert running.stop() == 0


def compared(pipeline, *context_ids, progress=lambda: None):
    async def run():
        async with connected(pipeline.settings) as connection, connection.transaction():
            return await compare_with_log(pipeline.settings, connection, context_ids or None, progress)

    return asyncio.run(run())


def found(pipeline, *context_ids):
    """The differences as version and field, by conversation."""
    differences = compared(pipeline, *context_ids).differences
    return {name: [(one.version, one.field) for one in each.in_order()] for name, each in differences.items()}


def test_what_was_projected_is_on_the_log(filled):
    done = compared(filled)
    with psycopg.connect(filled.address) as connection:
        stored = value_of(connection, "SELECT count(*) FROM frames")
    assert (done.differences, done.frames) == ({}, stored)
    assert compared(filled, DESK).differences == {}


@pytest.mark.parametrize(
    ("statement", "version", "field"),
    [
        ("UPDATE frames SET payload = replace(payload::text, 'a', 'b')::json WHERE {}", 7, "payload"),
        long("UPDATE frames SET trace_id = repeat('a', 32) WHERE {}", 7, "trace_id"),
        long("UPDATE frames SET causation_id = gen_random_uuid() WHERE {}", 7, "causation_id"),
        long("UPDATE frames SET source = 'somebody' WHERE {}", 7, "source"),
        long("UPDATE frames SET frame_id = gen_random_uuid() WHERE {}", 7, "frame_id"),
        long("UPDATE frames SET logged_at = logged_at + interval '1 ms' WHERE {}", 7, "logged_at"),
        long('UPDATE frames SET "offset" = "offset" + 100000 WHERE {}', 7, "row"),
        ("DELETE FROM frames WHERE {}", 7, "row"),
    ],
)
def test_a_frame_that_is_not_its_record_is_found(filled, statement, version, field):
    where = f"context_id = '{DESK}' AND version = {version}"
    changed(filled.address, statement.format(where))
    rechained(filled.address, DESK)
    for asked in ((DESK,), ()):
        assert (version, field) in found(filled, *asked)[DESK]


def test_a_truncated_tail_is_found_on_the_log(filled):
    with psycopg.connect(filled.address) as connection:
        newest = value_of(connection, "SELECT version FROM contexts WHERE context_id = %s", DESK)
    changed(filled.address, f"DELETE FROM frames WHERE context_id = '{DESK}' AND version > {newest - 3}")
    rechained(filled.address, DESK)
    assert [version for version, _ in found(filled)[DESK]] == [newest - 2] * 3


@pytest.mark.long
def test_an_added_frame_is_found_on_the_log(filled):
    changed(
        filled.address,
        'INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain, '
        "payload) SELECT context_id, version + 1, gen_random_uuid(), logged_at, \"offset\", partition, 'LLMRunFrame', "
        f"'applied', chain, '{{\"type\":\"LLMRunFrame\"}}' FROM frames WHERE context_id = '{DESK}' "
        "ORDER BY version DESC LIMIT 1",
    )
    rechained(filled.address, DESK)
    with psycopg.connect(filled.address) as connection:
        newest = value_of(connection, "SELECT version FROM contexts WHERE context_id = %s", DESK)
    assert newest in [version for version, _ in found(filled)[DESK]]


@pytest.mark.long
def test_repetitions_foreign_partitions_and_what_is_no_frame_are_no_differences(filled):
    repeated = Raw(HISTORIES[0].stem.encode(), HISTORIES[0].read_bytes().splitlines()[0])
    elsewhere = (partition_for(b"stray", PARTITIONS) + 1) % PARTITIONS
    stray = Raw(b"stray", b'{"type":"LLMRunFrame"}', partition=elsewhere)
    publish_and_project(filled, [repeated, stray, Raw(b"bad", b"no frame"), Raw(None, b"{}")])
    assert found(filled) == {}
    assert compared(filled, "stray").frames == 1


LARGE = 900_000
"""Bytes of a text. One fetch brings one such record."""


@pytest.mark.regression("fault 176")
def test_records_that_expire_while_others_are_read_are_no_differences(pipeline):
    """Partitions are read one after another. Meanwhile records expire, also in the partition that is being read."""
    ids = {partition_for(one, PARTITIONS): one for one in map(b"c%d".__mod__, range(50))}
    records = [Raw(one, say(f"{number}")) for number in range(5) for one in ids.values()]
    large = [Raw(ids[0], say("x" * LARGE)) for _ in range(8)]
    publish_and_project(pipeline, records + large)
    retention = [{0: 12, 1: 3, 2: 5}]

    def expire_some():
        for partition, before in (retention.pop() if retention else {}).items():
            with ThreadPoolExecutor() as beside:
                beside.submit(asyncio.run, expire(pipeline, partition, before)).result()

    done = compared(pipeline, progress=expire_some)
    assert (done.differences, retention) == ({}, [])
    assert done.frames == done.records
    assert done.records < len(records + large) - 3 - 5, (
        "also some of the large ones expired before they were read"
    )


@pytest.mark.long
def test_what_is_not_stored_yet_is_no_difference(filled):
    filled.publish([Raw(DESK.encode(), b'{"type":"LLMRunFrame"}')])
    assert found(filled) == {}


def say(text, **fields):
    message = {"role": "user", "content": text}
    return json.dumps({"type": "LLMMessagesAppendFrame", "messages": [message]} | fields).encode()


ERASE = json.dumps({"type": "LLMContextEraseFrame", "id": "erase", "why": "the user asked"}).encode()


@pytest.mark.regression("fault 28")
def test_frames_that_were_left_out_after_an_erasure_are_no_differences(pipeline):
    late = (
        say("late", expected_version=1),
        b'{"type":"Wink","run_id":"r1"}',
        b'{"type":"Wink","tool_call_id":"t1"}',
        b'{"type":"LLMTextFrame","text":"x","run_id":"r9"}',
    )
    publish_and_project(
        pipeline, [Raw(b"c", value) for value in (say("a"), say("b"), ERASE, *late, say("new"), *late)]
    )
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT late_count FROM erasures") == 8
    assert found(pipeline) == {}
    changed(pipeline.address, "DELETE FROM frames WHERE context_id = 'c'")
    assert found(pipeline) == {"c": [(1, "row")]}


@pytest.mark.long
@pytest.mark.regression("fault 38")
def test_an_erasure_that_was_published_twice_is_no_difference(pipeline):
    """By a publisher that retried, or by `recover`: also after the beginning of the next life."""
    publish_and_project(
        pipeline, [Raw(b"c", value) for value in (say("a"), ERASE, ERASE, say("b"), ERASE, say("d"))]
    )
    assert found(pipeline) == {}
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        assert value_of(connection, "SELECT version FROM contexts") == 4
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM frames WHERE version = 4")
    assert restored(pipeline, "c") == 1
    assert found(pipeline) == {}


@pytest.mark.long
@pytest.mark.regression("fault 28")
def test_a_copy_of_a_record_from_before_an_erasure_is_no_difference(pipeline):
    """The copy was forwarded while nobody read the conversation's partition, so it comes after the erasure there."""
    elsewhere = (partition_for(b"c", PARTITIONS) + 1) % PARTITIONS
    pipeline.publish([Raw(b"c", say("stray"), partition=elsewhere)])
    publish_and_project(pipeline, [Raw(b"c", say("a")), Raw(b"c", ERASE)])
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT late_count FROM erasures") == 1
    assert found(pipeline) == {}


@pytest.mark.long
@pytest.mark.regression("fault 28")
def test_records_of_a_conversation_that_was_erased_by_sql_are_no_differences(pipeline):
    publish_and_project(pipeline, [Raw(b"d", say("a")), Raw(b"d", say("b"))])
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute("SELECT erase('d', 'the user asked')")
    assert found(pipeline) == {}
    publish_and_project(pipeline, [Raw(b"d", say("new"))])
    assert found(pipeline) == {}
    changed(pipeline.address, "DELETE FROM frames WHERE context_id = 'd'")
    assert [field for _, field in found(pipeline)["d"]] == ["row"]


LIFE = (
    b'{"type":"LLMTextFrame","text":"x","run_id":"r9"}',
    say("b"),
    say("c"),
    b'{"type":"LLMTextFrame","text":"x","run_id":"r9"}',
    say("d", expected_version=1),
    say("d"),
    say("e"),
)


LOST = ((3,), (4,), (5,), (6,), (3, 5), (4, 5, 6), (3, 4, 5, 6))
"""Versions that are deleted together."""


@pytest.mark.regression("fault 29")
@pytest.mark.parametrize("by_sql", [False, long(True)], ids=["erased by a frame", "erased by SQL"])
def test_frames_of_a_life_after_an_erasure_are_restored_without_those_that_were_left_out(pipeline, by_sql):
    before = [Raw(b"c", say("a")), Raw(b"c", say("z"))]
    if by_sql:
        publish_and_project(pipeline, before)
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            connection.execute("SELECT erase('c', 'the user asked')")
        publish_and_project(pipeline, [Raw(b"c", value) for value in LIFE])
    else:
        publish_and_project(pipeline, [*before[:1], *(Raw(b"c", value) for value in (ERASE, *LIFE))])

    asked = "SELECT version, payload::text FROM frames ORDER BY version"
    for versions in LOST:
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            stored = connection.execute(asked).fetchall()
            assert [version for version, _ in stored] == [3, 4, 5, 6], versions
            connection.execute("SET session_replication_role = replica")
            connection.execute("DELETE FROM frames WHERE version = ANY (%s)", (list(versions),))
        assert restored(pipeline, "c") == len(versions), versions
        with psycopg.connect(pipeline.address) as connection:
            assert connection.execute(asked).fetchall() == stored, versions


def restored(pipeline, context_id, failpoint=failpoints.none):
    """Restores the missing frames of a conversation from the log. Returns their number."""

    async def run():
        async with (
            connected(pipeline.settings) as connection,
            open_probe(pipeline.settings, pipeline.names.frames) as log,
        ):
            restoring = Restoring(pipeline.settings, pipeline.names.frames, log, failpoint)
            return await restoring.restore(connection, ContextId(context_id))

    return asyncio.run(run())


@pytest.mark.regression("fault 134")
def test_a_life_is_no_older_than_its_erasure_if_the_clock_of_the_log_went_back(pipeline):
    """As after a change of the leader. The projector then stores the time of the frame before, also across an
    erasure."""
    publish_and_project(pipeline, [Raw(b"c", value) for value in (say("a"), ERASE, say("b"), say("c"))])
    changed(pipeline.address, "UPDATE erasures SET logged_at = logged_at + interval '1 day'")
    changed(pipeline.address, "UPDATE frames SET logged_at = (SELECT logged_at FROM erasures)")
    assert found(pipeline) == {}

    asked = "SELECT version, logged_at FROM frames ORDER BY version"
    for versions in ((3,), (3, 4)):
        with psycopg.connect(pipeline.address) as connection:
            stored = connection.execute(asked).fetchall()
            assert [version for version, _ in stored] == [3, 4], versions
        changed(pipeline.address, f"DELETE FROM frames WHERE version <= {versions[-1]}")
        assert restored(pipeline, "c") == len(versions), versions
        with psycopg.connect(pipeline.address) as connection:
            assert connection.execute(asked).fetchall() == stored, versions


@pytest.mark.regression("fault 40")
def test_what_is_erased_while_it_is_restored_is_not_brought_back(pipeline):
    publish_and_project(
        pipeline, [Raw(b"c", say(text)) for text in ("a", "a secret", "b", "and another", "c")]
    )
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM frames WHERE version IN (2, 4)")
    erasing = [Raw(b"c", ERASE), Raw(b"c", say("another life"))]

    async def erase(_):
        if erasing:
            publish_and_project(pipeline, erasing)
            erasing.clear()

    assert restored(pipeline, "c", erase) == 0
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute("SELECT version FROM frames ORDER BY version").fetchall() == [(7,)]


@pytest.mark.regression("fault 271")
def test_the_newest_frames_are_restored_although_another_frame_is_stored_meanwhile(pipeline):
    publish_and_project(pipeline, [Raw(b"c", say(text)) for text in "abc"])
    asked = "SELECT version, payload::text, chain FROM frames WHERE version <= 3 ORDER BY version"
    with psycopg.connect(pipeline.address) as connection:
        stored = connection.execute(asked).fetchall()
    changed(pipeline.address, "DELETE FROM frames WHERE version >= 2")
    another = [Raw(b"c", say("d"))]

    async def publish(_):
        publish_and_project(pipeline, another)
        another.clear()

    assert restored(pipeline, "c", publish) == 2
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute(asked).fetchall() == stored
    assert found(pipeline) == {}


@pytest.mark.regression("fault 332")
def test_frames_that_another_process_restores_meanwhile_are_there_once(pipeline):
    publish_and_project(pipeline, [Raw(b"c", say(text)) for text in "abcd"])
    changed(pipeline.address, "DELETE FROM frames WHERE version IN (2, 4)")

    async def another(_):
        await asyncio.to_thread(restored, pipeline, "c")

    assert restored(pipeline, "c", another) == 0
    assert found(pipeline) == {}


@pytest.mark.regression("fault 36")
def test_a_dead_letter_that_can_be_decoded_is_no_frame_of_a_gap(pipeline):
    """The database refused the record, or it killed projectors: it can be decoded, but has no version."""
    publish_and_project(pipeline, [Raw(b"c", say("a"))])
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute(
            "ALTER TABLE frames ADD CONSTRAINT tame CHECK (strpos(payload::text, 'refused') = 0) NOT VALID"
        )
    publish_and_project(pipeline, [Raw(b"d", say("x")), Raw(b"c", say("refused")), Raw(b"c", say("b"))])
    publish_and_project(pipeline, [Raw(b"c", say("e"))])
    asked = "SELECT version, payload::text FROM frames WHERE context_id = 'c' ORDER BY version"
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        letters = connection.execute("SELECT code, context_id FROM rejected_frames").fetchall()
        assert letters == [("refused", "c")]
        stored = connection.execute(asked).fetchall()
        assert [version for version, _ in stored] == [1, 2, 3]
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM frames WHERE context_id = 'c' AND version = 2")
    assert restored(pipeline, "c") == 1
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute(asked).fetchall() == stored
