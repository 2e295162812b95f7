"""The projector's batches on a real database: for every division into batches, the tables equal the fold, with each
frame once."""

import asyncio
from random import Random

import psycopg
import pytest
from tests.support.batches import (
    HISTORIES,
    PARTITIONS,
    TOPIC,
    Log,
    Projecting,
    again,
    both_writers,  # noqa: F401  # a fixture
    dump,
    folded,
    histories_interleaved,
    project,
    value_of,
)
from tests.support.tiers import first, long

from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
)
from frameledger.partition import partition_for
from frameledger_services.projector import head_rows
from frameledger_services.projector.ownership import ProjectorFencedError
from frameledger_services.store import projections


@pytest.mark.parametrize(
    ("sizes", "cache_bytes"), [((1, 7, 64, 3), 1 << 20), long((1000,), 1 << 20), long((5,), 1)], ids=str
)
def test_every_history_reads_back_at_every_version_as_it_folds(database, sizes, cache_bytes):
    project(database, histories_interleaved(), sizes=sizes, cache_bytes=cache_bytes)
    with psycopg.connect(database) as connection:
        for path in HISTORIES:
            contexts, steps = folded(path)
            for version, context in enumerate(contexts):
                stored = value_of(connection, "SELECT context_at(%s, %s)", path.stem, version)
                assert stored == context, (path.stem, version)
            outcomes = connection.execute(
                "SELECT outcome, reason FROM frames WHERE context_id = %s ORDER BY version", (path.stem,)
            ).fetchall()
            assert outcomes == [(step.outcome, step.reason) for step in steps]
            intact = connection.execute("SELECT intact FROM verify_chain(%s)", (path.stem,)).fetchone()
            assert intact == (True,)


@pytest.mark.parametrize("cuts", [((1,), (5000,)), long(((13, 2), (5000,)))], ids=["each alone", "several"])
def test_cutting_the_log_otherwise_gives_the_same_rows(make_database, migrated_template, cuts):
    tables = []
    for sizes in cuts:
        address = make_database(template=migrated_template)
        project(address, histories_interleaved(), sizes=sizes)
        tables.append(dump(address))
    assert tables[0] == tables[1]


@pytest.mark.long
@pytest.mark.parametrize("cache_bytes", [1, 1 << 20])
def test_a_stored_state_is_never_far_behind_however_much_is_being_said(database, cache_bytes):
    """What loading a head folds again: a few frames, or less text than the stored state holds."""
    log = Log()
    log.add("ctx", b'{"type":"LLMFullResponseStartFrame"}')
    for _ in range(150):
        log.add("ctx", b'{"type":"LLMTextFrame","text":"%s "}' % (b"word" * 20))
    log.add("ctx", b'{"type":"LLMFullResponseEndFrame"}')
    for number in range(40):
        log.add("ctx", b'{"type":"TranscriptionFrame","text":"%d"}' % number)
    behind = []

    async def run():
        async with Projecting(database, cache_bytes=cache_bytes) as projecting:
            for record in log.records:
                await projecting.store([record])
                behind.extend(await (await projecting.connection.execute(BEHIND)).fetchall())

    asyncio.run(run())
    assert len(behind) == len(log.records)
    assert max(frames for frames, _, stored_bytes in behind if stored_bytes <= head_rows.SMALL_TEXT) < 60
    assert all(frames < head_rows.STATE_EVERY_FRAMES or text <= 2 * size for frames, text, size in behind)
    assert all(frames < head_rows.STATE_EVERY_FRAMES for frames, _, _ in behind[-40:])
    # Not with every batch: what is said would be written again with every word.
    assert sum(frames == 0 for frames, _, _ in behind) < len(behind) / head_rows.STATE_EVERY_FRAMES + 5


@pytest.mark.regression("fault 120")
@pytest.mark.parametrize("cache_bytes", [1, 1 << 20])
@pytest.mark.parametrize("characters", [long(1_000), 30_000, long(200_000)])
def test_the_frames_that_are_loaded_with_a_head_have_few_bytes(database, cache_bytes, characters):
    """Messages with images are large, and a projector that begins loads the heads of a whole batch."""
    log = Log()
    value = b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"%s"}]}'
    for _ in range(20):
        log.add("ctx", value % (b"x" * characters))
    loaded, states = [], set()

    async def run():
        async with Projecting(database, cache_bytes=cache_bytes) as projecting:
            for record in log.records:
                await projecting.store([record])
                (head,) = await (await projecting.connection.execute(UNFOLDED)).fetchall()
                loaded.append(head[0])
                states.add(head[1])

    asyncio.run(run())
    assert max(loaded) < head_rows.UNSAVED_BYTES
    # Not with every batch, unless each is so large.
    assert len(states) == {1_000: 2, 30_000: 7, 200_000: 20}[characters]


UNFOLDED = """
    SELECT coalesce(sum(octet_length(f.payload::text)), 0)::int, c.state_version
    FROM contexts AS c LEFT JOIN frames AS f ON f.context_id = c.context_id AND f.version > c.state_version
    GROUP BY c.context_id
"""


BEHIND = """
    SELECT c.version - c.state_version, coalesce(sum(length(f.payload ->> 'text')), 0)::int, octet_length(c.state::text)
    FROM contexts AS c LEFT JOIN frames AS f ON f.context_id = c.context_id AND f.version > c.state_version
    GROUP BY c.context_id
"""


def test_every_call_of_every_history_has_the_row_that_its_changes_make(database):
    project(database, histories_interleaved(), sizes=(1, 7, 64, 3))
    columns = (
        "status, dispatched_version, interrupted_version, settled_version, resolved_version, timeout_secs, "
        "safe_to_retry, waiting_for, waiting_deadline IS NOT NULL, builtin"
    )
    told = set()
    with psycopg.connect(database) as connection:
        for path in HISTORIES:
            stored = connection.execute(
                f"SELECT requested_version, ordinal, {columns} FROM tool_calls WHERE context_id = %s",
                (path.stem,),
            ).fetchall()
            calls = calls_of(folded(path)[1])
            assert {row[:2]: row[2:] for row in stored} == calls
            told |= {
                (name, value) for call in calls.values() for name, value in zip(COLUMNS, call, strict=True)
            }
    # The comparison is not empty: every column had a value at some time.
    seen = {name for name, value in told if value not in (None, False)}
    assert seen == set(COLUMNS)
    assert {value for name, value in told if name == "status"} >= {"done", "failed", "ambiguous", "cancelled"}


COLUMNS = (
    *("status", "dispatched", "interrupted", "settled", "resolved"),
    *("timeout_secs", "safe_to_retry", "waiting_for", "deadline", "builtin"),
)


def calls_of(steps):
    """Returns what the changes of these steps say about each call, in the order of `COLUMNS`."""
    calls: dict[tuple[int, int], dict[str, object]] = {}
    for step in steps:
        version = int(step.state.version)
        for change in step.changes:
            key = getattr(change, "key", None)
            if key is None:
                continue
            call = calls.setdefault(
                (int(key.requested_version), key.ordinal),
                dict.fromkeys(COLUMNS) | {"deadline": False, "builtin": False},
            )
            match change:
                case CallAnnounced():
                    call.update(status="announced", builtin=change.builtin)
                case CallDispatched():
                    call.update(status="dispatched", dispatched=version)
                case CallStarted():
                    call.update(status="running")
                    if change.again:
                        call.update(waiting_for=None, deadline=False)
                    else:
                        call.update(timeout_secs=change.timeout_secs, safe_to_retry=change.safe_to_retry)
                case CallWaiting():
                    deadline = change.deadline is not None and change.deadline[:1].isdigit()
                    call.update(status="waiting", waiting_for=change.for_, deadline=deadline)
                case CallInterrupted():
                    call.update(interrupted=version)
                case CallSettled():
                    call.update(status=change.end, settled=version)
                case CallResolved():
                    call.update(resolved=version)
    return {key: tuple(call.values()) for key, call in calls.items()}


@pytest.mark.parametrize("name", first(1, ["owed-to-the-bot", "late-words", "end-and-reopen"]))
def test_the_head_says_after_every_frame_who_is_speaking_and_since_when(database, name):
    [path] = [path for path in HISTORIES if path.stem == name]
    log = Log()
    for line in path.read_bytes().splitlines():
        log.add(name, line)
    query = "SELECT version, turn_opened_version, turn_waits, bot_since_version FROM contexts"

    async def run():
        heads = []
        async with Projecting(database) as projecting:
            for record in log.records:
                await projecting.store([record])
                heads.append(await (await projecting.connection.execute(query)).fetchone())
        return heads

    states = [step.state for step in folded(path)[1]]
    expected = {
        (
            state.version,
            state.turn and state.turn.opened_version,
            state.turn and not state.turn.speaking,
            state.speech.bot_since,
        )
        for state in states
    }
    assert set(asyncio.run(run())) == expected
    assert len({head[1:] for head in expected}) > 2


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ('{"for":"x","deadline":"2026-03-18T14:00:00+02:00"}', ("x", "2026-03-18 12:00:00+00")),
        ('{"for":"x","deadline":"2026-03-18T14:00:00"}', ("x", None)),
        ('{"for":"a\\u0000b","deadline":"tomorrow"}', ("a\ufffdb", None)),
        ('{"for":"x","deadline":"0001-01-01T00:00:00+14:00"}', ("x", None)),
        ('{"for":"x","deadline":"9999-12-31T23:59:59-14:00"}', ("x", None)),
        ('{"for":"x","deadline":"2026-03-18T14:00:00+00:00:30"}', ("x", "2026-03-18 13:59:30+00")),
        ('{"for":"x"}', ("x", None)),
    ],
)
@pytest.mark.parametrize("later", [False, True], ids=["at once", "in a later batch"])
def test_what_a_call_waits_for_is_stored_however_its_worker_writes_it(database, written, stored, later):
    call = '{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"a","arguments":{}%s}'
    log = Log()
    if later:
        log.add("ctx", (call % "").encode())
    log.add("ctx", (call % f',"waiting":{written}').encode())
    project(database, log.records, sizes=(1,))
    with psycopg.connect(database) as connection:
        connection.execute("SET TIME ZONE UTC")
        row = connection.execute(
            "SELECT status, waiting_for, waiting_deadline::text FROM tool_calls"
        ).fetchone()
    assert row == ("waiting", *stored)


def test_the_first_text_of_an_answer_is_the_model_s_and_not_what_is_heard_meanwhile(database):
    log = Log()
    for value in (
        b'{"type":"LLMRunFrame"}',
        b'{"type":"LLMFullResponseStartFrame"}',
        b'{"type":"TranscriptionFrame","text":"Wait"}',
        b'{"type":"LLMTextFrame","text":"Yes"}',
    ):
        log.add("ctx", value)
    project(database, log.records, sizes=(1,))
    with psycopg.connect(database) as connection:
        query = "SELECT version FROM runs JOIN frames ON logged_at = first_text_at ORDER BY 1"
        assert connection.execute(query).fetchall() == [(4,)]


def test_a_frame_that_comes_again_is_counted_and_one_with_a_used_id_is_set_aside(database):
    log = Log()
    for value in (
        b'{"type":"LLMRunFrame","id":"a"}',
        b'{"type":"LLMRunFrame","id":"a"}',
        b'{"type":"LLMRunFrame","id":"a","pts":1}',
        b'{"type":"LLMRunFrame"}',
        b'{"type":"LLMRunFrame"}',
    ):
        log.add("ctx", value)
    for size in (1, 5):
        # The second projector has no head in memory, and reads all records again.
        project(database, [again(record, 10 * size) for record in log.records], sizes=(size,))
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version, duplicate_count FROM contexts").fetchall() == [(5, 3)]
        assert connection.execute("SELECT code FROM rejected_frames").fetchall() == [("id_reused",)] * 2


def test_records_of_a_foreign_partition_are_forwarded_and_what_is_no_frame_is_a_dead_letter(database):
    log = Log()
    home = partition_for(b"ctx", PARTITIONS)
    log.add("ctx", b'{"type":"LLMRunFrame"}', partition=(home + 1) % PARTITIONS)
    log.add("ctx", b"no frame")
    outbox = project(database, log.records)
    assert [(row.kind, row.to_topic, row.key) for row in outbox] == [
        ("forward", TOPIC, b"ctx"),
        ("dead_letter", "llm.frames.dlq", b"ctx"),
    ]
    *place, code, error = outbox[1].headers
    assert place == [
        ("fl_topic", TOPIC.encode()),
        ("fl_generation", b"1"),
        ("fl_partition", b"%d" % home),
        ("fl_offset", b"0"),
    ]
    assert (code, error[0]) == (("fl_code", b"not_json"), "fl_error")
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM frames").fetchone() == (0,)
        assert connection.execute("SELECT code, value FROM rejected_frames").fetchall() == [
            ("not_json", b"no frame")
        ]


@pytest.mark.usefixtures("both_writers")
def test_who_lost_one_of_its_partitions_is_fenced_and_stores_nothing_of_any(database):
    log = Log()
    for number in range(2 * PARTITIONS):
        log.add(f"ctx-{number}", b'{"type":"LLMRunFrame"}')
    lost = log.records[0].partition
    assert {record.partition for record in log.records} > {lost}

    async def run():
        async with Projecting(database, owner="first") as first:
            await projections.assign(first.connection, TOPIC, lost, "second")
            with pytest.raises(ProjectorFencedError) as fenced:
                await first.store(log.records)
            assert fenced.value.partitions == {lost}
        assert read_from_the_tables() == ([], {0})
        async with Projecting(database, owner="second") as second:
            await second.store(log.records)

    def read_from_the_tables():
        with psycopg.connect(database) as connection:
            frames = connection.execute("SELECT context_id FROM frames").fetchall()
            offsets = connection.execute("SELECT next_offset FROM projections").fetchall()
            return frames, {offset for (offset,) in offsets}

    asyncio.run(run())
    frames, offsets = read_from_the_tables()
    assert len(frames) == len(log.records)
    assert max(offsets) > 0


def test_a_conversation_that_the_database_refuses_is_parked_and_the_others_go_on(database, monkeypatch):
    log = Log()
    for number in range(6):
        log.add("bad" if number % 2 else "good", b'{"type":"LLMRunFrame","id":"%d"}' % number)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE runs ADD CONSTRAINT refused CHECK (context_id <> 'bad') NOT VALID")
        project(database, log.records, sizes=(6,))
        assert connection.execute(
            "SELECT context_id, outcome, count(*)::int FROM frames GROUP BY 1, 2 ORDER BY 1"
        ).fetchall() == [("bad", "parked", 3), ("good", "applied", 3)]
        assert value_of(connection, "SELECT since FROM parked") == 1


@pytest.mark.regression("fault 47")
def test_a_long_key_that_cannot_be_compressed_is_a_dead_letter_and_stops_nobody(database):
    """It is valid UTF-8, and longer than an index of PostgreSQL accepts."""
    log = Log()
    log.add(Random(0).randbytes(500_000).hex(), b'{"type":"LLMRunFrame"}')
    home = log.records[0].partition
    beside = next(key for key in map(str, range(100)) if partition_for(key.encode(), PARTITIONS) == home)
    log.add(beside, b'{"type":"LLMRunFrame"}')
    project(database, log.records)
    with psycopg.connect(database) as connection:
        letters = connection.execute("SELECT code, context_id, length(key) FROM rejected_frames").fetchall()
        assert letters == [("bad_key", None, 1_000_000)]
        assert value_of(connection, "SELECT count(*) FROM contexts") == 1
