"""Export and import: an imported conversation is the same conversation, in a database whose log never had it."""

import asyncio
import json
import signal

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel
from tests.bounds import ON_SERVERS
from tests.support.batches import Log, Projecting, histories_interleaved, project, rows_of, value_of
from tests.support.databases import made, until_somebody_waits
from tests.support.tiers import long
from tests.support.transferring import exported, imported, killed_while_importing, random_log
from typer.testing import CliRunner

from frameledger import record
from frameledger.evolve import evolve
from frameledger_services.audit.verify import verify
from frameledger_services.cli import application
from frameledger_services.projector import batch_fold, refold
from frameledger_services.store import frame_pages, staged_rows
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.transfer import import_folding, importing
from frameledger_services.transfer.importing import ImportRefusedError

TABLES = ("frames", "messages", "eras", "context_settings", "contexts", "runs", "tool_calls")
PLACE = {"partition": -1, "generation": 0}


def rows_without_places(address):
    """Every row of the folded tables, without the columns that an import does not take along: places on the log, and
    how often a frame was repeated there."""
    with psycopg.connect(address) as connection:
        tables = {table: [json.loads(row) for row in rows_of(connection, table)] for table in TABLES}
    for row in tables["frames"]:
        for name in ("partition", "generation", "offset"):
            row.pop(name)
        if not isinstance(row["payload"].get("id"), str):  # old clients number their frames
            row.pop("frame_id")
    for row in tables["contexts"]:
        row.pop("duplicate_count")
    return {table: sorted(map(json.dumps, rows)) for table, rows in tables.items()}


def contexts_at(address, context_id, upto):
    with psycopg.connect(address) as connection:
        return [
            value_of(connection, "SELECT context_at(%s, %s)::text", context_id, version)
            for version in range(upto + 1)
        ]


def heads(address):
    with psycopg.connect(address) as connection:
        return {
            context_id: (version, bytes(chain))
            for context_id, version, chain in connection.execute(
                "SELECT context_id, version, chain FROM contexts"
            )
        }


def differences(address):
    """The differences that verifying finds, by conversation."""

    async def run():
        async with await AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            done = await verify(connection, list(heads(address)))
            return {one.context_id: one.differences.in_order() for one in done if one.differences.count}

    return asyncio.run(run())


@pytest.fixture(name="other")
def another_database(make_database, migrated_template):
    return make_database(template=migrated_template)


@pytest.fixture(params=[1_000, 0], ids=["not staged", "staged"])
def staged(request, monkeypatch):
    """Runs a test twice: with conversations that are written page by page, and with staged ones."""
    monkeypatch.setattr(importing, "STAGED_ABOVE", request.param)


@pytest.mark.parametrize(
    ("page", "seeds", "staged_above"), [(1, 3, 1_000), (7, 3, 0), long(7, 8, 1_000), long(500, 8, 20)]
)
def test_what_is_imported_is_the_same_conversation_at_every_version(
    database, other, monkeypatch, page, seeds, staged_above
):
    monkeypatch.setattr(importing, "STAGED_ABOVE", staged_above)
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    monkeypatch.setattr(importing, "PAGE_FRAMES", page)
    log, _ = random_log(range(seeds))
    project(database, log.records)
    before = heads(database)
    content = exported(database)
    done = imported(other, content)

    assert (done.conversations, done.frames) == (len(before), sum(version for version, _ in before.values()))
    assert differences(other) == {}
    after = heads(other)
    assert after.keys() == before.keys()
    longer = {context_id for context_id in after if after[context_id] != before[context_id]}
    assert len(longer) == done.ended
    assert longer
    with psycopg.connect(other) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox") == 0
        assert value_of(connection, "SELECT bool_and(intact) FROM contexts, verify_chain(context_id)") is True
    for context_id, (version, chain) in before.items():
        assert contexts_at(other, context_id, version) == contexts_at(database, context_id, version)
        with psycopg.connect(other) as connection:
            at = "SELECT chain FROM frames WHERE context_id = %s AND version = %s"
            assert bytes(value_of(connection, at, context_id, version)) == chain
        assert after[context_id][0] == version + (context_id in longer)


@pytest.mark.usefixtures("staged")
def test_rows_are_those_of_the_projector_and_a_second_export_is_the_same_file(database, other):
    log = Log()
    for one in histories_interleaved():
        if one.key is not None:
            log.add(one.key, one.value)
    for key in {one.key for one in log.records}:
        log.add(key, b'{"type":"EndFrame"}')
    project(database, log.records)
    content = exported(database)
    done = imported(other, content)
    assert done.ended == 0
    mine, theirs = rows_without_places(other), rows_without_places(database)
    assert {
        table: set(mine[table]) ^ set(theirs[table]) for table in TABLES if mine[table] != theirs[table]
    } == {}
    assert mine == theirs
    again = [json.loads(line) for line in exported(other).splitlines()]
    first = [json.loads(line) for line in content.splitlines()]
    for one in (*again, *first):
        one.pop("sha256")
        one.pop("place", None)
        if "payload" in one and not isinstance(json.loads(one["payload"]).get("id"), str):
            one.pop("frame_id")
    assert again == first


def test_what_was_open_is_ended_and_nobody_works_on_it(database, other):
    log = Log()
    for value in (
        {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "hi"}], "run_llm": True},
        {"type": "LLMRunFrame"},
        {"type": "FunctionCallInProgressFrame", "function_name": "f", "tool_call_id": "c", "arguments": {}},
        {"type": "UserStartedSpeakingFrame"},
    ):
        log.add("open", json.dumps(value).encode())
    log.add("mirror", b'{"type":"LLMContextFrame","context":{},"react":false}')
    log.add("mirror", b'{"type":"UserStartedSpeakingFrame"}')
    project(database, log.records)
    done = imported(other, exported(database))
    assert (done.conversations, done.ended) == (2, 1)
    with psycopg.connect(other) as connection:
        assert value_of(connection, "SELECT count(*) FROM runs WHERE status IN ('open', 'requested')") == 0
        assert value_of(connection, "SELECT status FROM tool_calls") == "cancelled"
        assert (
            value_of(connection, "SELECT turn_opened_version FROM contexts WHERE context_id = 'open'") is None
        )
        last = connection.execute(
            "SELECT version, type, source, partition, generation FROM frames WHERE context_id = 'open' "
            "ORDER BY version DESC LIMIT 1"
        ).fetchone()
        assert last == (5, "EndFrame", import_folding.SOURCE, -1, 0)
        assert value_of(connection, "SELECT version FROM contexts WHERE context_id = 'mirror'") == 2


def test_an_imported_conversation_goes_on_when_somebody_publishes(database, other):
    log = Log()
    for words in ("one", "two"):
        log.add("ctx", json.dumps({"type": "TranscriptionFrame", "text": words}).encode())
    project(database, log.records)
    imported(other, exported(database))
    later = Log()
    later.add("ctx", b'{"type":"UserStartedSpeakingFrame"}')
    later.add("ctx", b'{"type":"TranscriptionFrame","text":"three"}')
    later.add("ctx", b'{"type":"UserStoppedSpeakingFrame"}')
    outbox = project(other, later.records)
    assert [one.kind for one in outbox] == ["effect"]
    with psycopg.connect(other) as connection:
        said = connection.execute(
            "SELECT text FROM messages WHERE role = 'user' ORDER BY position"
        ).fetchall()
        assert [text for (text,) in said] == ["one", "two", "three"]
        assert value_of(connection, "SELECT intact FROM verify_chain('ctx')") is True
        assert value_of(connection, "SELECT partition >= 0 FROM frames ORDER BY version DESC LIMIT 1") is True
    assert differences(other) == {}


def small(database):
    log = Log()
    for context_id in ("a", "b"):
        for value in (b'{"type": "TranscriptionFrame",  "text":"h\\u00e9 \\ud83d"}', b'{"type":"EndFrame"}'):
            log.add(context_id, value, headers=[("ce_source", b"me")])
    project(database, log.records)
    return exported(database)


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("page", [1, 500])
def test_a_frame_without_an_id_gets_one_that_no_place_of_this_log_has(database, other, monkeypatch, page):
    monkeypatch.setattr(importing, "PAGE_FRAMES", page)
    log = Log()
    log.add("ctx", b'{"type":"LLMMessagesAppendFrame","messages":[],"run_llm":true}')
    unnamed = record.derived_id(record.place_of(log.records[0]))
    for number, cause in enumerate((unnamed, "named", "nobody")):
        value = json.dumps(
            {"type": "LLMTextFrame", "text": "so", "id": "named" if number == 0 else f"f{number}"}
        )
        log.add("ctx", value.encode(), headers=[("fl_causation_id", cause.encode())])
    log.add("ctx", b'{"type":"EndFrame","id":"end"}')
    project(database, log.records)
    imported(other, exported(database))
    with psycopg.connect(other) as connection:
        rows = connection.execute("SELECT frame_id, causation_id FROM frames ORDER BY version").fetchall()
    ids, causes = zip(*rows, strict=True)
    assert str(ids[0]) != unnamed
    assert causes == (None, ids[0], ids[1], frame_uuid("nobody"), None)
    # Another record with the same partition and offset is another frame.
    again = Log()
    again.add("ctx", b'{"type":"TranscriptionFrame","text":"other"}')
    project(other, again.records)
    assert heads(other)["ctx"][0] == 6


def test_files_that_were_put_together_are_a_file(database, other):
    small(database)
    done = imported(other, exported(database, "b") + exported(database, "a"))
    assert (done.conversations, heads(other)) == (2, heads(database))


def test_an_id_that_is_taken_or_was_erased_refuses_the_file_before_anything_is_written(database, other):
    content = small(database)
    log = Log()
    log.add("b", b'{"type":"LLMRunFrame"}')
    project(other, log.records)
    with pytest.raises(
        ImportRefusedError, match="The conversation 'b' exists here already, at version 1, and does"
    ):
        imported(other, content)
    assert heads(other).keys() == {"b"}
    with psycopg.connect(other) as operator:
        operator.execute("SELECT erase('b', 'asked')")
    with pytest.raises(ImportRefusedError, match="'b' was erased here on"):
        imported(other, content)
    assert heads(other) == {}


def test_what_is_there_already_is_passed_over_also_when_it_went_on_since(database, other):
    content = small(database)
    assert imported(database, content).there_already == 2
    assert imported(other, exported(database, "a")).conversations == 1
    log = Log()
    log.add("a", b'{"type":"TranscriptionFrame","text":"more"}')
    project(other, log.records)
    done = imported(other, content)
    assert (done.conversations, done.there_already) == (1, 1)
    assert heads(other)["a"][0] == 3


@pytest.mark.regression("fault 279")
def test_the_file_that_is_imported_is_the_one_that_was_checked_whatever_takes_its_name_meanwhile(
    database, other, monkeypatch, tmp_path
):
    """As the next backup of a job does."""
    path, newer = tmp_path / "all.jsonl", tmp_path / "newer.jsonl"
    content = small(database)
    path.write_bytes(content)
    newer.write_bytes(b"".join(content.splitlines(keepends=True)[:3]))
    check_free = importing.check_free

    async def checked(*arguments):
        to_do = await check_free(*arguments)
        newer.replace(path)
        return to_do

    monkeypatch.setattr(importing, "check_free", checked)
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", other)
    told = CliRunner().invoke(application(), ["import", str(path)])
    assert told.exit_code == 0, told.output
    assert heads(other).keys() == {"a", "b"}


@pytest.fixture(scope="module")
def six(database_server, migrated_template):
    """The heads of six conversations, and the file of their export."""
    log, _ = random_log(range(20, 26))
    with made(database_server, template=migrated_template) as (_, address):
        project(address, log.records)
        return heads(address), exported(address)


@pytest.mark.parametrize("point", ["after page", "before commit", "after commit"])
@pytest.mark.parametrize("times", [long(1), 2, long(4)])
def test_a_process_that_is_killed_leaves_whole_conversations_and_the_next_goes_on(six, other, point, times):
    there, content = six
    assert killed_while_importing(other, content, point, times) == -signal.SIGKILL
    left = heads(other)
    assert len(left) == times - (point != "after commit")
    assert differences(other) == {}
    done = imported(other, content)
    assert (done.there_already, done.conversations) == (len(left), len(there) - len(left))
    assert heads(other).keys() == there.keys()
    assert differences(other) == {}


def refuse_an_import_into(other, content, point, meanwhile, why):
    """Import `content` while a projector stores `meanwhile` at this point. The import is refused."""
    log = Log()
    log.add(*meanwhile)

    async def project(passed):
        if passed == point:
            async with Projecting(other) as projecting:
                await projecting.store(log.records)

    async def run():
        async with (
            asyncio.timeout(ON_SERVERS),
            await AsyncConnection.connect(other, autocommit=True) as connection,
        ):
            lines = content.splitlines(keepends=True)
            with pytest.raises(ImportRefusedError, match=why):
                await importing.write(connection, lines, lambda _: None, project)

    asyncio.run(run())


def test_a_projector_that_begins_the_conversation_meanwhile_is_right(database, other):
    begins = "b", b'{"type":"TranscriptionFrame","text":"mine"}'
    why = "The conversation 'b' exists here already"
    refuse_an_import_into(other, small(database), "after commit", begins, why)
    with psycopg.connect(other) as connection:
        assert value_of(connection, "SELECT text FROM messages WHERE context_id = 'b'") == "mine"
    assert heads(other)["a"] == heads(database)["a"]


@pytest.mark.regression("fault 343")
def test_a_projector_that_begins_a_long_conversation_while_it_is_folded_does_not_wait(
    database, other, monkeypatch
):
    monkeypatch.setattr(importing, "STAGED_ABOVE", 0)
    begins = "a", b'{"type":"TranscriptionFrame","text":"mine"}'
    refuse_an_import_into(
        other, small(database), "after page", begins, "The conversation 'a' exists here already"
    )
    assert heads(other)["a"][0] == 1


@pytest.mark.regression("fault 343")
def test_a_user_who_may_not_create_temporary_tables_imports_long_conversations_too(
    database, other, monkeypatch
):
    async def refused(connection):
        return False

    monkeypatch.setattr(importing, "STAGED_ABOVE", 0)
    monkeypatch.setattr(staged_rows, "may_stage", refused)
    imported(other, small(database))
    assert heads(other) == heads(database)


@pytest.mark.regression("fault 106")
def test_a_large_batch_that_begins_the_conversation_waits_for_the_import_and_goes_on(database, other):
    """It writes the heads of all its conversations before their frames."""
    lines = small(database).splitlines(keepends=True)
    log = Log()
    log.add("b", b'{"type":"TranscriptionFrame","text":"mine"}')
    for number in range(100):
        log.add(f"other-{number}", b'{"type":"LLMRunFrame"}')
    points: list[str] = []
    batches: list[asyncio.Task[None]] = []

    async def run():
        async with (
            Projecting(other) as projecting,
            await AsyncConnection.connect(other, autocommit=True) as connection,
        ):

            async def begin(passed):
                points.append(passed)
                # The second page is of the conversation "b".
                if points.count("after page") == 2 and not batches:
                    batches.append(asyncio.create_task(projecting.store(log.records)))
                    await until_somebody_waits(other)

            done = await importing.write(connection, lines, lambda _: None, begin)
            await batches[0]
            return done

    assert asyncio.run(run()).conversations == 2
    assert len(heads(other)) == 2 + 100
    assert heads(other)["b"][0] == heads(database)["b"][0] + 1
    assert differences(other) == {}


@pytest.mark.regression("fault 261")
@pytest.mark.parametrize(
    ("point", "staged_above"), [("after page", 1_000), ("before commit", 0)], ids=["not staged", "staged"]
)
def test_two_imports_of_one_file_at_once_both_end_well(database, other, monkeypatch, point, staged_above):
    monkeypatch.setattr(importing, "STAGED_ABOVE", staged_above)
    log, _ = random_log(range(4))
    project(database, log.records)
    lines = exported(database).splitlines(keepends=True)
    seconds: list[asyncio.Task[importing.Imported]] = []

    async def run():
        async with (
            await AsyncConnection.connect(other, autocommit=True) as connection,
            await AsyncConnection.connect(other, autocommit=True) as another,
        ):

            async def begin(passed):
                if passed == point and not seconds:
                    writing = importing.write(another, lines, lambda _: None)
                    seconds.append(asyncio.create_task(writing))
                    await until_somebody_waits(other)

            return await importing.write(connection, lines, lambda _: None, begin), await seconds[0]

    done = asyncio.run(run())
    assert sum(one.conversations for one in done) == len(heads(database))
    assert [one.conversations + one.there_already for one in done] == [len(heads(database))] * 2
    assert differences(other) == {}


def never_folds_the_bad_frame(state, frame, moment):
    if getattr(frame, "text", None) == "bad":
        raise KeyError("no such thing")
    return evolve(state, frame, moment)


@pytest.mark.regression("fault 262")
@pytest.mark.parametrize("page", [1, 500])
def test_a_parked_conversation_that_cannot_be_folded_is_left_out_and_named(
    database, other, monkeypatch, tmp_path, page
):
    monkeypatch.setattr(importing, "PAGE_FRAMES", page)
    monkeypatch.setattr(batch_fold, "evolve", never_folds_the_bad_frame)
    monkeypatch.setattr(refold, "evolve", never_folds_the_bad_frame)
    log = Log()
    for context_id in ("a", "b", "c"):
        for words in ("one", "bad" if context_id == "b" else "two", "three"):
            log.add(context_id, json.dumps({"type": "TranscriptionFrame", "text": words}).encode())
    project(database, log.records)
    path = tmp_path / "all.jsonl"
    path.write_bytes(exported(database))
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", other)
    command = ["import", str(path), "--json"]
    for there_already in (0, 2):
        told = CliRunner().invoke(application(), command)
        # Whoever restores by a script notices that one is missing.
        assert told.exit_code == 1, told.output
        done = json.loads(told.stdout)
        assert (done["conversations"], done["there_already"]) == (2 - there_already, there_already)
        assert done["left_out"] == ["b"]
        assert told.stderr == (
            "b was left out: it was parked when it was exported, and version 2 cannot be folded: "
            "KeyError: 'no such thing'.\n"
        )
        assert heads(other).keys() == {"a", "c"}
    monkeypatch.setattr(refold, "evolve", evolve)
    told = CliRunner().invoke(application(), command)
    assert told.exit_code == 0, told.output
    assert heads(other).keys() == {"a", "b", "c"}
    assert differences(other) == {}


@pytest.mark.regression("fault 39")
def test_a_conversation_that_is_erased_while_it_is_imported_is_not_brought_back(database, other):
    erases = "a", b'{"type":"LLMContextEraseFrame","why":"asked"}'
    refuse_an_import_into(other, small(database), "before first page", erases, "'a' was erased here on")
    assert heads(other) == {}
