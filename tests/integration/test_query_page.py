"""Every query of the page of example queries runs and prints what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from tests.support.databases import made
from tests.support.four_conversations import CONVERSATIONS, NAME, fill

from frameledger.decode_error import REASONS
from frameledger_services.embedded import postgres as embedded_postgres

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "infra" / "queries.md"
EXAMPLE = re.compile(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
WIDTH = 100


def test_every_query_on_the_page_is_followed_by_what_it_prints():
    page = PAGE.read_text(encoding="utf-8")
    assert len(EXAMPLES) == page.count("```sql") >= 10
    too_wide = [line for _, printed in EXAMPLES for line in printed.splitlines() if len(line) > WIDTH]
    assert too_wide == []


@pytest.mark.parametrize(("query", "printed"), EXAMPLES, ids=[query.split("\n")[0] for query, _ in EXAMPLES])
def test_a_query_prints_what_the_page_says(query, printed, morning):
    assert psql(morning, query) == printed.splitlines()


@pytest.fixture
def changing(morning):
    """A connection to that database, for changes that are rolled back."""
    with psycopg.connect(morning) as connection:
        yield connection
        connection.rollback()


@pytest.mark.regression("gateway 78")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("took_s", "UPDATE tool_calls SET settled_at = started_at + interval '75.25 s'"),
        ("first_text_s", "UPDATE runs SET first_text_at = requested_at + interval '75.25 s'"),
    ],
)
def test_what_took_longer_than_a_minute_is_shown_with_all_its_seconds(name, change, changing):
    changing.execute(change)
    [query] = [one for one, _ in EXAMPLES if f" AS {name}" in one]
    rows = changing.cursor(row_factory=dict_row).execute(query).fetchall()
    assert {str(row[name]) for row in rows} == {"75.250"}


@pytest.mark.regression("gateway 79")
def test_no_query_about_many_conversations_fails_at_characters_that_postgresql_has_no_text_for(changing):
    # Only this test changes frames.
    changing.execute("ALTER TABLE frames DISABLE TRIGGER USER")
    for table, column in (("frames", "payload"), ("messages", "message"), ("context_settings", "value")):
        changing.execute(
            f"UPDATE {table} SET {column} = overlay({column}::text PLACING %s FROM 1 FOR 1)::json "
            f"WHERE json_typeof({column}) = 'object'",
            (r'{"nul": "\u0000", "half": "\ud800", ',),
        )
    of_one = re.compile("context_at|context_diff|explain_message")
    for query, _ in EXAMPLES:
        if not of_one.search(query):
            changing.execute(query)


UTF8 = ("not_json", "not_an_object", "no_type", "bad_version", "bad_id", "invalid_field")
"""Codes of dead letters that are UTF-8."""


@pytest.mark.regression("fault 102")
def test_the_query_about_dead_letters_shows_every_one_that_there_can_be(changing):
    [query] = [one for one, _ in EXAMPLES if "FROM rejected_frames" in one]
    # A later release may have another code, with arbitrary bytes.
    others = {*REASONS, "refused", "another"} - set(UTF8)
    letters = {
        *((code, "Grüße, C:\\".encode(), "Grüße, C:\\") for code in UTF8),
        *((code, b"C:\xff\xfe", "C:\\377\\376") for code in others),
        *((code, b"a NUL \x00", "a NUL \\000") for code in ("not_json", *others)),
        *((code, None, None) for code in others),
    }
    changing.execute("DELETE FROM rejected_frames")
    for number, (code, value, _) in enumerate(letters):
        changing.execute(
            'INSERT INTO rejected_frames (topic, partition, "offset", code, error, value, headers) '
            "VALUES ('t', 0, %s, %s, 'an error', %s, '[]')",
            (number, code, value),
        )
    shown = [(code, value) for _, code, _, value in changing.execute(query).fetchall()]
    assert len(shown) == len(letters)
    assert set(shown) == {(code, text) for code, _, text in letters}


@pytest.fixture(scope="module")
def morning(database_server, migrated_template):
    """The database that the page is about."""
    with made(database_server, template=migrated_template) as (_, address):
        fill(address)
        yield address


@pytest.mark.long
@pytest.mark.regression("journey 24")
def test_the_page_says_how_to_have_its_conversations_and_they_stay_as_they_are(database_server):
    program = ROOT / "tests" / "support" / "four_conversations.py"
    assert str(program.relative_to(ROOT)) in PAGE.read_text(encoding="utf-8")
    environment = os.environ | {"FRAMELEDGER_DATABASE_URL": database_server}
    for _ in range(2):
        subprocess.run([sys.executable, str(program)], env=environment, cwd=ROOT, check=True)
        with psycopg.connect(make_conninfo(database_server, dbname=NAME)) as connection:
            counted = connection.execute("SELECT count(*), sum(version) FROM contexts").fetchone()
        assert counted == (len(CONVERSATIONS), 60 + 45 + 33 + 22)
    with psycopg.connect(database_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {NAME}")


def psql(address, query):
    """The lines that psql prints for a query, without the spaces at their ends and the empty lines after them."""
    program = embedded_postgres.installation(max(embedded_postgres.INSTALLATIONS)) / "bin" / "psql"
    told = [str(program), "--no-psqlrc", "--pset=pager=off", "--set=ON_ERROR_STOP=1", "--dbname", address]
    environment = {**os.environ, "PGTZ": "UTC", "PGCLIENTENCODING": "UTF8", "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        [*told, "--command", query], capture_output=True, check=False, env=environment, encoding="utf-8"
    )
    assert ended.returncode == 0, ended.stderr
    return [line.rstrip() for line in ended.stdout.rstrip("\n").split("\n")]
