"""A database that does not respond, is frozen or is cut off is detected, and another host is tried."""

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.bounds import IN_PROCESS, ON_SERVERS, scaled
from tests.support import rows
from tests.support.polling import look_again
from tests.support.projecting import make_topics, projecting, settings_of_its_own, until_projected  # noqa: F401  # a fixture
from tests.support.silent_proxy import both, proxy_to
from tests.support.worker_harness import HeldJobs, WorkerHarness, working

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services import database as connecting
from frameledger_services.client import Client, DatabaseUnavailableError
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections
from frameledger_services.work import RUNS, Worker


def impatient(monkeypatch):
    """Shorten the timeouts for a server that is silent from now on. Set earlier, they would take a slow server for a
    silent one."""
    monkeypatch.setattr(connecting, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(connecting, "ASK_SECONDS", 0.5)


def asked():
    return LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Hi"}], run_llm=True)


@asynccontextmanager
async def cut_off(address):
    """A proxy to the database, and settings with the proxy as first and the database as second host."""
    async with proxy_to(address) as (proxy, through):
        yield proxy, both(through, address)


@pytest.mark.long
@pytest.mark.regression("trial C3")
def test_when_the_first_host_falls_silent_projector_workers_and_readers_go_on_with_the_second(
    settings,
    database,
):
    async def scenario():
        async with cut_off(database) as (proxy, address):
            through = settings.model_copy(update={"database_url": SecretStr(address)})
            await make_topics(through)
            harness = WorkerHarness(through, database)
            jobs = HeldJobs()
            worker = Worker(through, RUNS, jobs.hold, service="silence", serves_all=True)
            async with (
                projecting(through),
                Client(through) as client,
                working(worker),
                asyncio.timeout(2 * ON_SERVERS),
            ):
                before = await client.publish("ctx-1", asked(), wait=True, within=ON_SERVERS)
                await jobs.until_begun("ctx-1")
                followed = client.follow("ctx-1")
                assert (await anext(followed)).version == 1
                proxy.fall_silent()
                after = await client.publish("ctx-2", asked(), within=ON_SERVERS)
                await until_projected(settings, [*before, *after])
                await jobs.until_begun("ctx-2")
                assert (await client.context("ctx-2")).version == 1
                await client.publish("ctx-1", asked(), within=ON_SERVERS)
                assert (await anext(followed)).version == 2
                jobs.end("ctx-1", "ctx-2")
                await harness.until("SELECT count(*) FROM claims WHERE finish IS NULL", expected=[(0,)])

    asyncio.run(scenario())


@pytest.mark.regression("fault 10")
def test_a_follower_waits_for_a_database_that_is_silent_while_it_connects(database, monkeypatch):
    monkeypatch.setattr("frameledger_services.client.notifications.FOLLOW_POLL_SECONDS", 0.05)

    def store(version):
        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            rows.insert(
                cursor,
                "frames",
                context_id="ctx-1",
                version=version,
                frame_id=uuid4(),
                logged_at=rows.BEGINNING,
                partition=0,
                offset=version,
                type="LLMRunFrame",
                outcome="applied",
                chain=bytes(32),
                payload='{"type":"LLMRunFrame"}',
            )

    async def scenario():
        async with (
            asyncio.timeout(ON_SERVERS),
            proxy_to(database) as (proxy, address),
            # The shortest value that libpq allows.
            Client(at(make_conninfo(address, connect_timeout=2))) as client,
        ):
            store(1)
            followed = client.follow("ctx-1")
            assert (await anext(followed)).version == 1
            following = asyncio.create_task(anext(followed))
            before = proxy.accepted
            impatient(monkeypatch)
            proxy.fall_silent()
            while proxy.accepted < before + 6:
                with pytest.raises(DatabaseUnavailableError):
                    await client.newest_version("ctx-1")
                assert not following.done()
            store(2)
            proxy.speak_again()
            assert (await following).version == 2

    asyncio.run(scenario())


@pytest.mark.regression("fault 10")
def test_a_reader_whose_connections_are_forgotten_in_a_failover_makes_new_ones(database):
    async def scenario():
        async with proxy_to(database) as (proxy, address), asyncio.timeout(ON_SERVERS):
            connections = Connections(at(address))
            barrier = asyncio.Barrier(4)
            await asyncio.gather(*(connections.read(_together, barrier) for _ in range(4)))
            proxy.forget()
            assert await asyncio.gather(*(connections.read(_one) for _ in range(8))) == [1] * 8
            await connections.close()

    asyncio.run(scenario())


@pytest.mark.regression("fault 10")
def test_a_reading_that_is_broken_off_does_not_wait_for_a_server_that_is_silent(database, monkeypatch):
    monkeypatch.setattr(connecting, "SILENT_SECONDS", ON_SERVERS)

    async def scenario():
        async with proxy_to(database) as (proxy, address), asyncio.timeout(IN_PROCESS):
            connections = Connections(at(address))
            barrier = asyncio.Barrier(2)
            await asyncio.gather(*(connections.read(_together, barrier) for _ in range(2)))
            proxy.forget()
            with monkeypatch.context() as impatient:
                impatient.setattr(connections, "_within", 0.5)
                with pytest.raises(DatabaseUnavailableError, match="did not answer within"):
                    await connections.read(_one)
            # The other idle connection, which is broken too, is not used.
            assert await connections.read(_one) == 1
            await connections.close()

    asyncio.run(scenario())


@pytest.mark.regression("trial C3")
def test_a_statement_that_a_living_server_works_on_may_take_as_long_as_it_likes(database, monkeypatch):
    wait_for_a_lock(database, database, monkeypatch, dialled=3)


REFUSALS = {
    "no connection is left": "ALTER DATABASE {} CONNECTION LIMIT 0",
    "nobody is let in": "ALTER DATABASE {} ALLOW_CONNECTIONS false",
    "a password has changed": "ALTER ROLE {} PASSWORD 'changed'",
}


@pytest.fixture
def somebody(database):
    """The address of a user who is no superuser: a limit of connections is none for those."""
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'somebody'").format(sql.Identifier(name)))
    # The password file is left out, since it has the superuser's password.
    yield make_conninfo(database, user=name, password="somebody", passfile="/dev/null")
    with psycopg.connect(database, autocommit=True, dbname="postgres") as connection:
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.regression("fault 310")
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_statement_keeps_its_connection_while_its_server_refuses_others(
    database, somebody, refusal, monkeypatch
):
    name = sql.Identifier(psycopg.conninfo.conninfo_to_dict(database)["dbname"])

    def refuse():
        with psycopg.connect(database, autocommit=True, dbname="postgres") as administration:
            administration.execute(sql.SQL(REFUSALS[refusal]).format(name))

    # Each time that it checks it is refused, and asks whether the server is alive.
    wait_for_a_lock(database, somebody, monkeypatch, dialled=6, once_connected=refuse)


@pytest.mark.regression("fault 310")
def test_a_statement_keeps_its_connection_where_the_server_does_not_track_what_sessions_do(
    database, monkeypatch
):
    untracked = make_conninfo(database, options="-c track_activities=off")
    wait_for_a_lock(database, untracked, monkeypatch, dialled=3)


@pytest.mark.regression("trial C3")
def test_a_server_that_falls_silent_during_a_statement_is_hung_up_on(database, monkeypatch):
    async def scenario():
        async with (
            asyncio.timeout(IN_PROCESS),
            proxy_to(database) as (proxy, address),
            await connecting.connect(at(address), "test") as connection,
        ):
            impatient(monkeypatch)
            proxy.fall_silent()
            with pytest.raises(psycopg.OperationalError, match="did not respond"):
                await connection.execute("SELECT 1")
            assert connection.closed

    asyncio.run(scenario())


def wait_for_a_lock(database, own, monkeypatch, *, dialled, once_connected=lambda: None):
    """Have a statement at the address `own` wait for a lock until the server was dialled so many times to check on it,
    and see it end well once the lock is free."""
    # Longer than the server takes to begin a statement, also on a busy machine.
    monkeypatch.setattr(connecting, "SILENT_SECONDS", scaled(0.5))
    monkeypatch.setattr(connecting, "ASK_SECONDS", ON_SERVERS)

    async def scenario():
        async with (
            asyncio.timeout(ON_SERVERS),
            proxy_to(own) as (proxy, address),
            await psycopg.AsyncConnection.connect(database, autocommit=True) as holds,
            await connecting.connect(at(address), "test") as waits,
            asyncio.TaskGroup() as tasks,
        ):
            once_connected()
            await holds.execute("SELECT pg_advisory_lock(1)")
            waiting = tasks.create_task(waits.execute("SELECT pg_advisory_lock(1)"))
            before = proxy.accepted
            while proxy.accepted < before + dialled:
                assert not waiting.done()
                await connecting.ping(holds)
            await holds.execute("SELECT pg_advisory_unlock(1)")
            await waiting

    asyncio.run(scenario())


def at(address):
    return Settings(database_url=SecretStr(address))


async def _one(connection):
    return (await (await connection.execute("SELECT 1")).fetchone())[0]


async def _together(connection, barrier):
    """Keeps its connection until all callers are here, so that each uses its own."""
    await connection.execute("SELECT 1")
    await barrier.wait()


@pytest.mark.regression("fault 75")
def test_a_cursor_of_a_connection_that_is_lost_is_closed(database):
    async def scenario():
        async with (
            await psycopg.AsyncConnection.connect(database, autocommit=True) as other,
            await connecting.connect(at(database), "test") as lost,
        ):
            pid = await connecting.backend(lost)
            await lost.execute("BEGIN")
            cursor = lost.cursor(name="read")
            await cursor.execute("SELECT 1")
            await other.execute("SELECT pg_terminate_backend(%s, 30000)", (pid,))
            with pytest.raises(psycopg.OperationalError):
                await cursor.close()
            assert cursor.closed

    asyncio.run(scenario())


@pytest.mark.regression("fault 96")
def test_a_connection_that_is_cancelled_while_it_commits_is_closed(database):
    """Like the connection that checks for a pooler, if another task of the command fails meanwhile."""
    slow = """
        CREATE TABLE slow AS SELECT 1;
        CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3600); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION linger()
    """
    commits = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep'"

    async def run():
        opened = []

        async def insert():
            async with await connecting.GuardedConnection.connect(database) as connection:
                opened.append(connection)
                await connection.execute("INSERT INTO slow VALUES (1)")

        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as watching:
            await watching.execute(slow)
            inserting = asyncio.create_task(insert())
            async with asyncio.timeout(ON_SERVERS):
                while (await (await watching.execute(commits)).fetchone()) == (0,):
                    await look_again()
            inserting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await inserting
        return opened[0].closed

    assert asyncio.run(run())


@pytest.mark.regression("trial C3")
def test_a_server_that_falls_silent_while_it_is_asked_about_its_sessions_is_not_waited_for(
    database, monkeypatch
):
    ask = connecting.backend

    async def scenario():
        async def silent_from_now_on(connection):
            if connection is not first[0]:
                impatient(monkeypatch)
                proxy.fall_silent()
            return await ask(connection)

        monkeypatch.setattr(connecting, "backend", silent_from_now_on)
        async with asyncio.timeout(ON_SERVERS), proxy_to(database) as (proxy, address):
            begin = connecting.GuardedConnection.begin
            first = []

            async def begun(connection, *arguments):
                first.append(connection)
                await begin(connection, *arguments)

            monkeypatch.setattr(connecting.GuardedConnection, "begin", begun)
            connection = await connecting.connect(at(address), "test")
            with pytest.raises(psycopg.OperationalError):
                await connecting.ping(connection)

    asyncio.run(scenario())
