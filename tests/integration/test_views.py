"""The views of runs, calls and workers show what the projector stored."""

import asyncio
import json
import re
from collections.abc import Iterator

import psycopg
import pytest
from tests.integration.test_queries import drawn
from tests.support import rows
from tests.support.batches import Log, Projecting, histories_interleaved, project
from tests.support.databases import made

from frameledger import derived
from frameledger.ids import ContextId, Version

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
COLUMNS = 120
TEXTS = ("text", "character varying")
# As long as a usual id: a UUID.
LONG_ID = "8d4f2f6e-54a7-4c39-9b5c-3a1f0e7d2b61"
VIEWS = (
    *("run_history", "token_usage", "latency", "tool_call_history"),
    *("waiting", "ambiguous_calls", "services", "tools_on_offer"),
)
PAY = {
    "name": "pay",
    "schema": {"description": "Pays a bill. NUL: \x00, half of a character: \ud83d"},
    "options": {
        "cancel_on_interruption": False,
        "timeout_secs": 30,
        "cancellable_by_llm": True,
        "safe_to_retry": False,
    },
}
LOOK = {"name": "look", "schema": {}, "options": {"cancel_on_interruption": True, "safe_to_retry": True}}


@pytest.fixture(scope="module")
def folded_address(database_server, migrated_template) -> Iterator[str]:
    """A database with all histories, and one more conversation with a long id."""
    log = Log()
    log.records.extend(histories_interleaved())
    log.records.sort(key=lambda record: (record.partition, record.offset))

    async def fill(address):
        async with Projecting(address) as projecting:
            await projecting.store(log.records)

    with made(database_server, template=migrated_template) as (_, address):
        asyncio.run(fill(address))
        with psycopg.connect(address) as connection:
            connection.execute("SET session_replication_role = replica")
            for table in ("contexts", "frames", "messages", "runs", "tool_calls"):
                connection.execute(
                    f"UPDATE {table} SET context_id = %s WHERE context_id = 'a-day-at-the-desk'", (LONG_ID,)
                )
        yield address


@pytest.fixture
def folded(folded_address) -> Iterator[psycopg.Connection]:
    """A connection to that database, in a transaction that is rolled back."""
    with psycopg.connect(folded_address) as connection, connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL TIME ZONE UTC")
        yield connection


def work(connection, worker_id, offers, *, kind="functions", service="tools", ago="0 s", **fields) -> None:
    """Insert a worker that offers these functions. `offers` may also be the whole of what it says of itself."""
    serves = [one["name"] for one in offers] if isinstance(offers, list) else []
    said = {"functions": offers} if isinstance(offers, list) else offers
    with connection.cursor() as cursor:
        rows.insert(
            cursor,
            "workers",
            worker_id=worker_id,
            service=service,
            kind=kind,
            host="here",
            pid=1,
            lease_secs=5,
            slots=4,
            **{"serves": serves, "offers": json.dumps(said)} | fields,
        )
        cursor.execute(
            "UPDATE workers SET heartbeat_at = clock_timestamp() - %s::interval WHERE worker_id = %s",
            (ago, worker_id),
        )


def claim(connection, effect_id, worker_id, **fields) -> None:
    with connection.cursor() as cursor:
        rows.insert(
            cursor,
            "claims",
            effect_id=effect_id,
            version=1,
            kind="run",
            run_id="r",
            context_id="c",
            service="tools",
            worker_id=worker_id,
            **fields,
        )


@pytest.mark.regression("worker 55")
def test_the_most_tokens_that_answers_can_name_make_no_view_fail(database):
    log, most = Log(), 2**63 - 1
    usage = dict.fromkeys(TOKENS, most)
    for context_id in ("a", "b"):
        for frame in (
            {"type": "LLMFullResponseStartFrame", "provider": "p", "model": "m"},
            {"type": "LLMFullResponseEndFrame", "finish_reason": "stop", "usage": usage},
        ) * 2:
            log.add(context_id, json.dumps(frame).encode())
    project(database, log.records)
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO prices (model, input, output, currency) VALUES ('m', 2, 10, 'EUR')")
        views = {view for view, _, _ in connection.execute(OF_VIEWS).fetchall()}
        for view in sorted(views):
            connection.execute(f"SELECT * FROM {view}").fetchall()
        cursor = connection.execute("SELECT sum(input_tokens), sum(output_tokens) FROM facts_conversations")
        [[read, written]] = cursor.fetchall()
    assert min(read, written) >= 10**12


OF_VIEWS = """
    SELECT relname::text, attname::text, format_type(atttypid, NULL)
    FROM pg_class INNER JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace AND attnum > 0 AND relname NOT LIKE '%\\_page'
"""
TIME = r"^([0-9]{4}-)?[0-9]{2}-[0-9]{2}( |T|$)|^[0-9]{2}:[0-9]{2}(:|$)"
"""A text that is a date or a time of day."""


def test_in_every_view_times_are_times_numbers_are_numbers_and_ids_are_whole(folded):
    """A view that formats values for a reader would have a name that ends in `_page`. There is none."""
    work(folded, "worker-1", [PAY, LOOK])
    folded.execute(
        "UPDATE contexts SET parked_version = 1, parked_at = now(), parked_error = 'x' WHERE context_id = 'barge-in'"
    )
    columns = folded.execute(OF_VIEWS).fetchall()
    assert len({view for view, _, _ in columns}) >= 22
    wrong = [
        (view, name, kind)
        for view, name, kind in columns
        if (
            re.search("(^|_)(at|since|until|frame)$", name)
            and kind in TEXTS
            and (view, name) != ("timeline", "frame")
        )
        or (re.search("(_s|_version|_tokens|_count|^version|^cost|^queued|^ran)$", name) and kind in TEXTS)
    ]
    for view, name, kind in columns:
        if kind in TEXTS:
            shown = f'SELECT bool_and("{name}" ~ %s) FROM {view} WHERE "{name}" <> \'\''
            # One text may consist of digits. If all of a column do, it is a number that was formatted as text.
            if folded.execute(shown, (f"{TIME}|^-?[0-9]+([.][0-9]+)?$",)).fetchone() == (True,):
                wrong.append((view, name, "printed"))
    for view in {view for view, _, _ in columns}:
        [definition] = folded.execute("SELECT pg_get_viewdef(%s::regclass)", (view,)).fetchone()
        cut = re.findall(
            r"(?:excerpt|left|substr|short_id|to_char|seconds)\(\(?[a-z_.]*(?:_id|_at)\b.*", definition
        )
        wrong += [(view, one, "cut") for one in cut]
    assert wrong == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_person_can_read_it_in_a_wide_window(folded, view):
    """Ids and names have their usual lengths here. They are shown whole, so that they can be copied."""
    work(folded, "w" * 50, [PAY | {"name": "get_the_weather_tomorrow"}, LOOK])
    folded.execute(
        "UPDATE tool_calls SET waiting_for = repeat('somebody', 9), tool_call_id = 'call_' || repeat('c', 24)"
    )
    folded.execute(
        "UPDATE tool_calls SET context_id = %s WHERE status IN ('waiting', 'ambiguous')", (LONG_ID,)
    )
    cursor = folded.execute(f"SELECT * FROM {view}")
    names = [column.name for column in cursor.description]
    table = [[drawn(cell) for cell in row] for row in cursor]
    assert table
    widths = [max(map(len, cells)) for cells in zip(names, *table, strict=True)]
    # In psql's format a cell has a space on both sides, and a line separates two cells.
    assert sum(widths) + 3 * len(widths) - 1 <= COLUMNS
    assert not any("\n" in cell for row in table for cell in row)


def test_the_history_of_runs_says_what_each_said_whatever_was_heard_of_it(folded):
    runs = folded.execute(
        "SELECT version, became, try, model FROM run_history WHERE context_id = 'second-attempt'"
    ).fetchall()
    assert {row[2] for row in runs} >= {1, 2}
    said = dict(
        folded.execute("SELECT version, said FROM run_history WHERE context_id = 'barge-in'").fetchall()
    )
    kept = folded.execute(
        "SELECT text FROM messages WHERE context_id = 'barge-in' AND valid_from = 12"
    ).fetchone()
    whole = folded.execute(
        "SELECT said FROM runs WHERE context_id = 'barge-in' AND closed_version = 12"
    ).fetchone()
    assert kept is not None
    assert whole is not None
    assert whole[0].startswith(kept[0])
    assert len(whole[0]) > len(kept[0])
    assert whole[0].startswith(said[5].removesuffix("…"))


def test_an_answer_that_was_corrected_after_its_end_is_shown_as_it_was_said(transaction):
    """A correction leaves two rows, and the first one is what was said."""
    with transaction.cursor() as cursor:
        rows.insert(
            cursor,
            "runs",
            context_id="c",
            run_id="r",
            requested_version=1,
            started_version=2,
            closed_version=5,
            requested_at=rows.BEGINNING,
            trigger="x",
            status="ended",
        )
        for position, since, until, text in (
            (1, 2, 3, "of attempt 1"),
            (2, 4, 9, "one two"),
            (2, 9, 10, "one"),
            (3, 5, 99, "three"),
        ):
            rows.insert(
                cursor,
                "messages",
                context_id="c",
                era=1,
                position=position,
                valid_from=since,
                valid_to=until,
                role="assistant",
                text=text,
                run_id="r",
                message="{}",
            )
        cursor.execute("UPDATE runs SET started_version = 3")
        said = cursor.execute("SELECT said FROM run_history").fetchone()
    assert said == ("one two three",)


@pytest.mark.regression("fault 246")
def test_the_history_of_runs_shows_what_programs_read_also_of_answers_that_belong_to_no_run(folded):
    """No answer names a run in a recording, nor where a program calls its model itself."""
    said = folded.execute(
        "SELECT version, said FROM run_history WHERE context_id = 'answered-elsewhere' ORDER BY version"
    ).fetchall()
    assert said[2:] == [
        (7, "A bike needs a…"),
        (14, "The one by the…"),
        (20, "It is booked."),
        (24, "Have a good tr…"),
    ]
    others = folded.execute(
        """
        SELECT context_id, version, said, generated
        FROM run_history INNER JOIN facts_runs USING (context_id)
        WHERE version = requested_version
            AND nullif(said, '') IS DISTINCT FROM excerpt(coalesce(generated, error), 15)
        """
    ).fetchall()
    assert others == []


@pytest.mark.regression("fault 247")
def test_an_answer_is_what_the_assistant_said_without_its_calls(folded):
    answers = folded.execute("SELECT answer FROM turns WHERE context_id = 'parallel-tools'").fetchall()
    assert answers == [("Let me check the ro…",), ("Nobody at the lift …",)]
    unanswered = (
        "SELECT answer FROM turns WHERE context_id = 'failed-runs' AND user_said = 'Try another one.'"
    )
    assert folded.execute(unanswered).fetchall() == [(None,)]


def test_a_run_that_said_nothing_shows_its_error(folded):
    errors = folded.execute(
        "SELECT became, said FROM run_history WHERE context_id = 'failed-runs' AND became = 'failed'"
    ).fetchall()
    assert errors
    assert any(said for _, said in errors)


def test_tokens_are_summed_by_conversation_and_model(folded):
    shown = folded.execute("SELECT * FROM token_usage WHERE context_id = 'parallel-tools'").fetchall()
    counted = folded.execute(
        "SELECT sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), "
        "sum(reasoning_tokens) FROM runs WHERE context_id = 'parallel-tools'"
    ).fetchone()
    assert shown == [("parallel-tools", "meadow-2", *counted)]
    assert shown[0][2] > 0


def test_latency_counts_from_where_the_user_stopped(database):
    log = Log()
    for value in (
        '{"type":"UserStartedSpeakingFrame"}',
        '{"type":"InterimTranscriptionFrame","text":"how"}',
        '{"type":"UserStoppedSpeakingFrame"}',
        '{"type":"TranscriptionFrame","text":"How late is it?"}',
        '{"type":"LLMFullResponseStartFrame"}',
        '{"type":"LLMTextFrame","text":"Past noon."}',
        '{"type":"LLMFullResponseEndFrame"}',
        # A turn that the stop itself closes, one that consists of words alone, and a run that no user asked for.
        '{"type":"UserStartedSpeakingFrame"}',
        '{"type":"TranscriptionFrame","text":"Thanks."}',
        '{"type":"UserStoppedSpeakingFrame"}',
        '{"type":"LLMFullResponseStartFrame"}',
        '{"type":"LLMFullResponseEndFrame"}',
        '{"type":"TranscriptionFrame","text":"Bye."}',
        '{"type":"LLMFullResponseStartFrame"}',
        '{"type":"LLMFullResponseEndFrame"}',
        '{"type":"LLMRunFrame"}',
    ):
        log.add("c", value.encode())
    seconds = [
        record.__class__(
            record.topic,
            record.partition,
            record.offset,
            record.key,
            record.value,
            (),
            1_770_000_000_000 + 1000 * n,
        )
        for n, record in enumerate(log.records)
    ]

    async def fill():
        async with Projecting(database) as projecting:
            await projecting.store(seconds)

    asyncio.run(fill())
    with psycopg.connect(database) as connection:
        assert connection.execute(
            "SELECT version, heard_version, asked_s, opened_s, started_s, text_s, end_s FROM latency "
            "JOIN runs USING (context_id) WHERE requested_version = version"
        ).fetchall() == [
            (4, 3, 1.0, 1.0, 2.0, 3.0, 4.0),
            (10, 10, 0.0, 0.0, 1.0, None, 2.0),
            (13, None, None, 0.0, 1.0, None, 2.0),
            (16, None, None, 0.0, None, None, None),
        ]


@pytest.mark.regression("fault 34")
def test_an_interruption_is_shown_once_whatever_it_closes_and_drops(database):
    run = {"run_id": derived.run_id(ContextId("asked twice"), Version(1)), "attempt": 1}
    log = Log()
    for context_id, frames in {
        "asked twice": (
            {"type": "LLMRunFrame"},
            {"type": "LLMFullResponseStartFrame"} | run,
            {"type": "LLMTextFrame", "text": "So"} | run,
            {"type": "LLMRunFrame"},
        ),
        "answered by nobody's run": (
            {"type": "LLMFullResponseStartFrame"},
            {"type": "LLMTextFrame", "text": "So"},
            {"type": "LLMRunFrame"},
        ),
    }.items():
        for frame in (*frames, {"type": "InterruptionFrame"}):
            log.add(context_id, json.dumps(frame).encode())
    project(database, log.records)
    with psycopg.connect(database) as connection:
        closed = "SELECT count(*) FROM runs WHERE closed_version IS NOT NULL GROUP BY context_id"
        assert connection.execute(closed).fetchall() == [(2,), (2,)]
        assert connection.execute(
            "SELECT context_id, version, spoke_s, kept FROM interruptions"
        ).fetchall() == [
            ("answered by nobody's run", 4, 0.02, "So"),
            ("asked twice", 5, 0.02, "So"),
        ]


@pytest.mark.regression("fault 165")
def test_what_a_client_said_meanwhile_is_not_kept_of_the_answer(database):
    """The client's messages are held until the answer is over, and the interruption writes them."""
    run = {"run_id": derived.run_id(ContextId("talk"), Version(1)), "attempt": 1}
    held = [{"role": "assistant", "content": text} for text in ("One moment", "please")]
    log = Log()
    for frame in (
        {"type": "LLMRunFrame"},
        {"type": "LLMFullResponseStartFrame"} | run,
        {"type": "LLMTextFrame", "text": "So"} | run,
        {"type": "LLMMessagesAppendFrame", "messages": held, "run_llm": True, "second_input": "coalesce"},
        {"type": "InterruptionFrame"},
    ):
        log.add("talk", json.dumps(frame).encode())
    project(database, log.records)
    with psycopg.connect(database) as connection:
        written = "SELECT text FROM messages WHERE valid_from = 5 ORDER BY position"
        assert connection.execute(written).fetchall() == [("So",), ("One moment",), ("please",)]
        assert connection.execute("SELECT version, kept FROM interruptions").fetchall() == [(5, "So")]


@pytest.mark.regression("fault 221")
@pytest.mark.parametrize("moved", ["interrupted", "dropped"])
def test_nothing_is_kept_of_an_answer_without_text_wherever_its_row_lies(database, moved):
    """The interruption closes its run and drops the one that was to follow. Neither was heard."""
    run = {"run_id": derived.run_id(ContextId("talk"), Version(1)), "attempt": 1}
    held = [{"role": "assistant", "content": "One moment"}]
    log = Log()
    for frame in (
        {"type": "LLMRunFrame"},
        {"type": "LLMFullResponseStartFrame"} | run,
        {"type": "LLMMessagesAppendFrame", "messages": held, "run_llm": True, "second_input": "coalesce"},
        {"type": "InterruptionFrame"},
    ):
        log.add("talk", json.dumps(frame).encode())
    project(database, log.records)
    with psycopg.connect(database) as connection:
        closed = "SELECT array_agg(status ORDER BY status) FROM runs WHERE closed_version = 4"
        assert connection.execute(closed).fetchone() == (["dropped", "interrupted"],)
        # The update moves this row behind the other one.
        connection.execute("UPDATE runs SET status = status WHERE status = %s", (moved,))
        shown = "SELECT version, spoke_s, kept FROM interruptions"
        assert connection.execute(shown).fetchall() == [(4, None, None)]


@pytest.mark.regression("bridge 26")
def test_an_interruption_of_a_process_that_was_replaced_is_none(database):
    log = Log()
    for frame in (
        {"type": "LLMMirrorFrame", "mirror": "second", "react": True},
        {"type": "InterruptionFrame", "mirror": "first"},
        {"type": "InterruptionFrame", "mirror": "second"},
    ):
        log.add("talk", json.dumps(frame).encode())
    project(database, log.records)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version FROM interruptions").fetchall() == [(3,)]
        assert connection.execute("SELECT interruption_count FROM contexts").fetchall() == [(1,)]


def test_the_history_of_calls_says_what_became_of_each_and_who_ran_it(folded):
    shown = folded.execute(
        "SELECT call, became, who, queued IS NOT NULL, ran IS NOT NULL FROM tool_call_history "
        "WHERE context_id = 'ambiguous-payments'"
    ).fetchall()
    assert shown[:3] == [
        ('pay({"bill":"r…', "resolved", "tools-1", True, True),
        ('pay({"bill":"p…', 'failed: {"…', "tools-1", True, True),
        ("cancel_search(…", '{"error":"…', "tools-2", True, True),
    ]
    became = [row[1] for row in shown]
    assert "ambiguous:…" in became
    assert "waiting" in became


ODD_JSON = (
    '{"a":"\\u0000\\ud83d"}',
    '"\\udc00"',
    "[" * 100 + "]" * 100,
    "1e308",
    "null",
    '"' + "x" * 99_999 + '"',
)


@pytest.mark.parametrize("status", ["done", "failed", "waiting", "ambiguous"])
@pytest.mark.parametrize("value", ODD_JSON)
def test_no_arguments_and_no_result_make_a_view_of_calls_fail(folded, status, value):
    """Both are shown as their text, without a look at their content."""
    folded.execute("UPDATE tool_calls SET arguments = %s, result = %s, status = %s", (value, value, status))
    shown = {
        view: bool(folded.execute(f"SELECT * FROM {view}").fetchall())
        for view in ("tool_call_history", "waiting", "ambiguous_calls")
    }
    assert shown == {
        "tool_call_history": True,
        "waiting": status == "waiting",
        "ambiguous_calls": status == "ambiguous",
    }


@pytest.mark.parametrize("content", ODD_JSON)
def test_no_message_makes_a_view_of_answers_fail(folded, content):
    """These views look into messages only for calls."""
    folded.execute("UPDATE messages SET message = %s", (f'{{"content":{content},"tool_calls":[{content}]}}',))
    for view in ("turns", "run_history"):
        assert folded.execute(f"SELECT * FROM {view}").fetchall()


def test_what_waits_for_a_person_is_there_until_it_is_settled(folded):
    assert folded.execute("SELECT * FROM waiting").fetchall() == [
        ("ambiguous-payments", 'pay({"bil…', "the owner's a…", *folded_at(folded))
    ]
    folded.execute("UPDATE tool_calls SET status = 'done' WHERE status = 'waiting'")
    assert folded.execute("SELECT * FROM waiting").fetchall() == []


def folded_at(connection):
    query = "SELECT started_at, waiting_deadline FROM tool_calls WHERE status = 'waiting'"
    return [at.replace(microsecond=0) for at in connection.execute(query).fetchone()]


def test_ambiguous_calls_are_there_until_a_person_resolves_them(folded):
    ambiguous = folded.execute(
        "SELECT tool_call_id, resolved_version IS NOT NULL FROM tool_calls WHERE status = 'ambiguous'"
    ).fetchall()
    assert {resolved for _, resolved in ambiguous} == {True, False}
    shown = folded.execute("SELECT context_id, tool_call_id, call FROM ambiguous_calls").fetchall()
    assert shown == [("ambiguous-payments", "p4", 'pay({"bill"…')]


def test_tools_on_offer_are_those_of_live_workers(folded):
    work(folded, "one", [PAY, LOOK])
    work(folded, "two", [PAY])
    work(folded, "three", [PAY], service="others", ago="4 s")
    work(folded, "late", [PAY, {"name": "gone"}], ago="6 s")
    work(folded, "left", [{"name": "gone"}], stopped_at=rows.BEGINNING)
    work(folded, "model", {"provider": "scripted"}, kind="inference", service="inference")
    work(folded, "no terms", [{"name": "bare", "options": [1]}], service="others")
    for number, said in enumerate(({"functions": 1}, {"functions": [1, "x", [], {}]}, {}, "x", 5, None)):
        work(folded, f"no functions {number}", said)
    assert folded.execute("SELECT * FROM tools_on_offer").fetchall() == [
        ("bare", "others", 1, ""),
        ("look", "tools", 1, "retries"),
        ("pay", "others", 1, "background, 30 s, cancellable"),
        ("pay", "tools", 2, "background, 30 s, cancellable"),
    ]


def test_services_say_how_busy_their_live_workers_are(folded):
    work(folded, "one", [PAY, LOOK])
    work(folded, "two", [PAY], serves_all=True)
    work(folded, "gone", [PAY], ago="6 s")
    work(folded, "model", {"provider": "scripted"}, kind="inference", service="inference", serves_all=True)
    claim(folded, "a", "one")
    claim(folded, "b", "two")
    claim(folded, "c", "two", finished_at=rows.BEGINNING, finish="done")
    claim(folded, "d", "gone")
    assert folded.execute("SELECT service, kind, workers, slots, busy, serves FROM services").fetchall() == [
        ("inference", "inference", 1, 4, 0, "what nobody lists"),
        ("tools", "functions", 2, 8, 2, "look, pay, what nobody l…"),
    ]


@pytest.mark.regression("journey 10")
def test_no_view_cuts_an_id_or_a_name_or_prints_a_number_as_text(folded):
    """Lengths are checked in the columns of four views, and the types of columns in all views."""
    folded.execute("UPDATE runs SET model = repeat('m', 50)")
    folded.execute("UPDATE tool_calls SET worker = repeat('w', 50), tool_call_id = repeat('c', 50)")
    for query in (
        "SELECT model FROM token_usage WHERE model IS NOT NULL",
        "SELECT model FROM run_history WHERE model IS NOT NULL",
        "SELECT who FROM tool_call_history WHERE who IS NOT NULL",
        "SELECT tool_call_id FROM ambiguous_calls",
    ):
        [(length,)] = folded.execute(f"SELECT DISTINCT length({query.split()[1]}) FROM ({query}) AS shown")
        assert length == 50
    numbers = folded.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_name IN (SELECT viewname FROM pg_views WHERE schemaname = 'public') AND data_type = 'text' "
        "AND (column_name LIKE '%\\_s' OR column_name IN ('queued', 'ran', 'version', 'frames', 'try'))"
    ).fetchall()
    assert numbers == []
