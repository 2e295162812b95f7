"""`frameledger unpark` and `rebuild` are killed at every point, with a projector beside them and without, and at random
times; `import` and `export` at every point: run by `make chaos`. CHAOS_SEED=... sets the random times.
"""

import itertools
import json
import os
import random

import psycopg
import pytest
from tests.support.batches import dump, project, same, value_of
from tests.support.commands import environment
from tests.support.databases import made
from tests.support.killable import Plan, finish, projector
from tests.support.killable_command import KillableCommand, Moment, killed_at
from tests.support.parked_talks import park, said, talks
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause
from tests.support.transferring import exported, imported, random_log

SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
RANDOM_KILLS = 30
LASTING = Plan(member="it", session_ms=30_000)

NEVER = Moment(1_000_000)

IS_IMPORTING = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'frameledger import'
    )
"""

TAMPER = """
    UPDATE messages SET text = 'x' WHERE position %% 2 = 0 AND context_id = ANY (%(ids)s);
    DELETE FROM messages WHERE position %% 3 = 1 AND context_id = ANY (%(ids)s);
    DELETE FROM runs WHERE context_id = ANY (%(ids)s);
    DELETE FROM tool_calls WHERE context_id = ANY (%(ids)s);
    UPDATE contexts SET message_count = 0 WHERE context_id = ANY (%(ids)s);
"""


@pytest.fixture
def surroundings(pipeline, tmp_path):
    return {**os.environ, **environment(pipeline.settings), "FRAMELEDGER_DATA_DIR": str(tmp_path)}


def tamper(pipeline, names):
    """Change and delete rows of these conversations, including open work, which a rebuild then requests again."""
    with psycopg.connect(pipeline.address) as connection:
        for statement in filter(str.strip, TAMPER.split(";")):
            connection.execute(statement, {"ids": names})


def until_sessions_end(pipeline, name):
    """A command that was killed leaves no session, and so no lock."""
    pipeline.until(
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE %s)",
        f"{name}%",
    )


@pytest.mark.parametrize("beside", [True, False], ids=["beside a projector", "without a projector"])
def test_wherever_unpark_is_killed_the_next_one_comes_to_the_same_end(
    pipeline, surroundings, command, beside
):
    names = [f"ctx-{number}" for number in range(80)]
    with projector(pipeline.settings, LASTING) as running:
        park(pipeline, running, names)
        if not beside:
            assert running.stop() == 0
        number, is_killed = 0, True
        for number, name in enumerate(names, 1):
            is_killed = killed_at(["unpark", name], surroundings, Moment(number))
            pipeline.publish([said(name, "meanwhile")])
            if beside:
                pipeline.until_idle(running)
            until_sessions_end(pipeline, "frameledger unpark")
            again = command(pipeline.settings, "unpark", name)
            assert again.exit_code == 0 or "is not parked" in again.stderr, (number, again.output)
            verified = command(pipeline.settings, "verify", name)
            assert verified.exit_code == 0, (number, verified.output)
            if not is_killed:
                break
        assert not is_killed
        print(f"\nunpark was killed at {number - 1} points")
        for name in names[number:]:
            assert command(pipeline.settings, "unpark", name).exit_code == 0
        if beside:
            pipeline.until_idle(running)
            assert running.stop() == 0
    finish(pipeline, Plan(member="it"))
    with psycopg.connect(pipeline.address) as connection:
        twice = "SELECT context_id, version FROM outcome_changes GROUP BY 1, 2 HAVING count(*) > 1"
        assert connection.execute(twice).fetchall() == []
    pipeline.check()


@pytest.mark.parametrize("beside", [True, False], ids=["beside a projector", "without a projector"])
@pytest.mark.parametrize("staged_above", [0, 1_000], ids=["folded before the lock", "folded under the lock"])
def test_wherever_a_rebuild_is_killed_the_next_one_comes_to_the_same_end(
    pipeline, surroundings, command, beside, staged_above
):
    names = [f"ctx-{number}" for number in range(160)]
    with projector(pipeline.settings, LASTING) as running:
        pipeline.publish(talks(names))
        pipeline.until_idle(running)
        if not beside:
            assert running.stop() == 0
        number, is_killed = 0, True
        for number, name in enumerate(names, 1):
            tamper(pipeline, [name])
            words = ["rebuild", "--context", name, "--apply"]
            is_killed = killed_at(words, surroundings, Moment(number, staged_above=staged_above))
            if beside:
                pipeline.publish([said(name, "meanwhile")])
                pipeline.until("SELECT version = 8 FROM contexts WHERE context_id = %s", name)
            until_sessions_end(pipeline, "frameledger rebuild")
            again = command(pipeline.settings, *words)
            assert again.exit_code == 0, (number, again.output)
            verified = command(pipeline.settings, "verify", name)
            assert verified.exit_code == 0, (number, verified.output)
            with psycopg.connect(pipeline.address) as connection:
                rebuilt = "SELECT rebuilt FROM contexts WHERE context_id = %s"
                assert value_of(connection, rebuilt, name) == 1, number
            if not is_killed:
                break
        assert not is_killed
        print(f"\na rebuild was killed at {number - 1} points")
        if beside:
            assert running.stop() == 0
    finish(pipeline, Plan(member="it"))
    pipeline.check()


def test_a_rebuild_of_many_that_is_killed_at_random_times_ends_equal(pipeline, surroundings, command):
    print(f"\nCHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    names = [f"ctx-{number}" for number in range(80)]
    with projector(pipeline.settings, LASTING) as running:
        pipeline.publish(talks(names))
        pipeline.until_idle(running)
        for number in itertools.count():
            if number % 5 == 0:
                tamper(pipeline, names)
            if number == RANDOM_KILLS:
                break
            with KillableCommand(["rebuild", "--apply"], surroundings, NEVER) as process:
                pipeline.publish(said(name, "meanwhile") for name in chance.sample(names, 10))
                pause(0.2 + 1.5 * chance.random())
                process.kill()
        # The first one resumes, and has passed some of them.
        for options in ([], ["--again"]):
            done = command(pipeline.settings, "rebuild", "--apply", *options)
            assert done.exit_code == 0, done.output
        verified = command(pipeline.settings, "verify", "--all")
        assert verified.exit_code == 0, verified.output
        assert running.stop() == 0
    finish(pipeline, Plan(member="it"))
    pipeline.check()


@pytest.mark.parametrize("staged_above", [0, 1_000], ids=["staged", "not staged"])
def test_wherever_an_import_is_killed_the_next_one_comes_to_the_same_end(
    database, database_server, migrated_template, tmp_path, command, staged_above
):
    log, _ = random_log((1, 2, 4))
    project(database, log.records)
    path = tmp_path / "all.jsonl"
    path.write_bytes(exported(database))
    with made(database_server, template=migrated_template) as (_, other):
        imported(other, path.read_bytes())
        expected = dump(other)
    for number in itertools.count(1):
        with made(database_server, template=migrated_template) as (_, other):
            moment = Moment(number, staged_above=staged_above)
            is_killed = killed_at(["import", str(path)], surroundings_of(other, tmp_path), moment)
            with psycopg.connect(other, autocommit=True) as connection:
                while value_of(connection, IS_IMPORTING):
                    pause()
            rows = dump(other)
            left = set(map(context_of, rows["contexts"]))
            same(
                rows,
                {table: [row for row in all_ if context_of(row) in left] for table, all_ in expected.items()},
            )
            again = command(other, "import", path, "--json")
            assert again.exit_code == 0, (number, again.output)
            done = json.loads(again.stdout)
            assert done["there_already"] == len(left), number
            assert done["conversations"] == len(expected["contexts"]) - len(left), number
            same(dump(other), expected)
        if not is_killed:
            break
    print(f"\nan import was killed at {number - 1} points")


@pytest.mark.parametrize("form", ["jsonl", "cloudevents", "openai", "parquet"])
def test_wherever_an_export_is_killed_there_is_no_file_or_a_whole_one(database, tmp_path, command, form):
    log, ids = random_log((1, 2, 4))
    project(database, log.records)
    words = ["export", ids[0], "--format", form, "-o"]
    assert command(database, *words, tmp_path / "whole").exit_code == 0
    expected = contents(tmp_path / "whole")
    for number in itertools.count(1):
        out = tmp_path / "out"
        is_killed = killed_at([*words, str(out)], surroundings_of(database, tmp_path), Moment(number))
        assert contents(out) in (expected, {}), number
        if not is_killed:
            assert contents(out) == expected
            break
    print(f"\nan export as {form} was killed at {number - 1} points")


def surroundings_of(address, folder):
    return {**os.environ, "FRAMELEDGER_DATABASE_URL": address, "FRAMELEDGER_DATA_DIR": str(folder)}


def context_of(row):
    return json.loads(row)["context_id"]


def contents(path):
    """Returns the bytes of the finished files at this path of an export, by name."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return {one.name if path.is_dir() else "": one.read_bytes() for one in files if one.exists()}
