"""All conversations are rebuilt one at a time: differences are reported and replaced once, and an interrupted rebuild
resumes."""

import asyncio
import dataclasses
import json
import time
from contextlib import nullcontext

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.batches import HISTORIES, Log, dump, histories_interleaved, project, value_of
from tests.support.databases import until_somebody_waits
from tests.support.rebuilding import NAMES, Done, killed_at, pairs_of, rebuild_in
from tests.support.releases import NEWER, SHOUTED, newer_release
from tests.support.tampering import changed
from tests.support.tiers import long
from tests.support.transferring import exported, imported
from tests.support.unparking import Sent
from typer.testing import CliRunner

from frameledger.decoding import decode
from frameledger.evolve import evolve
from frameledger.frames import LLMMessagesAppendFrame, LLMRunFrame, encode_frame
from frameledger.record import Record
from frameledger_services import failpoints
from frameledger_services.audit import rebuild as rebuilding
from frameledger_services.audit.rebuild import AlreadyRunningError, RebuildOptions, rebuild_many
from frameledger_services.cli import application
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.projector import batch_fold, refold

EVERYTHING = {path.stem for path in HISTORIES}


def said(text):
    return encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}]))


def talk(*values, key="ctx", at=None):
    """The records of a conversation; `at` is when the broker took them, in seconds since 1970."""
    log = Log()
    for value in values:
        log.add(key, value)
    return [
        one
        if at is None
        else Record(one.topic, one.partition, one.offset, one.key, one.value, one.headers, int(at * 1000))
        for one in log.records
    ]


def one(address, query):
    with psycopg.connect(address) as connection:
        return value_of(connection, query)


class Restored:
    """Stands in for the restoring of missing rows; reports two."""

    async def restore(self, connection, context_id):
        return 2


def test_frames_that_were_restored_are_told_also_if_the_rest_is_damaged(database):
    project(database, talk(said("one"), said("two")))
    changed(
        database, "UPDATE frames SET payload = replace(payload::text, 'two', 'six')::json WHERE version = 2"
    )
    outcome = rebuild_in(database, "ctx", restoring=Restored()).outcomes["ctx"]
    assert "damaged at version 2" in outcome.problem
    assert outcome.restored == 2


@pytest.mark.regression("fault 180")
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("type", "'LLMRunFrame'"),
        long("run_id", "'another'"),
        long("tool_call_id", "'another'"),
        ("produced_at", "now()"),
    ],
)
def test_a_column_of_frames_that_no_rebuild_replaces_is_no_success(database, column, value):
    project(database, talk(said("one"), said("two")))
    changed(database, f"UPDATE frames SET {column} = {value} WHERE version = 2")
    for apply in (False, True):
        done = rebuild_in(database, "ctx", apply=apply)
        assert column in done.outcomes["ctx"].problem
        assert (done.progress.failed_count, done.progress.rebuilt_count) == (1, 0)
    changed(database, "UPDATE messages SET text = 'six' WHERE valid_from = 1")
    done = rebuild_in(database, "ctx")
    assert column in done.outcomes["ctx"].problem
    assert (done.progress.failed_count, done.progress.rebuilt_count) == (1, 1)
    assert rebuild_in(database, "ctx").progress.rebuilt_count == 0


@pytest.mark.long
def test_what_differs_is_told_and_replaced_once(database):
    project(database, histories_interleaved())
    before = dump(database)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE messages SET text = 'x' WHERE context_id = 'barge-in' AND position = 1")
        version = value_of(
            connection, "SELECT valid_from FROM messages WHERE context_id = 'barge-in' AND position = 1"
        )
    compared = rebuild_in(database, apply=False)
    assert compared.differing == {"barge-in": version}
    assert compared.outcomes.keys() == EVERYTHING
    assert dump(database) != before

    replaced = rebuild_in(database)
    assert (replaced.differing, replaced.progress.rebuilt_count) == ({"barge-in": version}, 1)
    assert dump(database) == before
    assert rebuild_in(database).progress.differ_count == 0
    assert one(database, "SELECT sum(rebuilt) FROM contexts") == 1


def test_a_changed_rule_is_told_with_conversations_and_versions(database, monkeypatch):
    project(database, talk(said("loud"), said(SHOUTED), key="changes") + talk(said("loud"), key="stays"))
    with newer_release(monkeypatch):
        assert rebuild_in(database, apply=False).differing == {"changes": 2}
        assert rebuild_in(database).progress.rebuilt_count == 2
        assert rebuild_in(database).progress.rebuilt_count == 0
    assert one(
        database, "SELECT array_agg(DISTINCT (fold_version, folded_by::text)::text) FROM contexts"
    ) == [f"({NEWER},)"]
    assert one(database, "SELECT context_at('changes')")["messages"][1]["content"] == SHOUTED.upper()

    refused = rebuild_in(database)
    assert refused.progress.failed_count == 2
    assert "upgrade" in refused.outcomes["changes"].problem
    assert rebuild_in(database, downgrade=True).progress.rebuilt_count == 2
    assert one(database, "SELECT context_at('changes')")["messages"][1]["content"] == SHOUTED


def unaware_of(*types):
    """Returns the fold of a release that does not know these types of frames."""
    unknown = decode(b'{"type":"unknown"}')
    return lambda state, frame, *others: evolve(
        state, unknown if isinstance(frame, types) else frame, *others
    )


def test_what_was_unknown_is_folded_and_its_outcome_kept_with_the_reason(database, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(batch_fold, "evolve", unaware_of(LLMMessagesAppendFrame))
        project(database, talk(said("Hi"), said("You there?")))
    project(database, talk(encode_frame(LLMRunFrame()), key="other"))
    done = rebuild_in(database, selection="unknown")
    assert done.outcomes.keys() == {"ctx"}
    assert done.outcomes["ctx"].rebuilt.settled == 2
    assert len(one(database, "SELECT context_at('ctx')")["messages"]) == 2
    with psycopg.connect(database) as connection:
        changed = connection.execute("SELECT version, old_outcome, new_outcome, why FROM outcome_changes")
        assert sorted(changed) == [(1, "unknown", "applied", "a test"), (2, "unknown", "applied", "a test")]
        assert value_of(connection, "SELECT intact FROM verify_chain('ctx')") is True
    assert rebuild_in(database, selection="unknown").outcomes == {}


@pytest.mark.parametrize(
    ("age", "topic"), [(0, "llm.inference"), (3_600, "llm.frames")], ids=["young", "old"]
)
def test_a_run_that_is_open_only_now_is_asked_for_or_closed(database, monkeypatch, age, topic):
    with monkeypatch.context() as older:
        older.setattr(batch_fold, "evolve", unaware_of(LLMRunFrame))
        project(database, talk(said("Hi"), encode_frame(LLMRunFrame()), at=time.time() - age))
    assert one(database, "SELECT count(*) FROM runs") == 0
    # An operator may do all of that.
    done = rebuild_in(make_conninfo(database, options="-c role=frameledger_operator"))
    begun = done.outcomes["ctx"].rebuilt.newly_open
    assert [(work.kind, work.version) for work in begun] == [("run", 2)]
    assert [row.to_topic for row in done.sent.rows] == [topic]
    assert one(database, "SELECT count(*) FROM outbox") == 0
    assert rebuild_in(database, "ctx").sent.rows == []


@pytest.mark.regression("fault 54")
def test_what_opens_in_an_imported_conversation_is_in_the_outbox_of_a_partition_with_an_owner(
    database, make_database, migrated_template, monkeypatch
):
    """Its frames are in no partition, so an outbox row with their partition would never be published."""
    origin = make_database(template=migrated_template)
    with monkeypatch.context() as older:
        for module in (batch_fold, refold):
            older.setattr(module, "evolve", unaware_of(LLMRunFrame))
        project(origin, talk(said("Hi"), encode_frame(LLMRunFrame())))
        imported(database, exported(origin))
    project(database, talk(said("Hi"), key="other"))
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE projections SET effects_held_until = 9")
    done = rebuild_in(database, "ctx", sent=Sent(BrokerError("away")))
    [row] = done.outcomes["ctx"].rebuilt.outbox
    assert row.partition in one(database, "SELECT array_agg(partition) FROM projections")
    assert row.key == b"ctx"
    # An older release closes it, and this one opens it again, before the effect is published.
    with monkeypatch.context() as older:
        older.setattr(refold, "evolve", unaware_of(LLMRunFrame))
        assert rebuild_in(database, "ctx").outcomes["ctx"].rebuilt.over
    assert [again.value for again in rebuild_in(database, "ctx").sent.rows] == [row.value]


@pytest.mark.long
def test_an_interrupted_rebuild_goes_on_where_it_stopped_and_is_done_by_one_process_at_a_time(
    database, monkeypatch
):
    project(database, histories_interleaved())
    monkeypatch.setattr(rebuilding, "PAGE", 2)
    pages = 0

    async def stop_in_the_third_page(point):
        nonlocal pages
        pages += point == "before progress"
        if pages == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        rebuild_in(database, failpoint=stop_in_the_third_page)
    done = rebuild_in(database)
    assert done.began_behind == sorted(EVERYTHING)[3]
    assert done.left == len(EVERYTHING) - 4
    assert done.outcomes.keys() == set(sorted(EVERYTHING)[4:])
    assert done.progress.read_count == len(EVERYTHING)

    async def meanwhile(point):
        if point == "before progress":
            async with pairs_of(database, 1) as pairs:
                another, chosen = Done(), RebuildOptions(NAMES, apply=True, why="a test")
                with pytest.raises(AlreadyRunningError):
                    await rebuild_many(pairs, chosen, "all", another.sent, another.report, another.begun)

    assert rebuild_in(database, failpoint=meanwhile).began_behind is None
    assert one(database, "SELECT count(*) FROM rebuilds WHERE ended_at IS NULL") == 0


@pytest.mark.regression("fault 308")
@pytest.mark.parametrize("ends", [True, False], ids=["it ends meanwhile", "it dies meanwhile"])
def test_the_one_that_waits_for_another_knows_how_far_that_one_came(database, monkeypatch, ends):
    """It sees the same rebuild as interrupted, and waits for the session that holds it."""
    project(database, talk(said("Hi"), key="a") + talk(said("Hi"), key="b"))
    changed(database, "UPDATE messages SET text = 'Ho'")
    monkeypatch.setattr(rebuilding, "PAGE", 1)
    done = Done()
    chosen = RebuildOptions(NAMES, apply=True, why="a test")

    async def rebuilt(done, pairs, failpoint=failpoints.none):
        options = dataclasses.replace(chosen, failpoint=failpoint)
        done.progress = await rebuild_many(pairs, options, "all", done.sent, done.report, done.begun)

    async def run():
        async with pairs_of(database, 1) as pairs, asyncio.TaskGroup() as tasks:
            pages = 0

            async def let_another_wait(point):
                nonlocal pages
                pages += point == "after progress"
                if point == "after progress" and pages == 1:
                    tasks.create_task(rebuilt(done, pairs))
                    await until_somebody_waits(database)
                elif point == "after progress" and not ends:
                    raise InterruptedError

            async with pairs_of(database, 1) as [first]:
                with nullcontext() if ends else pytest.raises(InterruptedError):
                    await rebuilt(Done(), [first], let_another_wait)

    asyncio.run(run())
    assert done.outcomes.keys() == ({"a", "b"} if ends else set())
    with psycopg.connect(database) as connection:
        totals = connection.execute(
            "SELECT read_count, rebuilt_count FROM rebuilds ORDER BY number"
        ).fetchall()
    assert totals == ([(2, 2), (2, 0)] if ends else [(2, 2)])


@pytest.mark.long
@pytest.mark.parametrize("staged_above", [0, 1_000], ids=["folded before the lock", "folded under the lock"])
def test_wherever_it_is_killed_each_conversation_is_as_before_or_as_it_should_be(
    database, monkeypatch, staged_above
):
    with monkeypatch.context() as older:
        older.setattr(batch_fold, "evolve", unaware_of(LLMRunFrame))
        project(database, talk(said("Hi"), encode_frame(LLMRunFrame()), at=time.time()))
    before = dump(database)
    seen, statement = [before], 1
    while killed_at(database, statement, staged_above=staged_above):
        now = dump(database)
        if now != seen[-1]:
            seen.append(now)
        statement += 1
    assert statement > 15
    # The tables changed once, from the old state to the new one, by one commit.
    assert len(seen) == 2
    assert one(database, "SELECT rebuilt FROM contexts") == 1
    assert one(database, "SELECT count(*) FROM runs WHERE status = 'open'") == 1
    assert one(database, "SELECT count(*) FROM outbox WHERE kind = 'effect'") <= 1


def test_the_command_says_what_differs_and_changes_nothing_without_apply(database, monkeypatch, tmp_path):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", database)
    monkeypatch.setenv("FRAMELEDGER_DATA_DIR", str(tmp_path))
    project(database, talk(said("Hi")) + talk(said("Hi"), key="other"))
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE messages SET text = 'Ho' WHERE context_id = 'ctx'")
    before = dump(database)

    def run(*words):
        return CliRunner().invoke(application(), ["rebuild", *words])

    all_of_them = run()
    assert all_of_them.exit_code == 1, all_of_them.output
    assert all_of_them.stdout.splitlines() == [
        "ctx  1 difference up to version 1",
        "  version 1, messages.text of era 1, position 1 is Ho, should be Hi",
        "2 conversations folded again: 1 differed. Nothing was changed; --apply replaces what differs.",
    ]
    assert dump(database) == before
    assert run("--context", "other").exit_code == 0
    told = [json.loads(line) for line in run("--context", "ctx", "--json").stdout.splitlines()]
    assert told[0]["differences"][0]["expected"] == "Hi"
    assert told[1]["summary"]["differ_count"] == 1
    missing = run("--context", "nobody", "--context", "ctx", "--context", "no one")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (
        1,
        "These conversations do not exist: 'nobody', 'no one'.",
    )
    assert run("--context", "ctx", "--outcome", "unknown").exit_code == 2
