"""An erasure is a record on the log, which every fold honours: what it leaves in the tables, in any cut of the log."""

import asyncio
import json
from random import Random

import psycopg
import pytest
from tests.laws.strategies import random_conversation
from tests.support import erasing
from tests.support.batches import (
    TOPIC,
    TOPICS,
    Log,
    Projecting,
    both_writers,  # noqa: F401  # a fixture
    project,
    value_of,
)
from tests.support.tiers import first, long

from frameledger import record
from frameledger.evolve import evolve
from frameledger.frames import (
    ErrorFrame,
    FunctionCallResultFrame,
    LLMContextEraseFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    UnknownFrame,
    encode_frame,
)
from frameledger.ids import ContextId
from frameledger.record import decode, place_of
from frameledger_services.audit.verify import verify
from frameledger_services.cli.repair import retry
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector import batch_fold, commits, stored_heads
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.head import Head
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.rebuild import rebuild
from frameledger_services.recovery import unpark as unparking
from frameledger_services.recovery.copies import copy
from frameledger_services.recovery.unpark import unpark
from frameledger_services.store import binary_copy, contexts, dead_letters, lost_frames
from frameledger_services.store.contexts import NoSuchVersionError
from frameledger_services.store.erasures import Beginning
from frameledger_services.store.lost_frames import LostRange

ERASE = encode_frame(LLMContextEraseFrame(id="e1", why="asked", requested_by="desk"))


def say(text, *, run_llm=False, frame_id=None):
    message = {"role": "user", "content": text}
    return encode_frame(LLMMessagesAppendFrame(id=frame_id, messages=[message], run_llm=run_llm))


def poisoned(state, frame, *others):
    """`evolve` with a bug: it raises on a frame with the text "kill"."""
    if "kill" in str(frame):
        raise ValueError("a bug")
    return evolve(state, frame, *others)


def one(address, query, *parameters):
    with psycopg.connect(address) as connection:
        return connection.execute(query, parameters).fetchone()


def count(address, table):
    return one(address, f"SELECT count(*) FROM {table}")[0]


def talks_with_erasures(seed):
    """Conversations on one log, of random frames, some of which erase; some records come twice."""
    rng, log = Random(seed), Log()
    talks = []
    for number in range(6):
        values = [encode_frame(one) for one in random_conversation(100 * seed + number, 60, erases=True)]
        named = LLMContextEraseFrame(id="erasure", why="asked")
        for _ in range(2):
            values.insert(rng.randrange(len(values) + 1), encode_frame(named))
        talks.append((f"talk-{number}", values))
    while talks:
        context_id, values = rng.choice(talks)
        for value in values[: rng.randrange(1, 6)]:
            log.add(context_id, value)
            if b'"id":' in value and rng.random() < 0.05:
                log.add(context_id, value)
            values.pop(0)
        talks = [talk for talk in talks if talk[1]]
    return log.records


def verified(address, context_id):
    async def run():
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            return await verify(connection, [context_id], again=True)

    [done] = asyncio.run(run())
    return done.differences.in_order()


@pytest.mark.usefixtures("both_writers")
@pytest.mark.parametrize("seed", [0, *map(long, range(1, 4))])
def test_the_tables_are_the_fold_of_the_whole_log_however_it_is_cut(
    database, make_database, migrated_template, seed
):
    records = talks_with_erasures(seed)
    live, again = database, make_database(template=migrated_template)
    project(live, records, sizes=(1, 7, 64, 3), cache_bytes=1)
    assert erasing.stored(live) == erasing.folded(records)
    with psycopg.connect(live) as connection:
        for (context_id,) in connection.execute("SELECT context_id FROM contexts").fetchall():
            assert value_of(connection, "SELECT intact FROM verify_chain(%s)", context_id) is True
            assert verified(live, context_id) == []
    # A database that is filled again from the log, in other batches.
    project(again, records, sizes=(500,))
    assert erasing.dump(again) == erasing.dump(live)


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_nothing_of_an_erased_conversation_is_found_in_any_column(database, seed):
    rng, log = Random(seed), Log()
    marker = "secret"
    for number in range(4):
        for frame in random_conversation(seed + number, 60):
            log.add(f"talk-{number}", encode_frame(frame).replace(b"w", b"secret"))
            if rng.random() < 0.1:
                # Dead letters of it, some of them because of their ids.
                log.add(f"talk-{number}", b'{"type":"TextFrame","text":5,"secret":1}')
                log.add(f"talk-{number}", say("secret", frame_id=f"f{rng.randrange(60)}"))
    project(database, log.records)
    with psycopg.connect(database) as connection:
        before = erasing.found_in_tables(connection, marker)
    assert {"frames.payload", "messages.message", "rejected_frames.value", "outbox.value"} <= set(before)
    begun = len(log.records)
    for number in range(4):
        log.add(f"talk-{number}", ERASE)
    project(database, log.records[begun:])
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, marker) == []
        assert count(database, "erasures") == 4


@pytest.mark.regression("fault 84")
def test_nothing_of_an_erased_conversation_is_found_in_the_planners_statistics(database):
    log = Log()
    for number in range(9):
        log.add(f"talk-{number}", say(f"secret {number}", run_llm=True))
        log.add(
            f"talk-{number}", encode_frame(ErrorFrame(code="refused", message=f"secret {number}", fatal=True))
        )
        log.add(f"talk-{number}", b'{"type":"TextFrame","text":5,"secret":%d}' % number)
    project(database, log.records)
    with psycopg.connect(database, autocommit=True) as connection:
        # As autovacuum does now and then.
        connection.execute("ANALYZE")
        assert (
            connection.execute("SELECT count(*) FROM pg_stats WHERE tablename = 'messages'").fetchone()[0] > 5
        )
    begun = len(log.records)
    for number in range(9):
        log.add(f"talk-{number}", ERASE)
    project(database, log.records[begun:])
    with psycopg.connect(database) as connection:
        assert erasing.found_in_statistics(connection, "secret") == []


@pytest.mark.usefixtures("both_writers")
def test_the_receipt_says_what_was_erased_where_it_lies_and_by_whom(database):
    log = Log()
    log.add("ctx", say("hello", run_llm=True))
    log.add("ctx", say("a secret"))
    log.add("ctx", ERASE, headers=(("ce_source", b"desk"),))
    project(database, log.records, sizes=(2, 1))
    first, last = log.records[0], log.records[-1]
    with psycopg.connect(database) as connection:
        assert connection.execute(
            'SELECT version, frame_count, why, requested_by, partition, generation, "offset", source, '
            "payload::text, places, late_count FROM erasures"
        ).fetchall() == [
            (
                3,
                2,
                "asked",
                "desk",
                last.partition,
                1,
                last.offset,
                "desk",
                ERASE.decode(),
                [
                    {
                        "partition": first.partition,
                        "generation": 1,
                        "first_offset": first.offset,
                        "last_offset": first.offset + 1,
                        "records": 2,
                    }
                ],
                0,
            )
        ]
        assert connection.execute("SELECT count(*) FROM contexts").fetchone() == (0,)
        # The requested effect is not published any more; its worker is told to stop.
        assert connection.execute("SELECT to_topic FROM outbox").fetchall() == [("llm.cancellations",)]


def test_before_and_behind_it_in_one_batch(database):
    log = Log()
    for value in (say("of before", run_llm=True), ERASE, say("of the next life", run_llm=True)):
        log.add("ctx", value)
    outbox = project(database, log.records, sizes=(3,))
    assert one(database, "SELECT version, message_count FROM contexts") == (3, 1)
    assert one(database, "SELECT version, frame_count FROM erasures") == (2, 1)
    run = one(database, "SELECT run_id, requested_version FROM runs")
    assert run[1] == 3
    effects = [json.loads(row.value) for row in outbox]
    assert [
        (row.to_topic, effect["run_id"] == run[0]) for row, effect in zip(outbox, effects, strict=True)
    ] == [
        ("llm.cancellations", False),
        ("llm.inference", True),
    ]
    assert one(database, "SELECT intact, frame_count FROM verify_chain('ctx')") == (True, 1)
    assert one(database, "SELECT context_at('ctx', 1)") == (None,)
    assert one(database, "SELECT context_at('ctx', 2), version_at('ctx', now())") == (erasing.EMPTY, 3)


@pytest.mark.usefixtures("both_writers")
@pytest.mark.parametrize("cache_bytes", [1, 1 << 20], ids=["loaded", "in memory"])
def test_an_erasure_that_is_published_twice_erases_once(database, cache_bytes):
    log = Log()
    for value in (say("a"), ERASE, ERASE, say("b"), ERASE, say("c")):
        log.add("ctx", value)
        log.add("other", say("x"))
    project(database, log.records, sizes=(2,), cache_bytes=cache_bytes)
    assert one(database, "SELECT count(*), max(version) FROM erasures") == (1, 2)
    assert one(database, "SELECT version, duplicate_count FROM contexts WHERE context_id = 'ctx'") == (4, 1)
    # An erasure with a used id and another reason is rejected; a frame of another type may have that id.
    log.add("ctx", ERASE.replace(b"asked", b"asked again"))
    log.add("ctx", say("d", frame_id="e1"))
    project(database, log.records[-2:])
    assert one(database, "SELECT code FROM rejected_frames") == ("id_reused",)
    assert one(database, "SELECT version FROM contexts WHERE context_id = 'ctx'") == (5,)


def test_of_a_conversation_that_is_not_there_a_receipt_stays_too(database):
    log = Log()
    log.add("ctx", ERASE)
    log.add("ctx", ERASE.replace(b"e1", b"e2"))
    project(database, log.records)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version, frame_count FROM erasures ORDER BY 1").fetchall() == [
            (1, 0),
            (2, 0),
        ]
        assert connection.execute("SELECT count(*) FROM contexts").fetchone() == (0,)


def test_a_parked_conversation_is_erased_and_parked_no_more(database, monkeypatch):
    log = Log()
    for value in (say("hello", run_llm=True), say("kill"), say("secret"), ERASE, say("new")):
        log.add("ctx", value)

    monkeypatch.setattr("frameledger_services.projector.batch_fold.evolve", poisoned)
    project(database, log.records[:3])
    assert one(database, "SELECT parked_version FROM contexts") == (2,)
    outbox = project(database, log.records[3:4])
    assert [row.to_topic for row in outbox] == ["llm.cancellations"]
    assert count(database, "contexts") == 0
    assert one(database, "SELECT version, frame_count FROM erasures") == (4, 3)
    project(database, log.records[4:])
    assert one(database, "SELECT version, parked_version, parked_error FROM contexts") == (5, None, None)


@pytest.mark.usefixtures("both_writers")
@pytest.mark.parametrize(
    ("has_begun", "cache_bytes"), [(False, 1 << 20), (True, 1), long(False, 1), long(True, 1 << 20)]
)
def test_late_words_of_a_worker_are_counted_and_nothing_else(database, has_begun, cache_bytes):
    log = Log()
    log.add("ctx", say("hello", run_llm=True))
    project(database, log.records)
    (run,) = one(database, "SELECT run_id FROM runs")
    log.add("ctx", ERASE)
    if has_begun:
        log.add("ctx", say("hello again", run_llm=True))
    project(database, log.records[1:], cache_bytes=cache_bytes)
    before, begun = erasing.dump(database), len(log.records)
    for frame in (
        LLMFullResponseStartFrame(run_id=run),
        LLMTextFrame(run_id=run, text="secret"),
        FunctionCallResultFrame(function_name="pay", tool_call_id="c1", result="secret", call_attempt=1),
    ):
        log.add("ctx", encode_frame(frame))
        log.add("other", say("x"))
    project(database, log.records[begun:], sizes=(2,), cache_bytes=cache_bytes)
    after = erasing.dump(database)
    assert one(database, "SELECT late_count FROM erasures") == (3,)
    assert [row for row in after["frames"] if '"ctx"' in row] == before["frames"]
    assert len(after["contexts"]) == len(before["contexts"]) + 1
    assert count(database, "rejected_frames") == 0
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, "secret") == []


def test_what_a_foreign_partition_had_before_the_erasure_begins_no_life(database):
    """Its copy comes after the erasure: from a late projector, or from a rebuild that forwards it again."""
    log = Log()
    log.add("ctx", say("of before", frame_id="f1"))
    home = log.records[0].partition
    foreign = (home + 1) % 4
    log.add("ctx", say("secret", frame_id="f2"), partition=foreign)
    log.add("ctx", ERASE)
    log.add("ctx", say("of the next life", frame_id="f3"), partition=foreign)
    outbox = project(database, log.records)
    for row in outbox:
        if row.kind == "forward":
            log.add("ctx", row.value, headers=row.headers)
    assert len(log.records) == 6
    project(database, log.records[4:])
    assert one(database, "SELECT late_count, version FROM erasures") == (1, 2)
    assert one(database, "SELECT version, message_count FROM contexts") == (3, 1)
    # Forwarded once more, as by a rebuild: the frame of the next life is a repetition then.
    for row in outbox:
        if row.kind == "forward":
            log.add("ctx", row.value, headers=row.headers)
    project(database, log.records[6:])
    assert one(database, "SELECT late_count FROM erasures") == (2,)
    assert one(database, "SELECT version, duplicate_count FROM contexts") == (3, 1)


@pytest.mark.regression("fault 46")
def test_a_dead_letter_of_before_the_erasure_that_is_retried_behind_it_begins_no_life(database):
    """`dlq retry` read it before the erasure, and waited for the broker."""
    log = Log()
    log.add("ctx", say("of before"))
    log.add("ctx", say("secret"))
    log.add("ctx", ERASE)
    first, refused, erasing_it = log.records

    async def run():
        async with Projecting(database) as projecting:
            await projecting.store([first])
            projecting.outbox += await projecting.batches.dead_letter(refused, projecting.owned, "a test")
            (letter,) = await dead_letters.at(projecting.connection, [place_of(refused)])
            await projecting.store([erasing_it])
            again = retry.outgoing(letter)
            log.add("ctx", again.value, headers=again.headers)
            await projecting.store(log.records[3:])

    asyncio.run(run())
    assert one(database, "SELECT late_count FROM erasures") == (1,)
    assert one(database, "SELECT count(*) FROM contexts") == (0,)


@pytest.mark.regression("fault 35")
def test_what_was_said_before_an_erasure_does_not_come_back_through_a_parked_life(database, monkeypatch):
    """Its copy, or a frame that names a version of before, arrives while the next life is parked."""
    log = Log()
    log.add("ctx", say("of before", frame_id="f1"))
    foreign = (log.records[0].partition + 1) % 4
    log.add("ctx", say("secret", frame_id="f2"), partition=foreign)
    log.add("ctx", say("of before too", frame_id="f3"))
    log.add("ctx", ERASE)
    log.add("ctx", say("of the next life", frame_id="f4"))
    log.add("ctx", say("kill", frame_id="f5"))

    with monkeypatch.context() as patched:
        patched.setattr(batch_fold, "evolve", poisoned)
        outbox = project(database, log.records)
        assert one(database, "SELECT parked_version FROM contexts") == (5,)
        (forwarded,) = [row for row in outbox if row.kind == "forward"]
        log.add("ctx", forwarded.value, headers=forwarded.headers)
        message = {"role": "user", "content": "secret"}
        log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=[message], expected_version=2)))
        log.add("ctx", say("the last", frame_id="f6"))
        project(database, log.records[6:])
    assert one(database, "SELECT late_count FROM erasures") == (2,)
    unparked(database)
    with psycopg.connect(database) as connection:
        # In this test the copy in the outbox is not published, so its row stays.
        assert set(erasing.found_in_tables(connection, "secret")) <= {"outbox.value"}
        spoken = value_of(connection, "SELECT context_at('ctx') -> 'messages'")
    assert [message["content"] for message in spoken] == ["of the next life", "kill", "the last"]


@pytest.mark.usefixtures("both_writers")
def test_a_new_life_may_be_refused(database):
    log = Log()
    for value in (say("hello"), ERASE, say("a secret"), ERASE.replace(b"e1", b"e2")):
        log.add("ctx", value, headers=(("note", b"a secret"),))
    log.add("other", say("fine"))

    async def run():
        async with Projecting(database) as projecting:
            projecting.batches = Batches(
                commits.Commits(projecting.connection, TOPICS, projecting.cache, refuse_erased=True)
            )
            for record in log.records:
                await projecting.store([record])
            return projecting.outbox

    outbox = asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT context_id FROM contexts").fetchall() == [("other",)]
        assert erasing.found_in_tables(connection, "a secret") == []
    assert count(database, "erasures") == 2
    # The second erasure also deletes the row of the rejected frame.
    assert count(database, "rejected_frames") == 0
    (letter,) = [row for row in outbox if row.kind == "dead_letter"]
    assert letter.value is None
    assert dict(letter.headers)["fl_code"] == b"context_erased"


def begin_a_life_behind_erase(database):
    """Store two frames, call `erase()`, and store the first frame of the next life."""
    log = Log()
    for value in (say("a"), say("b")):
        log.add("ctx", value)
    project(database, log.records)
    with psycopg.connect(database) as connection:
        connection.execute("SELECT erase('ctx', 'asked')")
    log.add("ctx", say("c"))
    project(database, log.records[2:])


def test_erased_without_a_record_it_goes_on_from_the_receipt_too(database):
    begin_a_life_behind_erase(database)
    assert one(database, "SELECT version FROM contexts") == (3,)
    assert one(database, "SELECT intact FROM verify_chain('ctx')") == (True,)


@pytest.mark.regression("fault 127")
def test_a_version_that_was_erased_has_no_context_in_the_next_life(database):
    begin_a_life_behind_erase(database)

    async def read():
        async with await psycopg.AsyncConnection.connect(database) as connection:
            with pytest.raises(NoSuchVersionError, match="it has 2 to 3"):
                await contexts.context(connection, "ctx", 1)
            return [await contexts.context(connection, "ctx", version) for version in (0, 2, 3, None)]

    assert [len(stored.context.messages) for stored in asyncio.run(read())] == [0, 0, 1, 1]


def test_a_receipt_from_before_lives_went_on_does_not_change_a_life_that_began_at_1(database):
    log = Log()
    log.add("ctx", say("a"))
    project(database, log.records)
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO erasures (context_id, version, frame_count, why, chain) "
            "VALUES ('ctx', 7, 7, 'old', sha256('ctx'))"
        )

    async def beginning():
        async with await psycopg.AsyncConnection.connect(database) as connection:
            return await stored_heads.beginning(connection, ContextId("ctx"))

    assert asyncio.run(beginning()).version == 0


def test_the_head_of_a_life_is_blank_until_its_first_frame():
    begins = Beginning("ctx", 5, bytes(32), None, None)
    head = Head.after_erasure(begins)
    assert head.is_blank
    head.version += 1
    assert not head.is_blank


def test_an_erasure_that_an_older_release_parked_is_honoured_by_unpark(
    database, make_database, migrated_template
):
    """The older release does not know the frame, and parks it with the others."""
    log = Log()
    values = (
        say("hello", run_llm=True),
        say("kill"),
        say("secret"),
        ERASE,
        say("of the next life", run_llm=True),
    )
    for value in values:
        log.add("ctx", value)
    parking(database, log.records)
    assert one(database, "SELECT version, parked_version FROM contexts") == (5, 2)
    outbox = unparked(database)
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, "secret") == []
        assert value_of(connection, "SELECT intact FROM verify_chain('ctx')") is True
    assert one(database, "SELECT version, parked_version, message_count FROM contexts") == (5, None, 1)
    # The run of the next life was requested too long ago, and is closed by a frame.
    assert [row.to_topic for row in outbox] == ["llm.cancellations", "llm.frames"]
    untouched = make_database(template=migrated_template)
    project(untouched, log.records)
    whole, mended = erasing.dump(untouched), erasing.dump(database)
    assert mended["erasures"] == whole["erasures"]
    assert mended["messages"] == whole["messages"]
    assert mended["runs"] == whole["runs"]


@pytest.mark.regression("fault 103")
@pytest.mark.parametrize("at_once", first(1, [1, 2, 3, 4]))
def test_a_page_of_parked_frames_may_end_with_an_erasure(
    database, make_database, migrated_template, monkeypatch, at_once
):
    """It may be followed by another erasure, and by the next life."""
    monkeypatch.setattr(unparking, "FRAMES_AT_ONCE", at_once)
    log = Log()
    values = (say("hello", run_llm=True), say("kill"), say("secret"), ERASE, ERASE.replace(b"e1", b"e2"))
    for value in (*values, say("of the next life"), say("and another")):
        log.add("ctx", value)
    parking(database, log.records)
    unparked(database)
    untouched = make_database(template=migrated_template)
    project(untouched, log.records)
    mended = erasing.dump(database)
    for table, rows in erasing.dump(untouched).items():
        if table not in ("contexts", "frames"):
            assert mended[table] == rows, table
    assert one(database, "SELECT version, parked_version, message_count FROM contexts") == (7, None, 2)
    assert one(database, "SELECT array_agg(outcome ORDER BY version) FROM frames") == (["applied"] * 2,)
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, "secret") == []
    assert verified(database, "ctx") == []


def test_an_erasure_that_was_parked_last_leaves_nothing_to_unpark(database):
    log = Log()
    for value in (say("hello"), say("kill"), ERASE):
        log.add("ctx", value)
    parking(database, log.records)
    unparked(database)
    assert count(database, "contexts") == 0
    assert one(database, "SELECT version, frame_count FROM erasures") == (3, 2)


def parking(database, records):
    """Store records like a release that does not know the erasure: the conversation is parked before it, and stays
    parked."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_fold, "evolve", poisoned)
        patched.setattr(batch_fold, "LLMContextEraseFrame", type("NotKnownYet", (), {}))
        project(database, records)


def unparked(database):
    sent = []

    async def send(rows):
        sent.extend(rows)

    async def run():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            binary_copy.prepare(connection)
            return await unpark(connection, TopicNames("llm."), ContextId("ctx"), "mended", send)

    assert asyncio.run(run()).error is None
    return sent


@pytest.mark.parametrize("goes_on", [False, True], ids=["and nothing else", "and a next life"])
def test_an_erasure_that_an_older_release_did_not_know_is_honoured_by_rebuild(
    database, make_database, migrated_template, monkeypatch, goes_on
):
    log = Log()
    values = [say("a secret", run_llm=True), ERASE, *([say("of the next life")] if goes_on else [])]
    for value in values:
        log.add("ctx", value)

    def older(value):
        frame = decode(value)
        known = not isinstance(frame, LLMContextEraseFrame)
        return frame if known else UnknownFrame(type=frame.type, id=frame.id)

    with monkeypatch.context() as patched:
        patched.setattr(record, "decode", older)
        project(database, log.records)
    assert one(database, "SELECT outcome FROM frames WHERE version = 2") == ("unknown",)

    async def run():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            binary_copy.prepare(connection)
            topics = effect_topics(TopicNames("llm."))
            return await rebuild(connection, TOPIC, topics, ContextId("ctx"), "upgraded")

    done = asyncio.run(run())
    assert done is not None
    assert [work.version for work in done.over] == [1]
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, "a secret") == []
    untouched = make_database(template=migrated_template)
    project(untouched, log.records)
    whole, mended = erasing.dump(untouched), erasing.dump(database)
    for rows in (whole, mended):
        rows["contexts"] = [row.replace('"rebuilt": 1', '"rebuilt": 0') for row in rows["contexts"]]
    assert mended == whole
    # The projector goes on.
    log.add("ctx", say("later"))
    project(database, log.records[-1:])
    assert one(database, "SELECT version FROM contexts") == (len(values) + 1,)


def test_a_log_that_lost_its_tail_gets_the_erasure_back_and_nothing_of_what_was_erased(database):
    log = Log()
    for value in (say("a secret"), ERASE, say("of the next life")):
        log.add("ctx", value)
    project(database, log.records)
    gap = LostRange(log.records[0].partition, 1, 0)

    async def run():
        async with await psycopg.AsyncConnection.connect(database) as connection:
            counted = await lost_frames.count_lost(connection, [gap])
            return counted, [lost async for lost in lost_frames.lost_frames(connection, [gap])]

    counted, lost = asyncio.run(run())
    assert counted == {gap.partition: 2}
    assert [(one.offset, one.payload) for one in lost] == [
        (log.records[1].offset, ERASE),
        (log.records[2].offset, log.records[2].value),
    ]
    # The copy is a repetition, and the tables stay as they are.
    sent = copy(TOPIC, lost[0])
    assert sent is not None
    log.add("ctx", sent.value, headers=sent.headers)
    before = erasing.dump(database)["erasures"]
    project(database, log.records[-1:])
    assert erasing.dump(database)["erasures"] == before
    assert one(database, "SELECT version FROM contexts") == (3,)


@pytest.mark.regression("fault 49")
def test_a_frame_that_recover_puts_back_behind_an_erasure_begins_no_life(
    database, make_database, migrated_template
):
    """A client erased the conversation while lost frames were republished."""
    log = Log()
    for text in ("of before", "a secret"):
        log.add("ctx", say(text))
    kept, lost = log.records
    project(database, log.records)

    async def read():
        async with await psycopg.AsyncConnection.connect(database) as connection:
            gap = LostRange(lost.partition, 1, lost.offset)
            return [frame async for frame in lost_frames.lost_frames(connection, [gap])]

    (frame,) = asyncio.run(read())
    log.add("ctx", ERASE)
    sent = copy(TOPIC, frame)
    assert sent is not None
    log.add("ctx", sent.value, headers=sent.headers)
    behind = log.records[2:]
    filled_anew = make_database(template=migrated_template)
    for address, records in ((database, behind), (filled_anew, [kept, *behind])):
        project(address, records)
        assert one(address, "SELECT late_count FROM erasures") == (1,)
        assert one(address, "SELECT count(*) FROM contexts") == (0,)
