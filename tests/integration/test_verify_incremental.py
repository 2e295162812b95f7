"""Verifying conversations while they are written, from an earlier verified version, while parked, and by the
command."""

import asyncio
import json
import re
import resource
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel
from psycopg.conninfo import make_conninfo
from tests.laws.strategies import random_conversation
from tests.support.batches import HISTORIES, Log, Projecting, histories_interleaved, project, value_of
from tests.support.databases import made
from tests.support.tampering import changed, rechained
from tests.support.tiers import long

from frameledger.evolve import evolve
from frameledger.frames import EndFrame, LLMContextEraseFrame, encode_frame
from frameledger_services.audit.verify import Verified, verify
from frameledger_services.audit.verify_many import verify_many
from frameledger_services.projector import batch_fold
from frameledger_services.settings import Settings
from frameledger_services.store import frame_pages, stored_rows, verified
from frameledger_services.store.stored_rows import Behind

DESK = "a-day-at-the-desk"


@pytest.fixture(scope="module")
def projected(database_server, migrated_template):
    """The name of a database that has all histories, to be copied."""
    with made(database_server, template=migrated_template) as (name, address):
        project(address, histories_interleaved(), sizes=(2_000,))
        yield name


@pytest.fixture
def stored(database_server, projected):
    """The address of a copy of it, of this test's own."""
    with made(database_server, template=projected) as (_, address):
        yield address


def run_many(address, context_ids=None, *, again=False):
    """Returns the results of `verify_many` by conversation."""
    found = {}

    def report(one):
        found[one.context_id] = one

    settings = Settings(database_url=address)
    asyncio.run(verify_many(settings, context_ids, report, jobs=2, again=again))
    return found


def differences(found):
    return {name: one.differences.in_order() for name, one in found.items() if one.differences.count}


@pytest.mark.parametrize(("page", "step"), [long(3, 5), (500, 1)])
def test_what_was_verified_is_not_read_again_and_what_came_since_is(database, monkeypatch, step, page):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    records = histories_interleaved()
    part = len(records) // step + 1 if step > 1 else len(records) // 2
    seen: dict[str, int] = {}

    async def run():
        async with Projecting(database, cache_bytes=1) as projecting:
            for first in range(0, len(records), part):
                await projecting.store(records[first : first + part])
                reported: list[Verified] = []
                await verify_many(Settings(database_url=database), None, reported.append, jobs=2, again=False)
                for one in reported:
                    assert one.differences.in_order() == [], (one.context_id, one.after)
                    assert one.after == seen.get(one.context_id, 0)
                    seen[one.context_id] = one.version

    asyncio.run(run())
    assert seen.keys() == {path.stem for path in HISTORIES}
    assert {one.frames for one in run_many(database).values()} == {0}
    assert min(one.frames for one in run_many(database, again=True).values()) > 0


def test_going_on_finds_what_was_changed_since_and_again_finds_what_was_changed_before(database):
    log = Log()
    lines = next(path for path in HISTORIES if path.stem == DESK).read_bytes().splitlines()
    for line in lines[:60]:
        log.add(DESK, line)
    project(database, log.records, sizes=(2_000,))
    assert differences(run_many(database)) == {}
    before = len(log.records)
    for line in lines[60:]:
        log.add(DESK, line)
    project(database, log.records[before:], sizes=(2_000,))
    changed(
        database,
        f"UPDATE messages SET text = 'x' WHERE context_id = '{DESK}' AND valid_from > 60 "
        "AND valid_from = (SELECT max(valid_from) FROM messages)",
    )
    late = differences(run_many(database))[DESK]
    assert [(one.table, one.field) for one in late] == [("messages", "text")]
    assert late[0].version > 60
    changed(database, f"UPDATE frames SET source = 'x' WHERE context_id = '{DESK}' AND version = 5")
    assert [one.version for one in differences(run_many(database))[DESK]] == [late[0].version]
    assert [one.version for one in differences(run_many(database, again=True))[DESK]] == [5, late[0].version]


@pytest.mark.long
@pytest.mark.regression("fault 177")
@pytest.mark.parametrize(
    "damage",
    [
        "state = '{}'",
        "state = '7'",
        "head = '7'",
        "head = '{}'",
        "head = replace(head::text, '\"row\"', '\"rov\"')::json",
        "head = replace(head::text, 'started_at\": \"', 'started_at\": \"x')::json",
    ],
)
def test_what_was_remembered_and_cannot_be_read_is_verified_again(stored, damage):
    before = run_many(stored)
    changed(stored, f"UPDATE verified SET {damage} WHERE context_id = '{DESK}'")
    again = run_many(stored)
    assert differences(again) == {}
    assert {name: one.frames for name, one in again.items() if one.frames} == {DESK: before[DESK].frames}
    assert not any(one.frames for one in run_many(stored).values())


def test_a_head_that_fell_behind_what_was_verified_is_found(stored):
    assert differences(run_many(stored)) == {}
    changed(stored, f"DELETE FROM frames WHERE context_id = '{DESK}' AND version > 50")
    rechained(stored, DESK)
    assert ("contexts", "version") in {(one.table, one.field) for one in differences(run_many(stored))[DESK]}


def test_a_changed_row_of_a_conversation_that_did_not_go_on_is_found_in_its_head(stored):
    run_many(stored)
    changed(stored, f"UPDATE contexts SET message_count = message_count + 1 WHERE context_id = '{DESK}'")
    assert [one.field for one in differences(run_many(stored))[DESK]] == ["message_count"]


def test_a_conversation_that_moves_while_it_is_verified_is_no_difference(database, monkeypatch):
    """The projector writes between two pages of one conversation."""
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", 10)
    records = histories_interleaved()
    half = len(records) // 2
    ours = stored_rows.frames

    async def run():
        async with (
            Projecting(database) as projecting,
            await AsyncConnection.connect(database, autocommit=True) as connection,
        ):
            await projecting.store(records[:half])
            rest = iter(range(half, len(records), 50))

            async def frames(*arguments, **options):
                async for page in ours(*arguments, **options):
                    yield page
                    if (first := next(rest, None)) is not None:
                        await projecting.store(records[first : first + 50])

            monkeypatch.setattr(stored_rows, "frames", frames)
            await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            found = await verify(connection, [path.stem for path in HISTORIES])
            assert next(rest, None) is None, "nothing was written meanwhile"
            return {one.context_id: one for one in found}

    assert differences(asyncio.run(run())) == {}


@pytest.mark.regression("fault 31")
def test_a_life_that_begins_while_what_came_before_it_is_verified_is_no_difference(database, monkeypatch):
    log = Log()
    log.add("lives", encode_frame(EndFrame()))
    project(database, log.records)
    remember = verified.store

    async def late(connection, found):
        async with Projecting(database) as projecting:
            for frame in (LLMContextEraseFrame(why="a test"), EndFrame()):
                log.add("lives", encode_frame(frame))
            await projecting.store(log.records[-2:])
        await remember(connection, found)

    monkeypatch.setattr(verified, "store", late)
    assert differences(run_many(database)) == {}
    monkeypatch.setattr(verified, "store", remember)
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM verified") == 0
    found = run_many(database)
    assert differences(found) == {}
    assert (found["lives"].frames, found["lives"].frames_before) == (1, 0)


@pytest.mark.long
@pytest.mark.parametrize("limit", [1, 10_000, 1_000_000])
def test_conversations_are_read_together_as_far_as_they_fit_and_all_are_verified(stored, monkeypatch, limit):
    monkeypatch.setattr(stored_rows, "PAGE_BYTES", limit)

    async def read(context_ids):
        async with await AsyncConnection.connect(stored, autocommit=True) as connection:
            together = stored_rows.short(connection, dict.fromkeys(context_ids, Behind(0, 0)))
            return [(name, len(whole.frames)) async for name, whole in together]

    with psycopg.connect(stored, autocommit=True) as connection:
        sizes = connection.execute(
            "SELECT context_id, count(*), sum(octet_length(payload::text)) FROM frames GROUP BY context_id"
        ).fetchall()
    found = asyncio.run(read([name for name, _, _ in sizes]))
    assert sorted(found) == sorted((name, count) for name, count, size in sizes if size <= limit)
    assert differences(run_many(stored)) == {}
    names = [name for name, _, _ in sizes]
    changed(stored, "UPDATE frames SET source = 'x' WHERE version = 2")
    for asked in (names, None):
        found = differences(run_many(stored, asked, again=True))
        assert {name: one[0].version for name, one in found.items()} == dict.fromkeys(names, 2)


@pytest.mark.long
def test_a_parked_conversation_is_compared_up_to_where_it_was_parked(database, monkeypatch):
    def failing(state, frame, *others):
        if (state.context_id, state.version) == (DESK, 29):
            raise ValueError("cannot fold version 30")
        return evolve(state, frame, *others)

    monkeypatch.setattr(batch_fold, "evolve", failing)
    project(database, histories_interleaved(), sizes=(2_000,))
    for again in (True, False, False):
        found = run_many(database, again=again)
        assert differences(found) == {}
        assert found[DESK].parked_version == 30
    changed(database, f"UPDATE frames SET outcome = 'applied' WHERE context_id = '{DESK}' AND version = 40")
    assert differences(run_many(database, again=True))[DESK][0].version == 40
    changed(
        database,
        f"UPDATE frames SET outcome = 'parked' WHERE context_id = '{DESK}' AND version = 40",
        f"UPDATE frames SET source = 'x' WHERE context_id = '{DESK}' AND version = 45",
    )
    assert differences(run_many(database, again=True))[DESK][0].version == 45


def test_what_an_older_fold_made_is_not_compared_but_its_chain_is(stored):
    changed(
        stored,
        f"UPDATE contexts SET folded_by = '[[1, 1], [9, 4]]' WHERE context_id = '{DESK}'",
        f"UPDATE messages SET text = 'otherwise' WHERE context_id = '{DESK}'",
    )
    found = run_many(stored)
    assert differences(found) == {}
    assert [one.context_id for one in found.values() if one.is_older] == [DESK]
    changed(stored, f"UPDATE frames SET source = 'x' WHERE context_id = '{DESK}' AND version = 7")
    assert [one.version for one in differences(run_many(stored))[DESK]] == [7]


@pytest.mark.parametrize(
    "setting",
    [
        "role=frameledger_reader",
        pytest.param("default_transaction_read_only=on", marks=pytest.mark.regression("fault 268")),
    ],
)
def test_who_may_only_read_verifies_and_remembers_nothing(stored, setting):
    address = make_conninfo(stored, options=f"-c {setting}")
    assert differences(run_many(address)) == {}
    with psycopg.connect(stored) as connection:
        assert value_of(connection, "SELECT count(*) FROM verified") == 0


@pytest.mark.long
def test_a_long_conversation_is_verified_in_the_memory_of_a_short_one(database):
    log = Log()
    log.add("long", b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Count."}]}')
    for turn in range(2_000):
        log.add("long", b'{"type":"LLMFullResponseStartFrame"}')
        for word in range(18):
            log.add("long", b'{"type":"LLMTextFrame","text":"%d "}' % (turn * word))
        log.add("long", b'{"type":"LLMFullResponseEndFrame"}')
    project(database, log.records, sizes=(5_000,))
    frames = len(log.records)
    del log
    run_many(database, again=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = run_many(database, again=True)
    assert differences(found) == {}
    assert found["long"].version == frames > 40_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} KiB more"


@pytest.mark.regression("journey 120")
def test_the_command_of_the_page_on_proofs_finds_what_was_changed_after_it_was_verified(stored, command):
    page = (Path(__file__).resolve().parents[2] / "infra/docs/how-to/prove.md").read_text("utf-8")
    [words] = re.findall(r"compares links; `frameledger verify ([^`]+)`\s+computes", page)
    assert command(stored, *words.split()).exit_code == 0
    changed(
        stored,
        "UPDATE frames SET payload = replace(payload::text, 'a', 'b')::json "
        f"WHERE context_id = '{DESK}' AND type = 'TranscriptionFrame'",
    )
    not_read = command(stored, "--all")
    assert (not_read.exit_code, "not read: see --again" in not_read.stdout) == (0, True)
    assert command(stored, *words.split()).exit_code == 1


@pytest.fixture
def command(command):
    """Run `frameledger verify` against a database."""
    return lambda address, *words: command(address, "verify", *words)


def test_the_command_says_what_it_checked_and_what_differs(stored, command):
    fine = command(stored, "--all")
    assert (fine.exit_code, fine.stderr) == (0, "")
    assert fine.stdout.splitlines()[-1] == "No difference."
    changed(
        stored,
        f"UPDATE messages SET role = 'nobody' WHERE context_id = '{DESK}' AND valid_from = "
        f"(SELECT min(valid_from) FROM messages WHERE context_id = '{DESK}' AND role = 'user')",
    )
    told = command(stored, DESK, "--again")
    assert told.exit_code == 1
    assert told.stdout.splitlines()[0].startswith(f"{DESK}  version ")
    assert "messages.role" in told.stdout.splitlines()[0]
    assert told.stdout.splitlines()[-1] == "1 differ."
    assert max(map(len, told.stdout.splitlines())) <= 100
    assert told.stderr.startswith("`frameledger rebuild --context ID --apply` folds the frames")
    as_json = json.loads(command(stored, "--all", "--again", "--json").stdout)
    assert [one["context_id"] for one in as_json["different"]] == [DESK]
    assert as_json["different"][0]["differences"][0]["stored"] == "nobody"


@pytest.mark.regression("fault 181")
@pytest.mark.parametrize(
    ("statement", "remedies"),
    [
        ("UPDATE runs SET status = 'failed' WHERE {} AND status = 'ended'", ["--context ID --apply"]),
        ("DELETE FROM frames WHERE {} AND version = 3", ["--from kafka --context ID --apply"]),
        ("UPDATE frames SET run_id = 'x' WHERE {} AND version = 3", ["backup"]),
        ("UPDATE frames SET outcome = 'unknown' WHERE {} AND version = 3", ["--context ID --apply"]),
        pytest.param(
            "DELETE FROM contexts WHERE {}",
            ["No command repairs rows without a row of `contexts`"],
            marks=pytest.mark.regression("fault 196"),
        ),
    ],
)
def test_the_command_says_what_to_do_about_what_differs(stored, command, statement, remedies):
    changed(stored, statement.format(f"context_id = '{DESK}'"))
    told = command(stored, DESK)
    assert told.exit_code == 1
    lines = told.stderr.splitlines()
    assert len(lines) == len(remedies)
    assert all(remedy in line for remedy, line in zip(remedies, lines, strict=True))


@pytest.mark.regression("journey 41")
def test_of_what_is_not_there_nothing_is_said_to_be_verified(stored, command):
    told = command(stored, "nobody", "no one")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.splitlines() == [
        "There is no context 'nobody' in the database. There is no file with that name either.",
        "There is no context 'no one' in the database. There is no file with that name either.",
        "`frameledger list` lists the conversations.",
    ]
    told = command(stored, DESK, "nobody")
    assert told.exit_code == 1
    assert told.stdout.startswith("Verified 1 conversation: ")
    assert told.stderr.startswith("There is no context 'nobody' in the database.")


def test_the_command_refuses_what_is_not_said(database, command):
    assert command(database).exit_code == 2
    assert command(database, DESK, "--all").exit_code == 2


def test_rows_without_a_head_are_found(stored, command):
    changed(stored, f"DELETE FROM contexts WHERE context_id = '{DESK}'")
    told = command(stored, "--all")
    assert told.exit_code == 1
    assert told.stdout.startswith(f"{DESK}  version 1  frames: a row is unexpected")
    assert command(stored, DESK).exit_code == 1


@pytest.mark.long
def test_real_conversations_differ_in_nothing(database, shared):
    log = Log()
    for line in (shared / "data" / "real-conversations.jsonl").read_bytes().splitlines():
        one = json.loads(line)
        for frame in one["frames"]:
            log.add(one["name"], json.dumps(frame).encode())
    project(database, log.records, sizes=(1_000,))
    found = run_many(database)
    assert differences(found) == {}
    assert sum(one.frames for one in found.values()) == len(log.records)


@pytest.mark.parametrize("page", [long(11), 500])
def test_random_conversations_differ_in_nothing(database, monkeypatch, page):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    log = Log()
    for seed in range(60):
        for frame in random_conversation(seed, 120):
            log.add(f"talk-{seed}", encode_frame(frame))
    project(database, log.records, sizes=(2_000,))
    found = run_many(database)
    assert differences(found) == {}
    assert len(found) == 60
