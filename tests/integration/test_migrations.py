"""The schema: the migrations create what is declared, each role may change only what it needs, and errors say why."""

import asyncio
import runpy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from tests.support import catalog, erasing, rows
from tests.support.pipeline import until_session_gone
from tests.support.tiers import long
from typer.testing import CliRunner

from frameledger_services import database as connecting
from frameledger_services import package_data
from frameledger_services.audit import heads
from frameledger_services.cli import migrate as migrate_command
from frameledger_services.cli.audit import rebuild_work
from frameledger_services.cli.transfer import export_work
from frameledger_services.projector import service
from frameledger_services.settings import Settings
from frameledger_services.store import connections, migration, schema
from frameledger_services.store.tables import metadata

VERSION_TABLE = "frameledger_schema"


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def engine(database: str):
    return create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=NullPool
    )


def test_alembic_finds_no_difference_between_the_migrations_and_the_declared_tables(engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE},
        )
        assert compare_metadata(context, metadata) == []


def test_the_catalog_shows_no_difference_between_the_migrations_and_the_declared_tables(engine, connection):
    connection.execute("CREATE SCHEMA declared")
    with engine.begin() as created:
        metadata.create_all(created.execution_options(schema_translate_map={None: "declared"}))
    tables = tuple(metadata.tables)

    def described(schema_name):
        everything = catalog.describe(
            connection,
            catalog.TABLES,
            catalog.COLUMNS,
            catalog.CONSTRAINTS,
            catalog.INDEXES,
            schema=schema_name,
        )
        # Views and the version table are not declared.
        return [row for row in everything if row[0].removeprefix("r ").startswith(tables)]

    assert described("public") == described("declared")


def test_every_table_column_view_function_and_trigger_has_a_comment(connection):
    relations = catalog.describe(connection, catalog.TABLES)
    columns = catalog.describe(connection, catalog.COLUMNS)
    functions = catalog.describe(connection, catalog.FUNCTIONS)
    triggers = catalog.describe(connection, catalog.TRIGGERS)
    assert len(relations) > 20
    assert [row[0] for row in relations if row[0].endswith(": ")] == []
    assert [row[0] for row in columns if not row[6]] == []
    assert [row[0] for row in functions if not row[2]] == []
    assert [row for row in triggers if not row[2]] == []


def rows_of_reference(name: str) -> dict[str, list[tuple[str, ...]]]:
    """The rows of a list of the SQL reference, by the heading above them; empty for those above the first one."""
    reference = runpy.run_path(str(Path(__file__).parents[2] / "infra" / "docs" / "reference.py"))
    found: dict[str, list[tuple[str, ...]]] = {}
    heading = ""
    for line in reference["LISTS"][name]():
        if line.startswith("### "):
            heading = line.removeprefix("### ")
        elif line.startswith("| `"):
            cells = line.replace(r"\|", "\0").removeprefix("| ").removesuffix(" |").split(" | ")
            found.setdefault(heading, []).append(tuple(cell.replace("\0", "|") for cell in cells))
    return found


@pytest.mark.regression("fault 304", "fault 305")
def test_the_sql_reference_describes_what_the_migrations_make(connection):
    tables, views = rows_of_reference("tables"), rows_of_reference("views")
    of_tables: dict[str, list[tuple[str, ...]]] = {}
    of_views: dict[str, list[tuple[str, ...]]] = {}
    columns = catalog.describe(connection, catalog.COLUMNS)
    for name, _, type_, _, collation, _, comment in sorted(columns, key=lambda row: int(row[1])):
        relation, column = name.split(".")
        if relation in tables:
            collated = type_ + (' COLLATE "C"' if collation == "C" else "")
            of_tables.setdefault(relation, []).append((f"`{column}`", collated, comment))
        elif relation != VERSION_TABLE:
            of_views.setdefault(relation, []).append((f"`{column}`", comment))
    assert tables == of_tables
    overview = views.pop("")
    assert views == of_views
    relations = dict(row[0].split(": ", 1) for row in catalog.describe(connection, catalog.TABLES))
    assert overview == [(f"`{view}`", relations[f"v {view}"]) for view in sorted(of_views)]


@pytest.mark.regression("fault 305")
def test_the_sql_reference_names_the_parameters_of_each_function(connection):
    made = connection.execute("""
        SELECT proname, coalesce(proargnames, '{}'), pronargs, pronargdefaults, obj_description(oid, 'pg_proc')
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """)
    expected = []
    for name, names, count, defaults, comment in made:
        shown = [f"`{one}`" for one in names[: count - defaults]]
        shown += [f"`{one}` (optional)" for one in names[count - defaults : count]]
        expected.append((name, ", ".join(shown), comment))
    listed = [
        (name[1:].partition("(")[0], takes, said) for name, takes, said in rows_of_reference("functions")[""]
    ]
    assert sorted(listed) == sorted(expected)


def test_the_printed_sql_makes_what_the_migrations_make(connection, empty_database):
    queries = (
        *(catalog.TABLES, catalog.COLUMNS, catalog.CONSTRAINTS, catalog.INDEXES, catalog.FUNCTIONS),
        *(catalog.VIEWS, catalog.TRIGGERS, catalog.GRANTS),
    )
    with psycopg.connect(empty_database, autocommit=True) as other:
        other.execute(migration.script())
        assert catalog.describe(other, *queries) == catalog.describe(connection, *queries)


def test_this_release_works_with_the_newest_migration():
    scripts = ScriptDirectory(str(package_data.folder("migrations")))
    assert scripts.get_heads() == [schema.REVISION]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert all(len(revision) == 4 and revision.isdecimal() for revision in revisions)
    assert sorted(revisions, reverse=True) == revisions


def test_each_migration_says_which_releases_work_with_its_tables_too(connection):
    scripts = ScriptDirectory(str(package_data.folder("migrations")))
    said = {
        script.revision: getattr(script.module, "compatible_from", None)
        for script in scripts.walk_revisions()
        if script.revision >= "0006"
    }
    assert None not in said.values()
    assert all("0006" <= compatible_from <= revision for revision, compatible_from in said.items())
    found = connection.execute(f"SELECT compatible_from FROM {VERSION_TABLE}").fetchall()
    assert found == [(said[schema.REVISION],)]


def test_migrating_again_changes_nothing(empty_database):
    first, second = migration.migrate(empty_database), migration.migrate(empty_database)
    assert (first.before, first.after) == (None, schema.REVISION)
    assert (second.before, second.after) == (schema.REVISION, schema.REVISION)


@pytest.mark.regression("fault 17b")
def test_who_holds_a_table_is_waited_for_a_moment_at_a_time_and_named(empty_database, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0001")
        migration.migrate(empty_database)
    said = []
    monkeypatch.setattr(migration, "LOCK_SECONDS", 1)
    monkeypatch.setattr(migration, "PAUSE_SECONDS", 0.01)
    report = psycopg.connect(empty_database, application_name="a report")
    report.execute("LOCK TABLE frames, tool_calls, runs, projections IN ACCESS SHARE MODE")

    def say(sentence):
        said.append(sentence)
        with psycopg.connect(empty_database) as meanwhile:
            # No other session is blocked meanwhile.
            meanwhile.execute("SELECT FROM frames LIMIT 1")
        if len(said) == 2:
            # Its server process releases the lock a moment later.
            report.close()

    done = migration.migrate(empty_database, say)
    assert (done.before, done.after) == ("0001", schema.REVISION)
    assert len(said) >= 2
    assert "a report of" in said[0]
    assert "LOCK TABLE frames" in said[0]


@pytest.mark.regression("fault 17b")
def test_a_table_that_is_never_let_go_ends_it_with_nothing_changed(empty_database, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0001")
        migration.migrate(empty_database)
    monkeypatch.setattr(migration, "LOCK_SECONDS", 1)
    monkeypatch.setattr(migration, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(migration, "TRIES", 2)
    with psycopg.connect(empty_database) as report:
        report.execute("LOCK TABLE frames, tool_calls, runs, projections IN ACCESS SHARE MODE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            migration.migrate(empty_database)
        assert report.execute("SELECT version_num FROM frameledger_schema").fetchall() == [("0001",)]


@pytest.mark.regression("fault 337")
def test_one_that_stalls_lets_go_of_the_tables_with_nothing_changed(empty_database, monkeypatch):
    def upgrade_and_stall(config, revision):
        command.upgrade(config, revision)
        session = config.attributes["connection"].connection.driver_connection
        until_session_gone(empty_database, session.info.backend_pid)

    with monkeypatch.context() as stalling:
        stalling.setattr(migration, "IDLE_SECONDS", 0.1)
        stalling.setattr(migration, "command", SimpleNamespace(upgrade=upgrade_and_stall))
        with pytest.raises(psycopg.Error):
            migration.migrate(empty_database)
    done = migration.migrate(empty_database)
    assert (done.before, done.after) == (None, schema.REVISION)


def test_a_database_of_the_release_before_keeps_what_is_in_it(empty_database, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0001")
        migration.migrate(empty_database)
    with psycopg.connect(empty_database) as connection:
        connection.execute(
            "INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, tool_call_id, "
            "function_name, status, arguments) VALUES ('kept', 1, 0, now(), 'a', 'pay', 'running', '{}')"
        )
    assert migration.migrate(empty_database).before == "0001"
    with psycopg.connect(empty_database) as connection:
        row = "SELECT status, builtin, safe_to_retry, waiting_for FROM tool_calls"
        assert connection.execute(row).fetchone() == ("running", False, None, None)
        connection.execute("UPDATE tool_calls SET status = 'ambiguous'")
        assert connection.execute("SELECT count(*) FROM ambiguous_calls").fetchone() == (1,)


@pytest.mark.regression("fault 84")
def test_samples_of_words_that_were_taken_for_the_planner_are_deleted(empty_database, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0019")
        migration.migrate(empty_database)
    said = b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"secret %d"}]}'
    with psycopg.connect(empty_database, autocommit=True) as connection:
        rows.write(connection, "a", [said % number for number in range(9)])
        connection.execute("ANALYZE")
        assert erasing.found_in_statistics(connection, "secret") == ["messages.text"]
        migration.migrate(empty_database)
        assert erasing.found_in_statistics(connection, "secret") == []


def test_what_was_projected_before_there_were_generations_is_of_the_first(empty_database, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0002")
        migration.migrate(empty_database)
    with psycopg.connect(empty_database) as connection:
        connection.execute(
            "INSERT INTO projections (projection, topic, partition, next_offset) VALUES ('contexts', 't', 3, 8)"
        )
        connection.execute(
            'INSERT INTO outbox (topic, partition, "offset", ordinal, kind, to_topic, headers) '
            "VALUES ('t', 3, 7, 0, 'effect', 'u', '[]')"
        )
        connection.execute(
            "INSERT INTO claims (effect_id, version, kind, context_id, run_id, service, worker_id, attempt) "
            "VALUES ('e', 1, 'run', 'c', 'r', 's', 'w', 7)"
        )
    assert migration.migrate(empty_database).before == "0002"
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT generation FROM outbox").fetchall() == [(1,)]
        assert connection.execute("SELECT attempt, deaths FROM claims").fetchall() == [(7, 0)]
        assert connection.execute("SELECT generation, sealed_at FROM projections").fetchall() == [(1, None)]
        assert connection.execute("SELECT partition, next_offset FROM lag").fetchall() == [(3, 8)]


@pytest.mark.long
def test_messages_that_an_older_release_wrote_get_their_times_while_everything_goes_on(database):
    said = b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"%d"}]}'
    without = "SELECT count(*) FROM messages WHERE said_at IS NULL"
    with psycopg.connect(database, autocommit=True) as connection:
        rows.write(connection, "c", [said % number for number in range(1_000)])
        connection.execute("UPDATE messages SET said_at = NULL")
        assert connection.execute(without).fetchone() == (1_000,)
        with psycopg.connect(database) as projector:
            # The procedure waits for no locked row, and blocks no session that waits for one.
            projector.execute("SET lock_timeout = '1s'")
            projector.execute("UPDATE messages SET valid_to = valid_from + 1 WHERE position = 7")
            connection.execute("SET lock_timeout = '1s'")
            connection.execute("CALL fill_said_at()")
            assert connection.execute(without).fetchone() == (1,)
        connection.execute("CALL fill_said_at()")
        assert connection.execute(
            "SELECT count(*) FROM messages INNER JOIN frames USING (context_id) "
            "WHERE version = valid_from AND said_at = logged_at"
        ).fetchone() == (1_000,)


@pytest.mark.regression("fault 223")
@pytest.mark.parametrize("path", [long("another"), "another, pg_temp, installed"])
def test_messages_get_their_times_whatever_the_path_of_the_session_is(empty_database, path):
    """The tables are in a schema that is not on it, or behind tables of others with their names."""
    installed = "-c search_path=installed"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA installed; CREATE SCHEMA another")
        migration.migrate(make_conninfo(empty_database, options=installed))
        connection.execute("SET search_path = installed")
        rows.write(
            connection,
            "c",
            [b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Hello"}]}'],
        )
        connection.execute("UPDATE messages SET said_at = NULL")
        for place in ("another", "pg_temp"):
            connection.execute(f"CREATE TABLE {place}.messages (LIKE installed.messages)")
        connection.execute(f"SET search_path = {path}")
        connection.execute("CALL installed.fill_said_at()")
        assert connection.execute(
            "SELECT count(*) FROM installed.messages INNER JOIN installed.frames USING (context_id) "
            "WHERE said_at = logged_at"
        ).fetchone() == (1,)


def test_of_two_migrations_at_once_one_does_it_and_the_other_finds_it_done(empty_database):
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(migration.migrate, [empty_database] * 2))
    assert sorted((one.before for one in done), key=str) == [schema.REVISION, None]


def test_a_database_without_tables_is_too_old_and_the_remedy_is_named(empty_database):
    with pytest.raises(schema.TooOldError, match=r"no tables of Frameledger yet\. Run `frameledger migrate`"):
        check(empty_database)


@pytest.mark.regression("fault 311")
@pytest.mark.parametrize(
    "hide", ["ALTER DATABASE {} SET search_path = elsewhere", "REVOKE ALL ON SCHEMA public FROM public"]
)
def test_tables_that_a_user_does_not_see_are_not_called_missing(database, hide):
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as superuser:
        superuser.execute("CREATE SCHEMA elsewhere")
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'somebody'").format(sql.Identifier(name)))
        superuser.execute(
            sql.SQL("GRANT CREATE, USAGE ON SCHEMA elsewhere TO {}").format(sql.Identifier(name))
        )
        superuser.execute(sql.SQL(hide).format(sql.Identifier(name)))
    try:
        address = make_conninfo(database, user=name, password="somebody", passfile="/dev/null")
        with pytest.raises(
            schema.HiddenTablesError, match=r"in the schema public, which the user .* does not see"
        ):
            check(address)
        said: list[str] = []
        # Without a schema that it sees it cannot create any.
        with suppress(errors.InvalidSchemaName):
            migration.migrate(address, said.append)
        assert [line.endswith("left as they are, and others are created.") for line in said] == [True]
    finally:
        with psycopg.connect(database, autocommit=True) as superuser:
            superuser.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
            superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        ("0000", schema.TooOldError, r"has revision 0000 and this release needs .*Run `frameledger migrate`"),
        ("9999", schema.TooNewError, r"has revision 9999, made by a newer release; .* Upgrade"),
    ],
)
@pytest.mark.parametrize("compatible_from", [None, "9998"])
def test_another_revision_is_refused_and_the_remedy_named(
    database, connection, found, error, words, compatible_from
):
    connection.execute(
        f"UPDATE {VERSION_TABLE} SET version_num = %s, compatible_from = %s", (found, compatible_from)
    )
    with pytest.raises(error, match=words) as refused:
        check(database)
    assert refused.value.found == found


def test_the_right_revision_is_not_refused(database):
    check(database)


def test_a_newer_database_is_not_migrated(database, connection):
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999', compatible_from = '9999'")
    with pytest.raises(schema.TooNewError):
        migration.migrate(database)


def test_a_newer_database_that_works_with_this_release_is_left_as_it_is(database, connection):
    connection.execute(
        f"UPDATE {VERSION_TABLE} SET version_num = '9999', compatible_from = %s", (schema.REVISION,)
    )
    assert check(database) == "9999"
    done = migration.migrate(database)
    assert (done.before, done.after) == ("9999", "9999")


def test_a_database_of_another_encoding_is_refused_with_the_way_out(make_database):
    with pytest.raises(errors.FeatureNotSupported, match=r"SQL_ASCII; .* needs UTF8") as refused:
        migration.migrate(make_database(encoding="SQL_ASCII"))
    assert "CREATE DATABASE" in refused.value.diag.message_hint


def test_the_owner_of_a_database_can_migrate_it_without_any_other_right(connection, make_database, database):
    owner, password = f"frameledger_test_{uuid4().hex}", uuid4().hex
    connection.execute(
        sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(owner), sql.Literal(password))
    )
    try:
        address = make_database(owner=owner)
        # The server's own password file must not win over this user's.
        done = migration.migrate(make_conninfo(address, user=owner, password=password))
        assert done.after == schema.REVISION
        with psycopg.connect(address, autocommit=True) as superuser:
            superuser.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(owner)))
            superuser.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(
                    sql.Identifier(superuser.info.dbname)
                )
            )
    finally:
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(owner)))


LIMITS = """
    SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name WHERE current_setting(name, true) IS NOT NULL
"""

IDLE_IN_TRANSACTION = "idle_in_transaction_session_timeout"
"""Of importance where a transaction waits for others than the database, such as who reads an export."""


def known_limits(connection):
    """Returns the limits that this release of PostgreSQL has."""
    return [name for name, _ in connection.execute(LIMITS, [[*connecting.UNLIMITED, IDLE_IN_TRANSACTION]])]


@pytest.fixture
def limited_database(empty_database):
    """An empty database whose administrator limits sessions, and that notes the limit at each DDL command."""
    with psycopg.connect(empty_database, autocommit=True) as superuser:
        for limit in known_limits(superuser):
            superuser.execute(
                sql.SQL("ALTER DATABASE {} SET {} = '1h'").format(
                    sql.Identifier(superuser.info.dbname), sql.Identifier(limit)
                )
            )
        superuser.execute("CREATE TABLE limits (noted text)")
        superuser.execute(
            "CREATE FUNCTION note_limit() RETURNS event_trigger LANGUAGE plpgsql AS "
            "$$BEGIN INSERT INTO public.limits VALUES (current_setting('statement_timeout')); END$$"
        )
        superuser.execute("CREATE EVENT TRIGGER noting ON ddl_command_start EXECUTE FUNCTION note_limit()")
    return empty_database


@pytest.mark.regression("journey 50")
def test_a_limit_that_the_database_gives_statements_aborts_no_migration(limited_database):
    migration.migrate(limited_database)
    with psycopg.connect(limited_database) as connection:
        assert connection.execute("SELECT DISTINCT noted FROM limits").fetchall() == [("0",)]


@pytest.mark.regression("journey 50")
@pytest.mark.parametrize(
    ("session", "limit"),
    [(service.SESSION, "0"), (rebuild_work.SESSION, "0"), (connections.SESSION, "1h")],
    ids=["projector", "rebuild", "reader"],
)
def test_limits_that_the_database_gives_sessions_are_lifted_for_those_that_work_long(
    limited_database, session, limit
):
    async def shown():
        settings = Settings(database_url=SecretStr(limited_database))
        async with await connecting.connect(settings, "test", session) as connection:
            cursor = await connection.execute(LIMITS, [list(connecting.UNLIMITED)])
            return dict(await cursor.fetchall())

    shown_limits = asyncio.run(shown())
    assert {"statement_timeout", "idle_session_timeout"} <= shown_limits.keys()
    assert set(shown_limits.values()) == {limit}


@pytest.mark.regression("fault 178")
@pytest.mark.parametrize(
    "opened",
    [lambda settings: heads.snapshot(settings, "test"), export_work._reading],
    ids=["a root or a proof", "an export"],
)
def test_limits_that_the_database_gives_sessions_stop_nothing_that_reads_all_of_it(limited_database, opened):
    migration.migrate(limited_database)

    async def shown():
        async with opened(Settings(database_url=SecretStr(limited_database))) as connection:
            cursor = await connection.execute(LIMITS, [[*connecting.UNLIMITED, IDLE_IN_TRANSACTION]])
            return dict(await cursor.fetchall())

    assert set(asyncio.run(shown()).values()) == {"0"}


def test_the_command_says_what_it_did(empty_database):
    environment = {"FRAMELEDGER_DATABASE_URL": empty_database}
    first = CliRunner().invoke(migrate_command.commands, env=environment)
    second = CliRunner().invoke(migrate_command.commands, env=environment)
    assert (first.exit_code, first.output) == (
        0,
        f"Migrated the database from revision none to {schema.REVISION}.\n",
    )
    assert (second.exit_code, second.output) == (
        0,
        f"The database already has revision {schema.REVISION}.\n",
    )


def test_the_command_says_why_a_database_is_not_reached():
    result = CliRunner().invoke(
        migrate_command.commands,
        env={"FRAMELEDGER_DATABASE_URL": "host=127.0.0.1 port=1 dbname=none user=nobody"},
    )
    assert result.exit_code == 1
    assert "port 1 failed" in result.output
    assert "Traceback" not in result.output


WORKER = (
    "INSERT INTO workers (worker_id, service, kind, host, pid, lease_secs, slots, offers) "
    "VALUES ('w', 's', 'functions', 'h', 1, 5, 1, '[]') RETURNING 1"
)
CLAIM = (
    "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id) "
    "VALUES ('e', 'run', 'kept', 1, 'r', 's', 'w') RETURNING 1"
)


class TestTheArchive:
    """Stored frames cannot be changed by any user, not even by the server's superuser."""

    @pytest.fixture(autouse=True)
    def conversation(self, transaction):
        rows.write(
            transaction, "kept", [b'{"type":"LLMRunFrame"}', b'{"type":"NewsFrame"}', b'{"type":"EndFrame"}']
        )

    @pytest.mark.parametrize(
        "change",
        [
            """payload = '{"type":"EndFrame"}'""",
            "version = 17",
            "chain = sha256('x')",
            "context_id = 'other'",
            "source = 'x'",
            "logged_at = now()",
            "outcome = 'applied', reason = NULL",
        ],
    )
    def test_a_frame_is_not_updated(self, transaction, change):
        with (
            pytest.raises(errors.InsufficientPrivilege, match="nothing but their outcome changes"),
            transaction.transaction(),
        ):
            transaction.execute(f"UPDATE frames SET {change} WHERE version = 2")

    def test_not_even_where_a_reason_is_given_does_anything_else_change(self, transaction):
        transaction.execute("SELECT settle_outcome('kept', 2, 'applied', NULL, 'a new release')")
        with pytest.raises(errors.InsufficientPrivilege):
            transaction.execute("UPDATE frames SET payload = '{}'")

    def test_frames_are_not_deleted(self, transaction):
        with pytest.raises(errors.InsufficientPrivilege, match="not deleted"), transaction.transaction():
            transaction.execute("DELETE FROM frames WHERE version = 3")
        with pytest.raises(errors.InsufficientPrivilege, match="not truncated"), transaction.transaction():
            transaction.execute("TRUNCATE frames")

    def test_an_outcome_is_settled_with_a_record_of_who_and_why(self, transaction):
        settle = "SELECT settle_outcome('kept', 2, 'ignored', 'run_over', 'a new release knows it')"
        assert transaction.execute(settle).fetchone() == (True,)
        assert transaction.execute("SELECT outcome, reason FROM frames WHERE version = 2").fetchone() == (
            "ignored",
            "run_over",
        )
        kept = transaction.execute(
            "SELECT context_id, version, old_outcome, old_reason, new_outcome, new_reason, why, "
            "changed_by = SESSION_USER FROM outcome_changes"
        ).fetchall()
        assert kept == [("kept", 2, "unknown", None, "ignored", "run_over", "a new release knows it", True)]

    def test_settling_what_is_so_already_records_nothing(self, transaction):
        settle = "SELECT settle_outcome('kept', 2, 'unknown', NULL, 'again')"
        assert transaction.execute(settle).fetchone() == (False,)
        assert transaction.execute("SELECT count(*) FROM outcome_changes").fetchone() == (0,)

    @pytest.mark.parametrize("why", ["NULL", "''"])
    def test_an_outcome_is_not_settled_without_a_reason_given(self, transaction, why):
        with (
            pytest.raises(errors.InsufficientPrivilege, match="with a reason given"),
            transaction.transaction(),
        ):
            transaction.execute(f"SELECT settle_outcome('kept', 2, 'applied', NULL, {why})")

    def test_an_ignored_frame_says_why_and_no_other_does(self, transaction):
        for outcome, reason in (("ignored", "NULL"), ("applied", "'run_over'"), ("lost", "NULL")):
            with pytest.raises(errors.CheckViolation), transaction.transaction():
                transaction.execute(f"SELECT settle_outcome('kept', 2, '{outcome}', {reason}, 'x')")

    def test_an_erased_conversation_leaves_a_receipt_and_nothing_else(self, transaction):
        rows.write(transaction, "other", [b'{"type":"LLMRunFrame"}'])
        transaction.execute(CLAIM)
        head = transaction.execute("SELECT chain FROM contexts WHERE context_id = 'kept'").fetchone()
        receipts = transaction.execute(
            "SELECT context_id, version, frame_count, erased_by = SESSION_USER, why, chain "
            "FROM erase('kept', 'the user asked')"
        ).fetchall()
        assert receipts == [("kept", 3, 3, True, "the user asked", *head)]
        for table in metadata.tables.values():
            if "context_id" in table.columns and table.name != "erasures":
                query = sql.SQL("SELECT count(*) FROM {} WHERE context_id = 'kept'").format(
                    sql.Identifier(table.name)
                )
                assert transaction.execute(query).fetchone() == (0,), table.name
        assert transaction.execute("SELECT count(*) FROM frames").fetchone() == (1,)

    def test_erasing_what_is_not_there_leaves_no_receipt(self, transaction):
        assert transaction.execute("SELECT * FROM erase('nobody', 'x')").fetchall() == []
        assert transaction.execute("SELECT count(*) FROM erasures").fetchone() == (0,)


class TestRoles:
    """Who may do what. Roles cannot log in, so a superuser plays them."""

    @pytest.fixture(autouse=True)
    def conversation(self, transaction):
        rows.write(transaction, "kept", [b'{"type":"LLMRunFrame"}'])

    def act(self, transaction, role, statement):
        with transaction.transaction(force_rollback=True):
            transaction.execute(f"SET LOCAL ROLE frameledger_{role}")
            return transaction.execute(statement).fetchall()

    @pytest.mark.parametrize("role", ["projector", "worker", "operator", "reader"])
    def test_everybody_reads_everything(self, transaction, role):
        views = [
            name
            for (name,) in transaction.execute("SELECT viewname FROM pg_views WHERE schemaname = 'public'")
        ]
        assert len(views) > 10
        for table in (*metadata.tables, VERSION_TABLE, *views):
            self.act(transaction, role, f"SELECT count(*) FROM {table}")
        assert self.act(transaction, role, "SELECT context_at('kept') IS NOT NULL") == [(True,)]

    @pytest.mark.parametrize(
        ("role", "statement"),
        [
            *(
                (role, "UPDATE frames SET outcome = 'unknown'")
                for role in ("projector", "operator", "reader")
            ),
            *((role, "DELETE FROM frames") for role in ("projector", "operator", "reader")),
            *((role, "DELETE FROM messages") for role in ("worker", "reader")),
            ("operator", "DELETE FROM contexts"),
            ("projector", "SELECT erase('kept', 'x')"),
            # Nor may any role erase without a frame.
            *(
                (role, "SELECT erase_at('kept', 1, 'x', NULL)")
                for role in ("projector", "worker", "operator", "reader")
            ),
            *(
                (role, "SELECT delete_conversation('kept', 1)")
                for role in ("projector", "worker", "operator", "reader")
            ),
            ("projector", "UPDATE erasures SET why = 'x'"),
            ("projector", "DELETE FROM outcome_changes"),
            (
                "operator",
                "INSERT INTO erasures (context_id, version, frame_count, why, chain) VALUES "
                "('kept', 1, 1, 'x', '')",
            ),
            *((role, WORKER) for role in ("projector", "operator", "reader")),
            *((role, CLAIM) for role in ("projector", "operator", "reader")),
            ("worker", "UPDATE runs SET status = 'failed'"),
            ("worker", "INSERT INTO outbox DEFAULT VALUES"),
            ("reader", "SELECT settle_outcome('kept', 1, 'unknown', NULL, 'x')"),
            ("worker", "SELECT settle_outcome('kept', 1, 'unknown', NULL, 'x')"),
        ],
    )
    def test_a_role_is_refused_what_it_has_no_right_to(self, transaction, role, statement):
        with pytest.raises(errors.InsufficientPrivilege), transaction.transaction():
            self.act(transaction, role, statement)

    @pytest.mark.parametrize(
        ("role", "statement"),
        [
            ("projector", "SELECT settle_outcome('kept', 1, 'unknown', NULL, 'x')"),
            ("operator", "SELECT settle_outcome('kept', 1, 'unknown', NULL, 'x')"),
            ("operator", "SELECT version FROM erase('kept', 'x')"),
            ("projector", "DELETE FROM messages RETURNING 1"),
            ("projector", "UPDATE erasures SET late_count = late_count + 1 RETURNING 1"),
            # A rebuild replaces these rows.
            ("operator", "DELETE FROM messages RETURNING 1"),
            ("worker", WORKER),
            ("worker", CLAIM),
            ("worker", "UPDATE workers SET heartbeat_at = clock_timestamp() RETURNING 1"),
            ("worker", "DELETE FROM claims RETURNING 1"),
        ],
    )
    def test_a_role_can_do_what_it_is_for(self, transaction, role, statement):
        assert self.act(transaction, role, statement) is not None

    @pytest.mark.regression("fault 82")
    @pytest.mark.parametrize("role", ["projector", "operator"])
    @pytest.mark.parametrize("path", ["public", "pg_temp, public, pg_catalog"])
    def test_who_may_settle_outcomes_runs_nothing_with_the_rights_of_the_owner(self, transaction, role, path):
        transaction.execute(f"SET LOCAL ROLE frameledger_{role}")
        transaction.execute(
            """
            CREATE FUNCTION pg_temp.act(text) RETURNS boolean LANGUAGE plpgsql AS
            $$BEGIN RAISE 'This runs as %.', current_user; END$$;
            CREATE DOMAIN pg_temp.trap AS text CHECK (pg_temp.act(VALUE));
            CREATE TEMPORARY TABLE frames (LIKE public.frames);
            ALTER TABLE pg_temp.frames ALTER COLUMN context_id TYPE pg_temp.trap;
            """
        )
        transaction.execute(f"SET LOCAL search_path = {path}")
        settle = "SELECT public.settle_outcome('kept', 1, 'unknown', NULL, 'a new release')"
        assert transaction.execute(settle).fetchone() == (True,)
        assert transaction.execute("SELECT outcome FROM public.frames").fetchall() == [("unknown",)]
        assert transaction.execute("SELECT count(*) FROM public.outcome_changes").fetchone() == (1,)


def check(address: str) -> str:
    """The check that a service makes, without the rest of a service."""

    async def connected() -> str:
        async with await psycopg.AsyncConnection.connect(address) as connection:
            found = await schema.check(connection)
            # The check leaves the transaction usable.
            await connection.execute("SELECT 1")
            return found

    return asyncio.run(connected())
