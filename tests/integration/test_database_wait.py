"""A connection whose socket stays registered with the event loop does what psycopg's own does."""

import asyncio
import os
from contextlib import contextmanager

import psycopg
import pytest
import uvloop
from tests.bounds import ON_SERVERS
from tests.support.turns import turns

from frameledger_services import database_wait
from frameledger_services.database_wait import RegisteredConnection

SLEEPS = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
SLEEP = "SELECT pg_sleep(3600)"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine in an event loop, and fails if it does not end."""

    async def bounded(body):
        async with asyncio.timeout(ON_SERVERS):
            return await body

    def run(body):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(bounded(body))

    return run


async def connected(address):
    return await RegisteredConnection.connect(address, autocommit=True)


async def value(connection, query, *parameters):
    ((found,),) = await (await connection.execute(query, parameters)).fetchall()
    return found


async def until_it_sleeps(connection, other):
    while not await value(other, SLEEPS, connection.info.backend_pid):
        await turns()


async def until_unregistered(connection):
    while connection._registered is not None:
        await turns(1)


def test_the_socket_is_registered_once_for_many_statements(run, shared_database, monkeypatch):
    # A slow statement would look again.
    monkeypatch.setattr(database_wait, "LOOK_AGAIN_SECONDS", 3600.0)

    async def main():
        loop = asyncio.get_running_loop()
        async with await connected(shared_database) as connection:
            await connection.execute("SELECT 1")
            registered = connection._registered
            assert registered == (loop, connection.fileno())
            for number in range(20):
                assert await value(connection, "SELECT %s::int4", number) == number
                # Not an equal one.
                assert connection._registered is registered
        assert connection._registered is None

    run(main())


def test_a_socket_that_the_event_loop_no_longer_reports_is_looked_at_again(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection:
            await connection.execute("SELECT 1")
            # uvloop does so after an error of the socket.
            asyncio.get_running_loop().remove_reader(connection.fileno())
            assert await value(connection, "SELECT 1") == 1

    run(main())


@pytest.mark.parametrize("length", [1, 1_000_000, 30_000_000])
def test_statements_and_answers_of_any_size_pass(run, shared_database, length):
    async def main():
        async with await connected(shared_database) as connection:
            for _ in range(2):
                assert await value(connection, "SELECT length(%s)", "x" * length) == length
                assert len(await value(connection, "SELECT repeat('x', %s)", length)) == length

    run(main())


def test_copies_and_pipelines_run_between_statements(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection, connection.cursor() as cursor:
            await cursor.execute("CREATE TEMPORARY TABLE copied (number int4)")
            async with cursor.copy("COPY copied FROM STDIN") as copy:
                for number in range(2_000):
                    await copy.write_row([number])
            assert await value(connection, "SELECT sum(number) FROM copied") == 1_999_000
            async with cursor.copy("COPY copied TO STDOUT") as copy:
                assert len([row async for row in copy.rows()]) == 2_000
            async with connection.pipeline():
                several = [await connection.execute("SELECT %s::int4", [number]) for number in range(100)]
                assert [await one.fetchone() for one in several] == [(number,) for number in range(100)]
            assert await value(connection, "SELECT 1") == 1

    run(main())


def test_an_error_of_a_statement_leaves_the_connection_usable(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection:
            for _ in range(3):
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await connection.execute("SELECT 1 / 0")
                assert await value(connection, "SELECT 1") == 1

    run(main())


def test_a_cancelled_statement_is_cancelled_in_the_server_too(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection, await connected(shared_database) as other:
            sleeping = asyncio.create_task(connection.execute(SLEEP))
            await until_it_sleeps(connection, other)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            assert connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert await value(other, SLEEPS, connection.info.backend_pid) == 0
            assert await value(connection, "SELECT 1") == 1

    run(main())


def test_the_end_of_an_idle_session_is_an_error_of_the_next_statement(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection, await connected(shared_database) as other:
            await connection.execute("SELECT 1")
            await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
            # Otherwise the event loop would do nothing but report it.
            await until_unregistered(connection)
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("SELECT 1")
            assert connection.closed
            assert connection._registered is None

    run(main())


def test_the_end_of_a_session_that_works_is_an_error_of_its_statement(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection, await connected(shared_database) as other:
            sleeping = asyncio.create_task(connection.execute(SLEEP))
            await until_it_sleeps(connection, other)
            await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                await sleeping
            await until_unregistered(connection)

    run(main())


def test_who_waits_while_another_task_closes_the_connection_gets_an_error(run, shared_database):
    async def main():
        async with await connected(shared_database) as other:
            connection = await connected(shared_database)
            sleeping = asyncio.create_task(connection.execute(SLEEP))
            await until_it_sleeps(connection, other)
            await connection.close()
            with pytest.raises(psycopg.OperationalError):
                await sleeping
            assert await value(other, "SELECT 1") == 1

    run(main())


def test_the_number_of_a_closed_socket_serves_the_next_connection(run, shared_database):
    async def main():
        async with await connected(shared_database) as other:
            for closes in (RegisteredConnection.close, terminated_by(other)):
                first = await connected(shared_database)
                await first.execute("SELECT 1")
                number = first.fileno()
                await closes(first)
                await first.close()
                with lower_ones_taken(number):
                    second = await connected(shared_database)
                async with second:
                    assert second.fileno() == number
                    for _ in range(3):
                        assert await value(second, "SELECT 1") == 1
                        assert await value(other, "SELECT 1") == 1

    run(main())


@contextmanager
def lower_ones_taken(number):
    """The next file that is opened gets this number."""
    taken = []
    try:
        while (lowest := os.dup(2)) < number:
            taken.append(lowest)
        os.close(lowest)
        assert lowest == number
        yield
    finally:
        for lower in taken:
            os.close(lower)


def terminated_by(other):
    async def terminated(connection):
        await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        await until_unregistered(connection)
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("SELECT 1")

    return terminated


def test_a_notification_between_statements_is_received_later(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection, await connected(shared_database) as other:
            await connection.execute("LISTEN waited_for")
            await other.execute("NOTIFY waited_for, 'first'")
            await until_unregistered(connection)
            assert await value(connection, "SELECT 1") == 1
            await other.execute("NOTIFY waited_for, 'second'")
            received = [one.payload async for one in connection.notifies(timeout=ON_SERVERS, stop_after=2)]
            assert received == ["first", "second"]
            assert await value(connection, "SELECT 1") == 1

    run(main())


def test_a_connection_that_is_forgotten_open_is_closed_with_pythons_warning(run, shared_database):
    async def main():
        kept = []
        connection = await connected(shared_database)
        await connection.execute("SELECT 1")
        number = connection.fileno()
        kept.append(connection)
        del connection
        with pytest.warns(ResourceWarning, match="was deleted while still open"):
            kept.clear()
        with lower_ones_taken(number):
            second = await connected(shared_database)
        async with second:
            assert second.fileno() == number
            assert await value(second, "SELECT 1") == 1

    run(main())
