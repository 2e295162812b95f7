"""SQL for users: time travel, the views and the chain, each compared with the fold or with its documentation."""

import json
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
from tests.conftest import ROOT
from tests.support import rows
from tests.support.batches import Log, project, value_of
from tests.support.tiers import every

HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.jsonl"))
COLUMNS = 120
# As long as a usual id: a UUID.
CONTEXT = "8d4f2f6e-54a7-4c39-9b5c-3a1f0e7d2b61"
HELLO = b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Hello"}]}'


def drawn(cell: object) -> str:
    """Returns a cell as psql prints it, in a time zone with whole hours."""
    if isinstance(cell, datetime):
        return cell.isoformat(" ").removesuffix(":00")
    return "" if cell is None else str(cell)


def values(history: Path) -> list[bytes]:
    return history.read_bytes().splitlines()


@pytest.mark.parametrize("history", every(8, HISTORIES), ids=lambda path: path.stem)
def test_the_context_at_every_version_is_the_fold_of_so_many_frames(transaction, history):
    expected = rows.write(transaction, history.stem, values(history))
    found = [context_at(transaction, history.stem, version) for version in range(len(expected))]
    assert found == expected
    assert context_at(transaction, history.stem, None) == expected[-1]


def test_the_contexts_of_a_real_conversation_are_the_fold(transaction, shared):
    line = (shared / "data" / "real-conversations.jsonl").read_bytes().splitlines()[1]
    frames = [json.dumps(frame).encode() for frame in json.loads(line)["frames"]]
    expected = rows.write(transaction, CONTEXT, frames)
    assert len(expected) > 100
    for version in {*range(0, len(expected), 7), len(expected) - 1}:
        assert context_at(transaction, CONTEXT, version) == expected[version]


def test_a_version_that_a_context_does_not_have_is_null(transaction):
    rows.write(transaction, CONTEXT, [b'{"type":"LLMRunFrame"}'])
    for version in (-1, 2, 2**62):
        assert context_at(transaction, CONTEXT, version) is None
    assert context_at(transaction, "nobody", 0) is None


def test_the_context_at_a_time_is_the_one_that_the_broker_had_by_then(transaction):
    history = values(named("parallel-tools"))
    expected = rows.write(transaction, CONTEXT, history)
    query = "SELECT context_at_time(%s, %s)"
    for version, context in enumerate(expected):
        for later in (timedelta(0), timedelta(seconds=0.9)):
            at = rows.BEGINNING + timedelta(seconds=version) + later
            assert transaction.execute(query, (CONTEXT, at)).fetchone() == (context,)
    long_after = rows.BEGINNING + timedelta(days=9)
    assert transaction.execute(query, (CONTEXT, long_after)).fetchone() == (expected[-1],)


def test_frames_of_one_moment_are_all_there_at_that_moment(transaction):
    expected = rows.write(transaction, CONTEXT, values(named("cough")), seconds=0)
    query = "SELECT version_at(%s, %s)"
    before = rows.BEGINNING - timedelta(milliseconds=1)
    assert transaction.execute(query, (CONTEXT, rows.BEGINNING)).fetchone() == (len(expected) - 1,)
    assert transaction.execute(query, (CONTEXT, before)).fetchone() == (0,)
    assert transaction.execute(query, ("nobody", before)).fetchone() == (None,)


@pytest.mark.parametrize("name", ["parallel-tools", "second-attempt", "history-replaced", "tool-changes"])
def test_a_difference_leads_from_one_version_to_the_other(transaction, name):
    expected = rows.write(transaction, CONTEXT, values(named(name)))
    last = len(expected) - 1
    pairs = {(0, last), (last, 0), (last // 2, last), (last // 2, last // 3), (last, last)}
    for a, b in pairs | {(version, version + 1) for version in range(last)}:
        diff = difference(transaction, CONTEXT, a, b)
        assert (diff["from"], diff["to"]) == (a, b)
        before, after = rows_at(transaction, CONTEXT, a), rows_at(transaction, CONTEXT, b)
        for entry in diff["removed"]:
            assert before.pop((entry["era"], entry["position"])) == entry["message"]
        for entry in diff["replaced"]:
            place = entry["era"], entry["position"]
            assert (before[place], after[place]) == (entry["before"], entry["after"])
            before[place] = entry["after"]
        for entry in diff["added"]:
            before[entry["era"], entry["position"]] = entry["message"]
        assert before == after
        changed = {
            name for name in ("tools", "tool_choice", "settings") if expected[a][name] != expected[b][name]
        }
        assert changed == {name for name in ("tools", "tool_choice", "settings") if name in diff["terms"]}
        for name in changed:
            assert diff["terms"][name] == {"before": expected[a][name], "after": expected[b][name]}


def test_a_difference_to_a_version_that_is_not_there_is_null(transaction):
    rows.write(transaction, CONTEXT, [b'{"type":"LLMRunFrame"}'])
    for a, b in ((0, 2), (2, 0), (-1, 1)):
        assert difference(transaction, CONTEXT, a, b) is None


@pytest.mark.regression("fault 22")
def test_a_difference_to_a_version_that_was_erased_is_null(database):
    log = Log()
    for value in (HELLO, HELLO, b'{"type":"LLMContextEraseFrame","why":"asked"}', HELLO):
        log.add(CONTEXT, value)
    project(database, log.records)
    with psycopg.connect(database) as connection:
        [(erased,)] = connection.execute("SELECT version FROM erasures").fetchall()
        for version in (1, erased - 1):
            assert context_at(connection, CONTEXT, version) is None
            assert difference(connection, CONTEXT, version, erased + 1) is None
            assert difference(connection, CONTEXT, erased + 1, version) is None
        for version in (0, erased):
            assert len(difference(connection, CONTEXT, version, erased + 1)["added"]) == 1


@pytest.mark.regression("fault 104")
def test_a_difference_has_every_term_and_none_that_is_as_it_was(database):
    log = Log()
    for value in (
        b'{"type":"LLMSetLimitsFrame","context_messages":3}',
        b'{"type":"LLMMirrorFrame","mirror":"a program","react":false}',
        b'{"type":"LLMSetToolChoiceFrame","tool_choice":"none"}',
        b'{"type":"LLMMirrorFrame","mirror":null,"react":true}',
        b'{"type":"LLMContextFrame","context":{"messages":[]}}',
    ):
        log.add(CONTEXT, value)
    project(database, log.records)
    limits = {"limits": {"before": {}, "after": {"context_messages": 3}}}
    mirrored = {
        "mirror": {"before": None, "after": "a program"},
        "recording": {"before": False, "after": True},
    }
    with psycopg.connect(database) as connection:
        outcomes = connection.execute("SELECT outcome FROM frames").fetchall()
        assert outcomes == [("applied",)] * 5
        assert difference(connection, CONTEXT, 0, 1)["terms"] == limits
        assert difference(connection, CONTEXT, 1, 2)["terms"] == mirrored
        assert difference(connection, CONTEXT, 0, 2)["terms"] == limits | mirrored
        back = {name: {"before": one["after"], "after": one["before"]} for name, one in mirrored.items()}
        assert difference(connection, CONTEXT, 2, 1)["terms"] == back
        assert difference(connection, CONTEXT, 1, 5)["terms"] == {}


@pytest.mark.regression("fault 105")
def test_no_message_of_a_version_that_was_erased_is_explained(database):
    log = Log()
    for value in (HELLO, HELLO, b'{"type":"LLMContextEraseFrame","why":"asked"}', HELLO):
        log.add(CONTEXT, value)
    project(database, log.records)
    with psycopg.connect(database) as connection:
        said = [
            connection.execute("SELECT explain_message(%s, 1, %s)", (CONTEXT, version)).fetchone()[0]
            for version in (0, 1, 2, 3, 4, 5, None)
        ]
    assert [one and (one["at_version"], one["there"]) for one in said] == [
        (0, False),
        None,
        None,
        (3, False),
        (4, True),
        None,
        (4, True),
    ]


@pytest.mark.regression("fault 162")
def test_functions_find_their_tables_whatever_the_path_of_the_session_is(transaction):
    """Another schema on it, such as that of another installation, or a temporary table."""
    rows.write(transaction, "c", [HELLO])
    transaction.execute("CREATE SCHEMA another; SET LOCAL search_path = another, pg_temp")
    for place in ("another", "pg_temp"):
        transaction.execute(f"CREATE TABLE {place}.contexts (context_id text, version bigint)")
    for found, expected in (
        ("public.version_at('c', now())", 1),
        ("json_array_length(public.context_at_time('c', now()) -> 'messages')", 1),
        ("public.explain_message('c', 1) ->> 'role'", "user"),
    ):
        assert value_of(transaction, f"SELECT {found}") == expected
    looking_up = (
        "SELECT proname FROM pg_proc JOIN pg_language ON pg_language.oid = prolang WHERE lanname = 'plpgsql'"
    )
    on_any_path = (
        f"{looking_up} AND prokind = 'f' AND pronamespace = 'public'::regnamespace AND proconfig IS NULL"
    )
    assert transaction.execute(on_any_path).fetchall() == []


def test_a_payload_is_kept_byte_for_byte_and_messages_as_they_were_written(transaction):
    value = b'{ "type":"LLMMessagesAppendFrame", "messages":[{"role":"user","content":"\\u00e9\\u0000","n":1.10}] }'
    expected = rows.write(transaction, CONTEXT, [value])
    payload = transaction.execute("SELECT payload::text FROM frames").fetchone()
    assert payload == (value.decode(),)
    assert context_at(transaction, CONTEXT, 1) == expected[1]


class TestTheChain:
    @pytest.fixture(autouse=True)
    def conversation(self, transaction):
        rows.write(transaction, CONTEXT, values(named("slow-research")))
        self.frames = transaction.execute("SELECT count(*) FROM frames").fetchone()[0]

    def verified(self, transaction, *expected):
        query = f"SELECT * FROM verify_chain({', '.join(['%s'] * (1 + len(expected)))})"
        return transaction.execute(query, (CONTEXT, *expected)).fetchone()

    def tamper(self, transaction, *statements):
        """Execute statements as a user with all privileges, past the triggers."""
        transaction.execute("SET LOCAL session_replication_role = replica")
        for statement in statements:
            transaction.execute(statement)

    def test_it_holds_for_what_was_folded(self, transaction):
        assert self.verified(transaction) == (True, self.frames, None, None)

    @pytest.mark.parametrize(
        "change",
        ["payload = (payload::text || ' ')::json", "source = NULL", "source = ''", "chain = sha256('x')"],
    )
    def test_it_finds_the_frame_that_was_changed(self, transaction, change):
        self.tamper(transaction, f"UPDATE frames SET {change} WHERE version = 6")
        assert self.verified(transaction) == (
            False,
            self.frames,
            6,
            "its value, its source or its link is not what was stored",
        )

    def test_it_finds_the_gap_where_a_frame_was_deleted(self, transaction):
        self.tamper(transaction, "DELETE FROM frames WHERE version = 6")
        assert self.verified(transaction) == (False, self.frames - 1, 7, "frames are missing before it")

    def test_it_misses_the_first_frames(self, transaction):
        self.tamper(transaction, "DELETE FROM frames WHERE version <= 2")
        assert self.verified(transaction)[2:] == (3, "frames are missing before it")

    def test_it_misses_the_last_frames_by_the_head(self, transaction):
        self.tamper(transaction, f"DELETE FROM frames WHERE version = {self.frames}")
        assert self.verified(transaction)[2:] == (self.frames - 1, "the head of the context says otherwise")

    def test_a_forged_history_does_not_stand_against_a_link_that_was_written_down(self, transaction):
        chain = transaction.execute("SELECT chain FROM frames WHERE version = 5").fetchone()[0]
        assert self.verified(transaction, 5, chain)[0]
        self.tamper(transaction, *(f"DELETE FROM {table}" for table in ("frames", "contexts", "messages")))
        self.tamper(transaction, "DELETE FROM context_settings", "DELETE FROM runs", "DELETE FROM eras")
        rows.write(transaction, CONTEXT, values(named("cough")))
        assert self.verified(transaction)[0]
        assert self.verified(transaction, 5, chain)[2:] == (
            5,
            "its link is not the one that was written down",
        )
        assert self.verified(transaction, 9999, chain)[3] == (
            "the version that was written down is not there any more"
        )

    def test_of_nothing_it_says_so(self, transaction):
        assert transaction.execute("SELECT * FROM verify_chain('nobody')").fetchone() == (
            False,
            0,
            None,
            "there are no frames of this context",
        )

    def test_it_goes_on_from_the_receipt_of_what_was_erased(self, transaction):
        transaction.execute("SELECT erase(%s, 'asked')", (CONTEXT,))
        version, chain = transaction.execute("SELECT version, chain FROM erasures").fetchone()
        value = '{"type":"LLMRunFrame"}'
        next_link = rows.link(chain, version + 1, None, value.encode())
        with transaction.cursor() as cursor:
            rows.insert(
                cursor,
                "frames",
                context_id=CONTEXT,
                version=version + 1,
                frame_id=CONTEXT,
                logged_at=rows.BEGINNING,
                offset=1,
                partition=0,
                type="LLMRunFrame",
                outcome="applied",
                chain=next_link,
                payload=value,
            )
        problem = "the head of the context says otherwise"
        assert self.verified(transaction) == (False, 1, version + 1, problem)

    @pytest.mark.regression("fault 100")
    def test_of_what_was_erased_only_the_last_link_can_stand(self, database):
        log = Log()
        for value in (HELLO, HELLO, b'{"type":"LLMContextEraseFrame","why":"asked"}', HELLO, HELLO):
            log.add(CONTEXT, value)
        project(database, log.records)
        with psycopg.connect(database) as connection:
            [(erased, last)] = connection.execute("SELECT version, chain FROM erasures").fetchall()
            link = connection.execute("SELECT chain FROM frames WHERE version = 4").fetchone()[0]
            assert self.verified(connection) == (True, 2, None, None)
            assert self.verified(connection, 4, link) == (True, 2, None, None)
            assert self.verified(connection, erased, last) == (True, 2, None, None)
            assert self.verified(connection, erased) == (True, 2, None, None)
            forged = "its link is not the one that was written down"
            assert self.verified(connection, 4, last) == (False, 2, 4, forged)
            assert self.verified(connection, erased, link) == (False, 2, 3, forged)
            for version in (1, 2):
                gone = "the version that was written down was erased"
                assert self.verified(connection, version, link) == (False, 2, 3, gone)

    @pytest.mark.regression("fault 100")
    def test_nothing_but_the_id_is_its_link_before_the_first_frame(self, transaction):
        assert self.verified(transaction, 0, sha256(CONTEXT.encode()).digest())[0]
        assert self.verified(transaction, 0, bytes(32))[2:] == (
            0,
            "its link is not the one that was written down",
        )


class TestViews:
    @pytest.fixture(autouse=True)
    def conversation(self, transaction):
        rows.write(transaction, CONTEXT, values(named("barge-in")))

    def test_a_person_can_read_each_in_a_wide_window(self, transaction):
        self.fill_what_projectors_write(transaction)
        for history in HISTORIES:
            rows.write(transaction, history.stem, values(history))
        for view in ("conversations", "transcript", "timeline", "turns", "interruptions", "parked", "lag"):
            cursor = transaction.execute(f"SELECT * FROM {view}")
            names = [column.name for column in cursor.description]
            table = [[drawn(cell) for cell in row] for row in cursor]
            assert table, view
            widths = [max(map(len, cells)) for cells in zip(names, *table, strict=True)]
            # In psql's format a cell has a space on both sides, and a line separates two cells.
            assert sum(widths) + 3 * len(widths) - 1 <= COLUMNS, view
            assert not any("\n" in cell for row in table for cell in row), view

    def fill_what_projectors_write(self, transaction):
        transaction.execute(
            "UPDATE contexts SET parked_version = 3, parked_at = now(), parked_error = repeat('bad luck\n', 99) "
            "WHERE context_id = %s",
            (CONTEXT,),
        )
        transaction.execute(
            "INSERT INTO projections (projection, topic, partition, next_offset, end_offset, last_logged_at) "
            "VALUES ('projector', 'company.llm.frames', 63, 9876543210, 9876643210, '2020-01-01')"
        )

    def test_the_transcript_is_what_the_context_holds_now(self, transaction):
        shown = transaction.execute(
            "SELECT who, said FROM transcript WHERE context_id = %s", (CONTEXT,)
        ).fetchall()
        messages = context_at(transaction, CONTEXT, None)["messages"]
        assert [who for who, _ in shown] == [message["role"] for message in messages]
        for (_, said), message in zip(shown, messages, strict=True):
            assert message["content"].startswith(said.removesuffix("…"))

    def test_the_transcript_marks_what_no_run_has_seen(self, transaction):
        rows.write(
            transaction,
            "new",
            [
                b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"one"}],"run_llm":true}',
                b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"two"}]}',
            ],
        )
        query = "SELECT said, new FROM transcript WHERE context_id = 'new'"
        assert transaction.execute(query).fetchall() == [("one", ""), ("two", "*")]

    def test_the_timeline_says_of_every_frame_what_became_of_it(self, transaction):
        rows.write(
            transaction,
            "told",
            [b'{"type":"UserStoppedSpeakingFrame"}', b'{"type":"LLMRunFrame"}', b'{"type":"Rumour"}'],
        )
        query = "SELECT version, at - %s, frame FROM timeline WHERE context_id = 'told'"
        assert transaction.execute(query, (rows.BEGINNING,)).fetchall() == [
            (1, timedelta(seconds=1), "UserStoppedSpeaking: no_open_turn"),
            (2, timedelta(seconds=2), "LLMRun"),
            (3, timedelta(seconds=3), "Rumour: unknown"),
        ]

    def test_turns_show_question_answer_and_wait(self, transaction):
        rows.write(
            transaction,
            "asked",
            [
                b'{"type":"TranscriptionFrame","text":"How late is it?","user_id":"u","timestamp":""}',
                b'{"type":"LLMFullResponseStartFrame"}',
                b'{"type":"LLMTextFrame","text":"Past noon."}',
                b'{"type":"LLMFullResponseEndFrame"}',
                b'{"type":"TranscriptionFrame","text":"Thanks.","user_id":"u","timestamp":""}',
            ],
        )
        query = "SELECT turn, user_said, answer, wait_s FROM turns WHERE context_id = 'asked'"
        assert transaction.execute(query).fetchall() == [
            (1, "How late is it?", "Past noon.", 1.0),
            (2, "Thanks.", None, None),
        ]

    def test_interruptions_show_what_was_kept(self, transaction):
        rows.write(
            transaction,
            "cut",
            [
                b'{"type":"LLMRunFrame"}',
                b'{"type":"LLMFullResponseStartFrame"}',
                b'{"type":"LLMTextFrame","text":"As I was"}',
                b'{"type":"InterruptionFrame"}',
                b'{"type":"InterruptionFrame"}',
            ],
        )
        query = "SELECT version, spoke_s, kept FROM interruptions WHERE context_id = 'cut'"
        assert transaction.execute(query).fetchall() == [(4, 2.0, "As I was"), (5, None, None)]

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ("ended = true", "ended"),
            ("recording = true", "recording"),
            ("open_run_id = 'x'", "answering"),
            ("open_run_id = NULL, open_call_count = 2", "calling"),
            ("open_run_id = NULL", "quiet"),
            ("parked_version = 2, parked_at = now(), parked_error = 'x', ended = true", "parked"),
        ],
    )
    def test_conversations_say_what_each_is_doing(self, transaction, change, status):
        transaction.execute(f"UPDATE contexts SET {change} WHERE context_id = %s", (CONTEXT,))
        query = "SELECT status FROM conversations WHERE context_id = %s"
        assert transaction.execute(query, (CONTEXT,)).fetchone() == (status,)

    def test_parked_counts_the_frames_that_wait(self, transaction):
        self.fill_what_projectors_write(transaction)
        query = (
            "SELECT since, waiting, left(error, 8) FROM parked JOIN contexts USING (context_id) "
            "WHERE waiting = version - 2"
        )
        assert [row[0::2] for row in transaction.execute(query)] == [(3, "bad luck")]

    @pytest.mark.parametrize(
        ("next_offset", "end_offset", "gap", "lag"),
        [(5, 5, 0, 0.0), (5, 9, 4, 60.0), (5, None, None, None), (5, 4, 0, 0.0)],
    )
    def test_lag_is_records_and_time_behind(self, transaction, next_offset, end_offset, gap, lag):
        transaction.execute(
            "INSERT INTO projections (projection, topic, partition, next_offset, end_offset, last_logged_at) "
            "VALUES ('p', 't', 0, %s, %s, now() - interval '60 s')",
            (next_offset, end_offset),
        )
        query = "SELECT gap, extract(epoch FROM lag)::double precision FROM lag"
        assert transaction.execute(query).fetchone() == (gap, lag)

    def test_no_view_for_eyes_reads_a_payload_a_message_or_a_state(self, transaction):
        """Facts, which are for programs, have whole messages, and of a copied conversation `facts_turns.is_copy` asks
        the payloads, by `json_text`, which takes all of them. Views that show answers read only whether a message has
        nothing but calls, which fails for no JSON."""
        used = transaction.execute(
            "SELECT view_name, table_name, column_name FROM information_schema.view_column_usage "
            "WHERE (table_name, column_name) IN (('frames', 'payload'), ('messages', 'message'), "
            "('contexts', 'state'), ('context_settings', 'value'), ('rejected_frames', 'value')) "
            "AND NOT (view_name ~ '^facts_|^turns$|^run_history$' AND (table_name, column_name) = "
            "('messages', 'message')) "
            "AND (view_name, table_name, column_name) <> ('facts_turns', 'frames', 'payload')"
        ).fetchall()
        assert used == []


@pytest.mark.parametrize(
    ("content", "width", "shown"),
    [
        ("short", 10, "short"),
        ("exactly 10", 10, "exactly 10"),
        ("more than 10", 10, "more than…"),
        ("  two\n\tlines \x1b[31m", 20, "two lines [31m"),
        (" " * 100 + "late", 10, "…"),
        ("", 10, ""),
        (None, 10, None),
    ],
)
def test_an_excerpt_is_one_line_of_at_most_so_many_characters(transaction, content, width, shown):
    assert transaction.execute("SELECT excerpt(%s, %s)", (content, width)).fetchone() == (shown,)


def named(name: str) -> Path:
    return next(path for path in HISTORIES if path.stem == name)


def context_at(connection: psycopg.Connection, context_id: str, version: int | None):
    return connection.execute("SELECT context_at(%s, %s)", (context_id, version)).fetchone()[0]


def difference(connection: psycopg.Connection, context_id: str, a: int, b: int):
    return connection.execute("SELECT context_diff(%s, %s, %s)", (context_id, a, b)).fetchone()[0]


def rows_at(connection: psycopg.Connection, context_id: str, version: int):
    query = "SELECT era, position, message FROM messages_at(%s, %s)"
    return {
        (era, position): message
        for era, position, message in connection.execute(query, (context_id, version))
    }
