"""The fact views: everything in the tables, with the right types, and fast by conversation and by time."""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]  # MkDocs brings it
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from tests.integration.test_query_page import EXAMPLES
from tests.integration.test_query_plans import COUNTED, counted, reads
from tests.support import many_runs, rows
from tests.support.batches import Projecting, histories_interleaved
from tests.support.databases import made

from frameledger_services.store import other_releases

FACTS = ("facts_messages", "facts_turns", "facts_runs", "facts_calls", "facts_conversations")
RUNS = 4_000
MAX_ROWS = 8 * many_runs.FRAMES * RUNS / many_runs.DAYS
"""The BRIN indexes by time find ranges of 128 blocks, which here have several days, in two tables."""

DAY = datetime(2026, 3, 4, tzinfo=UTC), datetime(2026, 3, 5, tzinfo=UTC)
OF_A_DAY = [query for query, _ in EXAMPLES if "'2026-03-05'" in query]
PAGE = Path(__file__).parents[2] / "infra" / "docs" / "sql.md"
READER = PAGE.read_text(encoding="utf-8").split("## A reader\n")[1].split("\n## ")[0]
IN_THE_READER = re.search(r"```sql\n(CREATE ROLE.*?)```", READER, re.DOTALL)
DATA_SOURCE = re.search(r"```yaml\n(.*?)```", READER, re.DOTALL)
FOR_ONE_CUSTOMER = re.search(r"```sql\n(CREATE VIEW.*?)```", READER, re.DOTALL)
IN_GRAFANA = re.search(r"```sql\n(SELECT.*?)```", READER, re.DOTALL)


@pytest.fixture(scope="module")
def folded(database_server, migrated_template) -> Iterator[psycopg.Connection]:
    """A database with all histories."""

    async def fill(address):
        async with Projecting(address) as projecting:
            await projecting.store(
                sorted(histories_interleaved(), key=lambda record: (record.partition, record.offset))
            )

    with made(database_server, template=migrated_template) as (_, address):
        asyncio.run(fill(address))
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SET TIME ZONE UTC")
            yield connection


@pytest.fixture(scope="module")
def many(database_server, migrated_template) -> Iterator[psycopg.Connection]:
    """A database with enough runs for the planner to choose."""
    with (
        made(database_server, template=migrated_template) as (_, address),
        psycopg.connect(address, autocommit=True) as connection,
    ):
        many_runs.fill(connection, RUNS)
        connection.execute("VACUUM ANALYZE")
        connection.execute("SET TIME ZONE UTC")
        yield connection


@pytest.mark.parametrize(
    ("facts", "of"),
    [("messages", "messages"), ("runs", "runs"), ("calls", "tool_calls"), ("conversations", "contexts")],
)
def test_every_row_of_a_table_is_a_fact(folded, facts, of):
    counted = folded.execute(f"SELECT count(*) FROM {of}").fetchone()
    assert counted[0] > 10
    assert folded.execute(f"SELECT count(*) FROM facts_{facts}").fetchone() == counted


@pytest.mark.parametrize("view", FACTS)
def test_times_have_a_zone_numbers_are_numbers_and_no_text_is_cut(folded, view):
    kinds = dict(
        folded.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s", (view,)
        ).fetchall()
    )
    assert {kinds[name] for name in kinds if name.endswith("_at")} == {"timestamp with time zone"}
    numbers = {"bigint", "integer", "numeric", "double precision"}
    assert {kinds[name] for name in kinds if re.search("(_s|_version|_tokens|_count|cost)$", name)} <= numbers
    definition = folded.execute("SELECT pg_get_viewdef(%s::regclass)", (view,)).fetchone()[0]
    assert not re.search(r"\b(excerpt|left|to_char|seconds|short_id)\(", definition)


def test_of_an_interrupted_answer_both_are_there_what_was_said_and_what_was_heard(folded):
    generated, heard = folded.execute(
        "SELECT generated, heard FROM facts_runs WHERE context_id = 'barge-in' AND status = 'interrupted'"
    ).fetchone()
    assert heard == "There are two concerts: a brass band at seven,"
    assert generated.startswith(heard)
    assert len(generated) > len(heard)


def of_the_page(words: str) -> str:
    """The query of the page that has these words, about all days and with all of its rows."""
    [query] = [query for query, _ in EXAMPLES if words in query]
    return re.sub(r"\w+ >= '2026-03-04' AND \w+ < '2026-03-05'", "true", query).partition("\nLIMIT")[0]


@pytest.mark.regression("fault 252")
def test_interrupted_answers_are_also_those_that_had_ended_and_those_of_which_nothing_was_heard(folded):
    cut = {
        (context_id, heard, never_heard)
        for context_id, _, _, heard, never_heard in folded.execute(of_the_page("AS never_heard\nFROM facts"))
    }
    assert {
        ("heard-text", 21, "The keeper lived upstairs."),
        ("heard-text", 0, "A woman named"),
        ("heard-text", 0, "Her name was Ines Halloran."),
        ("heard-in-parts", 11, "sail on Sundays."),
    } <= cut


@pytest.mark.regression("fault 253")
def test_the_speed_of_a_model_is_that_of_answers_whose_tokens_are_known(folded):
    speed = of_the_page("AS tokens_per_s")
    with folded.transaction(force_rollback=True):
        folded.execute(
            "UPDATE runs SET closed_at = first_text_at + interval '2 s', output_tokens = 10 "
            "WHERE first_text_at IS NOT NULL"
        )
        measured = folded.execute(speed).fetchall()
        assert len(measured) > 1
        assert {tokens_per_s for _, _, tokens_per_s in measured} == {5}
        # As of answers that were cut off: OpenAI reports nothing then, and Anthropic the first token.
        folded.execute("UPDATE runs SET output_tokens = NULL WHERE started_version % 3 = 0")
        folded.execute(
            "UPDATE runs SET output_tokens = 1, usage_partial = true WHERE started_version % 3 = 1"
        )
        assert {tokens_per_s for _, _, tokens_per_s in folded.execute(speed)} == {5}


def test_a_turn_has_the_words_of_both_sides_and_what_the_user_waited_for(folded):
    turns = folded.execute(
        "SELECT user_said, answer, first_text_s, status FROM facts_turns WHERE context_id = 'barge-in' ORDER BY version"
    ).fetchall()
    assert [turn[0] for turn in turns] == ["What's on at the harbour tonight?", "Only the jazz, please."]
    assert turns[1][1] == "The jazz trio plays at nine in the old boathouse."
    assert all(turn[2] > 0 for turn in turns)
    assert [turn[3] for turn in turns] == ["interrupted", "ended"]


class TestPrices:
    def priced(self, transaction, prices, **run):
        with transaction.cursor() as cursor:
            for price in prices:
                rows.insert(cursor, "prices", **{"currency": "EUR", "input": 0, "output": 0} | price)
            whole = {
                "context_id": "c",
                "run_id": "r",
                "requested_version": 1,
                "requested_at": rows.BEGINNING,
                "started_at": rows.BEGINNING,
                "trigger": "x",
                "status": "ended",
                "provider": "p",
                "model": "m",
                "input_tokens": 1_000_000,
                "output_tokens": 1_000_000,
            }
            rows.insert(cursor, "runs", **whole | run)
            return cursor.execute("SELECT cost, currency FROM facts_runs").fetchone()

    def test_without_a_price_nothing_is_known(self, transaction):
        assert self.priced(transaction, []) == (None, None)

    def test_each_kind_of_token_has_its_price(self, transaction):
        price = {"model": "m", "input": 8, "output": 20, "cache_read": 1, "cache_write": 10, "reasoning": 30}
        used = {"cache_read_tokens": 500_000, "cache_write_tokens": 250_000, "reasoning_tokens": 100_000}
        assert self.priced(transaction, [price], **used) == (
            Decimal("2") + Decimal("0.5") + Decimal("2.5") + 18 + 3,
            "EUR",
        )

    def test_what_has_no_price_of_its_own_costs_as_all_input_and_all_output_do(self, transaction):
        price = {"model": "m", "input": 8, "output": 20}
        used = {"cache_read_tokens": 500_000, "cache_write_tokens": 250_000, "reasoning_tokens": 100_000}
        assert self.priced(transaction, [price], **used) == (28, "EUR")

    @pytest.mark.parametrize(
        ("used", "cost"),
        [
            ({"input_tokens": 10, "cache_read_tokens": 4_000_000, "output_tokens": 0}, 4),
            ({"input_tokens": 10, "cache_write_tokens": 2_000_000, "output_tokens": 0}, 20),
            ({"input_tokens": 0, "output_tokens": 10, "reasoning_tokens": 1_000_000}, 30),
            ({"input_tokens": None, "cache_read_tokens": 4_000_000}, None),
            ({"output_tokens": None, "reasoning_tokens": 1_000_000}, None),
        ],
    )
    @pytest.mark.regression("journey 155")
    def test_no_run_costs_less_than_the_tokens_that_are_counted_apart(self, transaction, used, cost):
        """A program that records its own calls may pass on counts that exclude these tokens, as Anthropic's do."""
        price = {"model": "m", "input": 8, "output": 20, "cache_read": 1, "cache_write": 10, "reasoning": 30}
        assert self.priced(transaction, [price], **used) == (cost, "EUR")

    @pytest.mark.parametrize("unknown", ["input_tokens", "output_tokens"])
    def test_what_is_not_known_is_not_nothing(self, transaction, unknown):
        cost, currency = self.priced(transaction, [{"model": "m", "input": 1}], **{unknown: None})
        assert (cost, currency) == (None, "EUR")

    def test_the_newest_price_counts_that_held_when_the_run_started(self, transaction):
        prices = [
            {"model": "m", "input": 1},
            {"model": "m", "input": 2, "valid_from": "2026-03-01Z"},
            {"model": "m", "input": 3, "valid_from": "2027-01-01Z"},
        ]
        assert self.priced(transaction, prices) == (2, "EUR")

    def test_a_price_of_the_provider_counts_before_one_of_any(self, transaction):
        prices = [
            {"model": "m", "input": 5, "valid_from": "2026-03-01Z"},
            {"model": "m", "provider": "p", "input": 4, "currency": "USD"},
            {"model": "m", "provider": "q", "input": 3},
            {"model": "other", "input": 2},
        ]
        assert self.priced(transaction, prices) == (4, "USD")

    def test_a_conversation_costs_the_sum_in_one_currency_or_nothing_is_said(self, transaction):
        self.priced(transaction, [{"model": "m", "input": 2}, {"model": "n", "input": 3, "currency": "USD"}])
        transaction.execute(
            "INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, "
            "state) VALUES ('c', 1, 1, now(), now(), 1, sha256('x'), '{}')"
        )
        asked = "SELECT cost, currency, input_tokens FROM facts_conversations"
        assert transaction.execute(asked).fetchone() == (2, "EUR", 1_000_000)
        transaction.execute(
            "INSERT INTO runs (context_id, run_id, requested_version, requested_at, trigger, status, model, "
            "input_tokens, output_tokens) VALUES ('c', 's', 2, now(), 'x', 'ended', 'n', 5, 5)"
        )
        assert transaction.execute(asked).fetchone() == (None, None, 1_000_005)


def test_a_run_of_an_experiment_says_so(transaction):
    head = "context_id, version, state_version, started_at, last_at, fold_version, chain, state, experiment"
    transaction.execute(
        f"INSERT INTO contexts ({head}) SELECT name, 1, 1, now(), now(), 1, sha256('x'), '{{}}', name = 'rerun' "
        "FROM (VALUES ('rerun'), ('real')) AS names (name)"
    )
    transaction.execute(
        "INSERT INTO runs (context_id, run_id, requested_version, requested_at, trigger, status) "
        "SELECT context_id, 'r', 1, now(), 'x', 'ended' FROM contexts"
    )
    found = transaction.execute(
        "SELECT context_id, experiment, is_copy FROM facts_runs ORDER BY 1"
    ).fetchall()
    assert found == [("real", False, False), ("rerun", True, False)]


@pytest.mark.parametrize("view", FACTS)
def test_facts_of_a_day_read_that_day(many, view):
    by = {"facts_messages": "said_at", "facts_turns": "said_at", "facts_conversations": "started_at"}
    time = by.get(view, "requested_at")
    query = f"SELECT * FROM {view} WHERE {time} >= %(since)s AND {time} < %(until)s"
    scanned, fetched = reads(many, query, {"since": DAY[0], "until": DAY[1]})
    # There are few prices, and frames are read in whole block ranges of the BRIN index by time.
    assert scanned <= {"prices", "eras"}
    assert fetched < MAX_ROWS


@pytest.mark.regression("fault 249")
def test_turns_of_two_days_do_not_read_the_messages_of_all_days(many):
    """Messages are looked up one by one if they are a thirtieth of all. For more than that all messages were joined."""
    query = "SELECT * FROM facts_turns WHERE said_at >= %(since)s AND said_at < %(until)s"
    scanned, fetched = reads(many, query, {"since": DAY[0], "until": DAY[1] + timedelta(days=1)})
    assert scanned <= {"eras"}, "it is empty"
    assert fetched < 2 * MAX_ROWS


@pytest.mark.parametrize("query", OF_A_DAY, ids=[query.split("\n")[1].strip()[:40] for query in OF_A_DAY])
def test_a_question_of_the_first_day_reads_that_day(many, query):
    scanned, fetched = reads(many, f"SELECT count(asked) FROM ({query.rstrip().rstrip(';')}) AS asked")
    assert scanned <= {"prices", "eras", "context_settings"}
    assert fetched < MAX_ROWS


@pytest.mark.parametrize(
    ("asked", "lookups"),
    [
        ("count(first_text_s), min(first_text_s), max(first_text_s), min(heard_at)", 1),
        ("count(*), sum(input_tokens), max(closed_s)", 0),
    ],
)
def test_when_a_user_was_heard_is_looked_up_once_for_each_run_and_only_if_it_is_asked_for(
    many, asked, lookups
):
    """It was looked up three times: for the count and for two percentiles."""
    with many.transaction(force_rollback=True):
        # The reads of a parallel worker are counted elsewhere.
        many.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        before = counted(many)
        of_the_day = "requested_at >= %s AND requested_at < %s"
        assert many.execute(f"SELECT {asked} FROM facts_runs WHERE {of_the_day}", DAY).fetchone()
        after = counted(many)
        (runs,) = many.execute(f"SELECT count(*) FROM runs WHERE {of_the_day}", DAY).fetchone()
    assert runs > 100
    _, frames = after.get("frames", (0, 0))
    assert frames - before.get("frames", (0, 0))[1] == lookups * runs


def test_who_looks_for_messages_without_a_time_reads_the_newest_that_have_one_at_most(many):
    """The BRIN index by time excludes all other ranges of blocks."""
    address = f"{many.info.dsn} password={many.info.password}"

    async def asked():
        async with await AsyncConnection.connect(address) as connection:
            await connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            found = await other_releases.messages_without_time(connection)
            return found, await (await connection.execute(COUNTED)).fetchall()

    found, after = asyncio.run(asked())
    assert found == 0
    (total,) = many.execute("SELECT count(*) FROM messages").fetchone()
    [(scans, fetched)] = [(scans, rows) for table, scans, rows in after if table == "messages"]
    assert scans == 0
    assert fetched < total / 4


def test_there_are_fifteen_questions_of_the_first_day_and_one_is_of_now():
    page = (PAGE.parents[1] / "queries.md").read_text(encoding="utf-8")
    section = page.split("## The first day")[1].split("\n## ")[0]
    assert section.count("```sql\n") - section.count("```sql\nINSERT") >= 15
    assert len(OF_A_DAY) >= 14


def test_a_user_with_the_role_of_a_reader_sees_all_facts_and_changes_nothing(database, database_server):
    """The user is created with the page's statements, and connects."""
    assert IN_THE_READER
    name = f"dashboard_{psycopg.conninfo.conninfo_to_dict(database)['dbname']}"
    with psycopg.connect(database, autocommit=True) as owner:
        try:
            owner.execute(IN_THE_READER[1].replace("dashboard", name))
            rows.write(
                owner, "c", [b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Hi"}]}']
            )
            address = make_conninfo(database, user=name, password="choose one", passfile="/dev/null")
            with psycopg.connect(address, autocommit=True) as reader:
                assert reader.execute("SELECT session_user::text").fetchone() == (name,)
                assert reader.execute("SELECT user_said FROM facts_turns").fetchone() == ("Hi",)
                for query, _ in EXAMPLES:
                    if query.startswith("SELECT"):
                        reader.execute(query)
                assert IN_GRAFANA
                for query in (IN_GRAFANA[1], *OF_A_DAY):
                    reader.execute(by_grafana(query))
                for change in (
                    "DELETE FROM messages",
                    "INSERT INTO prices VALUES ('m', '', 'now', 1, 1, 1, 1, 1, 'EUR')",
                ):
                    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                        reader.execute(change)
                    # Nor with that setting changed: the role has no privilege.
                    reader.execute("SET default_transaction_read_only = off")
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        reader.execute(change)
                    reader.execute("RESET default_transaction_read_only")
        finally:
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.regression("fault 160")
def test_who_is_shown_the_conversations_of_one_customer_reads_those_alone(folded):
    assert FOR_ONE_CUSTOMER
    with folded.transaction(force_rollback=True):
        folded.execute(FOR_ONE_CUSTOMER[1].replace("'acme-'", "'barge-'"))
        expected = folded.execute("SELECT model, status FROM runs WHERE context_id = 'barge-in'").fetchall()
        folded.execute("SET LOCAL ROLE acme")
        assert sorted(folded.execute("SELECT model, status FROM acme_runs")) == sorted(expected) != []
        for table in ("runs", "facts_runs"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), folded.transaction():
                folded.execute(f"SELECT FROM {table}")


def test_the_data_source_of_the_page_is_that_user():
    """The provisioning file of the page, parsed as Grafana parses it."""
    assert IN_THE_READER
    assert DATA_SOURCE
    [told] = yaml.safe_load(DATA_SOURCE[1])["datasources"]
    assert told["type"] == "postgres"
    assert (
        f"CREATE ROLE {told['user']} LOGIN PASSWORD '{told['secureJsonData']['password']}'"
        in IN_THE_READER[1]
    )


def by_grafana(query):
    """Returns the query with a day's filter as in a panel, and as Grafana sends it."""
    panel = re.sub(r"(\w+) >= '2026-03-04' AND \1 < '2026-03-05'", r"$__timeFilter(\1)", query)
    assert "$__timeFilter(" in panel
    return re.sub(
        r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2026-03-04T00:00:00Z' AND '2026-03-04T23:59:59.999Z'", panel
    )


@pytest.mark.parametrize(
    ("index", "query"),
    [
        (
            "messages_words",
            "SELECT * FROM messages "
            "WHERE to_tsvector('simple', text) @@ websearch_to_tsquery('simple', 'nobody says this')",
        ),
        ("contexts_last_at", "SELECT context_id FROM facts_conversations ORDER BY last_at DESC LIMIT 20"),
        ("runs_by_id", "SELECT * FROM facts_runs WHERE run_id = 'another'"),
        ("tool_calls_by_id", "SELECT * FROM facts_calls WHERE tool_call_id = 'call_7_5'"),
        (
            "tool_calls_by_key",
            "SELECT * FROM facts_calls WHERE idempotency_key = '8d4f2f6e-54a7-4c39-9b5c-3a1f0e7d2b61'",
        ),
        ("frames_by_trace", "SELECT version FROM frames WHERE trace_id = '4bf92f3577b34da6a3ce929d0e0e4736'"),
    ],
)
def test_an_index_for_more_is_one_statement_of_the_page_and_is_used(many, index, query):
    statement = re.search(rf"`(CREATE INDEX CONCURRENTLY {index} [^`]*)`", PAGE.read_text(encoding="utf-8"))
    assert statement
    many.execute(statement[1])
    try:
        plan = "\n".join(line for (line,) in many.execute(f"EXPLAIN {query}"))
        assert index in plan
    finally:
        many.execute(f"DROP INDEX CONCURRENTLY {index}")
