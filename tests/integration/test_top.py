"""`frameledger top` shows the content of the tables, and the changes between two samples."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from rich.console import Console
from tests.support.batches import HISTORIES, TOPIC, Log, project
from tests.support.databases import made

from frameledger_services.cli.top import screen
from frameledger_services.cli.top.snapshot import MAX_LINES, MINUTE, sample, take_snapshot
from frameledger_services.cli.top.stages import Stages
from frameledger_services.store.activity import InProgress

SO_FAR = {"parallel-tools": 14, "slow-research": 10, "failed-runs": 30, "cough": 26}
"""Frames of conversations that go on: in the middle of calls, and of answers."""

YESTERDAY = "barge-in"

OPEN_CALLS = ("announced", "dispatched", "running")


@pytest.fixture(scope="module")
def address(database_server, migrated_template):
    """A database with all histories, some of them cut in the middle. One is moved to yesterday and the others to
    tomorrow, so that the last minute has the same content however long the tests take."""
    log = Log()
    for path in HISTORIES:
        for line in path.read_bytes().splitlines()[: SO_FAR.get(path.stem)]:
            log.add(path.stem, line)
    with made(database_server, template=migrated_template) as (_, found):
        project(found, log.records, sizes=(500,))
        with psycopg.connect(found) as connection:
            newest = "(SELECT max(logged_at) FROM frames)"
            for table, columns in {
                "runs": ("requested_at", "opened_at", "first_text_at", "closed_at"),
                "tool_calls": ("requested_at", "settled_at"),
            }.items():
                began = f"now() + CASE context_id WHEN '{YESTERDAY}' THEN -interval '1 day' ELSE interval '1 day' END"
                shifted = ", ".join(f"{column} = {began} + ({column} - {newest})" for column in columns)
                connection.execute(f"UPDATE {table} SET {shifted}".encode())
        yield found


def look_at(address):
    async def looked():
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            return await take_snapshot(connection, TOPIC)

    return asyncio.run(looked())


def rows(address, query):
    with psycopg.connect(address) as connection:
        return connection.execute(query.encode()).fetchall()


def by_status(address, table, ended):
    query = (
        f"SELECT status, count(*) FROM {table} WHERE {ended} > now() - interval '{MINUTE} seconds' GROUP BY 1"
    )
    return dict(rows(address, query))


def test_what_was_finished_is_counted_by_how_it_ended(address):
    found = look_at(address).finished
    assert found.runs == by_status(address, "runs", "closed_at")
    assert found.calls == by_status(address, "tool_calls", "settled_at")
    assert found.runs["ended"] > 1
    assert found.calls["done"] > 1
    waited = sorted(
        seconds
        for (seconds,) in rows(
            address,
            "SELECT extract(epoch FROM first_text_at - requested_at)::float8 FROM runs "
            f"WHERE closed_at > now() - interval '{MINUTE} seconds' AND first_text_at IS NOT NULL",
        )
    )
    assert waited[0] <= found.first_text_p50 <= found.first_text_p95 <= waited[-1]
    [(tokens_in, tokens_out)] = rows(
        address,
        "SELECT sum(input_tokens)::bigint, sum(output_tokens)::bigint FROM runs "
        f"WHERE closed_at > now() - interval '{MINUTE} seconds'",
    )
    assert (found.input_tokens, found.output_tokens) == (tokens_in, tokens_out)


def test_what_is_in_progress_comes_the_oldest_first(address):
    found = look_at(address).in_progress
    assert {(one.kind, one.status) for one in found} >= {("run", "open"), ("call", "running")}
    assert [one.seconds for one in found] == sorted((one.seconds for one in found), reverse=True)
    [(open_work,)] = rows(
        address,
        "SELECT (SELECT count(*) FROM runs WHERE status = 'open') + "
        f"(SELECT count(*) FROM tool_calls WHERE status IN {OPEN_CALLS})",
    )
    assert len(found) == min(MAX_LINES, open_work)


def test_what_went_wrong_comes_the_latest_first_with_its_error(address):
    found = look_at(address).went_wrong
    assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)
    assert {one.kind for one in found} <= {"run", "call"}
    failed = dict(
        rows(address, "SELECT context_id || requested_version, error FROM runs WHERE status = 'failed'")
    )
    assert failed
    assert any(
        one.kind == "run" and one.error and one.error.endswith(tuple(failed.values())) for one in found
    )


def test_a_look_says_how_far_the_log_is_stored_and_what_waits_for_somebody(address):
    found = look_at(address)
    [(stored,)] = rows(address, "SELECT sum(next_offset)::bigint FROM projections")
    assert found.road.stored == stored
    assert found.road.read == found.road.projectors == 0
    said = {(finding.check, finding.state) for finding in found.needs}
    assert ("calls", "warn") in said
    assert all(state != "ok" for _, state in said)


def test_rates_are_of_the_time_between_two_looks(address):
    before = look_at(address)
    later = replace(before.road, stored=before.road.stored + 100)
    now = replace(before, clock=before.clock + 4, road=later)
    assert sample(before, now, None).records_per_second == 25
    # A topic that was made again has fewer records.
    assert sample(now, before, None).records_per_second == 0


def test_a_stage_takes_what_it_took_since_the_look_before_and_a_new_process_counts_from_its_beginning():
    before = Stages({"fold": 1.0, "write": 4.0}, {"fold": 100, "write": 100}, 5_000, 100)
    now = Stages(
        {"fold": 1.5, "write": 4.0, "announce": 0.1}, {"fold": 200, "write": 100, "announce": 10}, 7_000, 200
    )
    spent = now.since(before)
    assert spent.milliseconds == {"fold": 5.0, "announce": 10.0}
    assert spent.frames == 20
    again = before.since(now)
    assert again.milliseconds == {"fold": 10.0}
    assert again.frames == 50


def test_the_screen_fits_a_terminal_of_a_hundred_columns(address):
    before = look_at(address)
    stages = (
        Stages({"fold": 1.0}, {"fold": 100}, 5_000, 100),
        Stages({"fold": 2.0}, {"fold": 200}, 7_000, 200),
    )
    console = Console(width=100)
    with console.capture() as captured:
        console.print(screen.page(sample(before, before, stages), "frameledger top, here"))
    shown = captured.get()
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 100
    for said in (
        "frameledger top, here",
        "fold 10.0 ms",
        "In progress",
        "Failures of the last hour",
        "Problems",
        "failed",
    ):
        assert said in shown


def test_nothing_that_a_conversation_says_reaches_the_terminal_as_a_command(address):
    before = look_at(address)
    evil = InProgress("call", "ring\x1b[2J", "running", 1.0, None, "ctx\x07", 1)
    shown = Console(width=100)
    with shown.capture() as captured:
        shown.print(screen.page(replace(sample(before, before, None), in_progress=[evil]), "here"))
    assert "\x1b[2J" not in captured.get()
    assert "\x07" not in captured.get()


def test_the_command_prints_a_screen_or_an_object(address, command):
    screen_of = command(address, "top", "--once")
    assert screen_of.exit_code == 0, screen_of.output
    assert "In progress, longest first" in screen_of.stdout
    printed = command(address, "top", "--once", "--json")
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    assert found["road"]["partitions"] > 0
    assert found["stages"] is None
    assert datetime.fromisoformat(found["at"]) - datetime.now(UTC) < timedelta(seconds=1)
    assert found["finished"]["runs"] == by_status(address, "runs", "closed_at")


def test_a_database_that_does_not_answer_is_said(command):
    said = command("postgresql://nobody@127.0.0.1:1/none", "top", "--once")
    assert said.exit_code == 1
    assert "127.0.0.1" in said.output
