"""The page of SQL to try: every query on it runs, and prints what the page says it prints."""

import asyncio
import os
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from tests.integration.databases import made
from tests.integration.test_batches import HISTORIES, Log, Projecting

from frameledger_services.embedded import postgres as embedded_postgres

PAGE = Path(__file__).parents[2] / "infra" / "queries.md"
EXAMPLE = re.compile(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
CONVERSATIONS = ("barge-in", "parallel-tools", "history-replaced", "ambiguous-payments")
MORNING = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
WIDTH = 100
# Alive for as long as the test lasts.
WORKERS = """
INSERT INTO workers (worker_id, kind, service, host, pid, lease_secs, slots, serves, serves_all, offers)
VALUES
    ('functions-7f31', 'functions', 'functions', 'here', 1, 86400, 64, '{pay,search}', false, '{"functions": [
        {"name": "pay", "schema": {}, "options": {"cancel_on_interruption": true, "timeout_secs": 30}},
        {"name": "search", "schema": {}, "options": {
            "cancel_on_interruption": false, "timeout_secs": 60, "cancellable_by_llm": true, "safe_to_retry": true}}
    ]}'),
    ('inference-02c9', 'inference', 'inference', 'here', 2, 86400, 128, '{meadow-2}', true, '{"provider": "scripted"}');

INSERT INTO claims (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id)
VALUES ('an effect', 'call', 'ambiguous-payments', 60, 59, 0, 'p5', 'functions', 'functions-7f31');
"""


def test_every_query_on_the_page_is_followed_by_what_it_prints():
    page = PAGE.read_text(encoding="utf-8")
    assert len(EXAMPLES) == page.count("```sql") >= 10
    too_wide = [line for _, printed in EXAMPLES for line in printed.splitlines() if len(line) > WIDTH]
    assert too_wide == []


@pytest.mark.parametrize(("query", "printed"), EXAMPLES, ids=[query.split("\n")[0] for query, _ in EXAMPLES])
def test_a_query_prints_what_the_page_says(query, printed, morning):
    assert psql(morning, query) == printed.splitlines()


@pytest.fixture(scope="module")
def morning(database_server, migrated_template):
    """The database that the page is about: four conversations, ten minutes apart, a record that is no frame,
    and two live workers."""
    log = Log()
    times = []
    for number, name in enumerate(CONVERSATIONS):
        [lines] = [path.read_bytes().splitlines() for path in HISTORIES if path.stem == name]
        for second, line in enumerate(lines):
            log.add(name, line)
            times.append(MORNING + timedelta(minutes=10 * number, seconds=0.3 * second))
    log.add("parallel-tools", b"Hello?")
    times.append(times[-1])
    records = [
        replace(record, timestamp_ms=round(time.timestamp() * 1000))
        for record, time in zip(log.records, times, strict=True)
    ]

    async def fill(address):
        async with Projecting(address) as projecting:
            for record in records:
                projecting.owned[record.partition].end_offset = record.offset + 1
            await projecting.store(records)

    with made(database_server, template=migrated_template) as (_, address):
        asyncio.run(fill(address))
        with psycopg.connect(address) as connection:
            connection.execute(WORKERS)
        yield address


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
