"""A connection whose socket stays registered with the event loop does what psycopg's own does."""

import asyncio
import errno
import os
import select
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest
import uvloop
from tests.bounds import ON_SERVERS
from tests.support.silent_proxy import proxy_to
from tests.support.turns import turns

from frameledger_services import database as connecting
from frameledger_services import database_wait
from frameledger_services.database import GuardedConnection
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


async def asleep(connection, other):
    """Returns the task of a statement that the server executes, and that does not end."""
    sleeping = asyncio.create_task(connection.execute(SLEEP))
    while not await value(other, SLEEPS, connection.info.backend_pid):
        await turns()
    return sleeping


async def until_unregistered(connection):
    while connection._registration is not None:
        await turns(1)


def test_the_socket_is_registered_once_for_many_statements(run, shared_database, monkeypatch):
    # A slow statement would look again.
    monkeypatch.setattr(database_wait, "LOOK_AGAIN_SECONDS", 3600.0)

    async def main():
        async with await connected(shared_database) as connection:
            await connection.execute("SELECT 1")
            registered = connection._registration
            assert os.path.sameopenfile(registered.descriptor, connection.fileno())
            for number in range(20):
                assert await value(connection, "SELECT %s::int4", number) == number
                assert connection._registration is registered
        assert connection._registration is None

    run(main())


def test_a_socket_that_the_event_loop_no_longer_reports_is_looked_at_again(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection:
            await connection.execute("SELECT 1")
            no_longer_report(connection)
            assert await value(connection, "SELECT 1") == 1

    run(main())


def no_longer_report(connection):
    """uvloop does so after an error of the socket."""
    asyncio.get_running_loop().remove_reader(connection._registration.descriptor)


@pytest.mark.regression("fault 335")
def test_a_connection_can_be_used_in_another_event_loop_once_the_first_is_closed(
    run, shared_database, monkeypatch
):
    asked = asyncio.Event()

    async def first():
        connection = await GuardedConnection.connect(shared_database, autocommit=True)
        # It sets its timers.
        await connection.execute("SELECT 1")
        return connection

    async def is_executing():
        asked.set()
        return True

    async def second(connection):
        monkeypatch.setattr(connecting, "SILENT_SECONDS", 0.01)
        async with connection, await connected(shared_database) as other:
            connection._backend, connection._is_executing = connection.info.backend_pid, is_executing
            assert await value(connection, "SELECT 1") == 1
            no_longer_report(connection)
            assert await value(connection, "SELECT 1") == 1
            # The server is asked about a statement that takes long.
            asked.clear()
            await other.execute("SELECT pg_advisory_lock(335)")
            waiting = asyncio.create_task(connection.execute("SELECT pg_advisory_lock(335)"))
            await asked.wait()
            await other.execute("SELECT pg_advisory_unlock(335)")
            await waiting

    run(second(run(first())))


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
            sleeping = await asleep(connection, other)
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
            assert connection._registration is None

    run(main())


def test_the_end_of_a_session_that_works_is_an_error_of_its_statement(run, shared_database):
    async def main():
        async with await connected(shared_database) as connection, await connected(shared_database) as other:
            sleeping = await asleep(connection, other)
            await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                await sleeping
            await until_unregistered(connection)

    run(main())


def test_a_connection_without_a_file_descriptor_to_spare_waits_as_psycopg_does(
    run, shared_database, monkeypatch
):
    def none_left(number):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main():
        async with await connected(shared_database) as connection:
            with monkeypatch.context() as full:
                full.setattr("os.dup", none_left)
                assert await value(connection, "SELECT 1") == 1
                assert connection._registration is None
            assert await value(connection, "SELECT 1") == 1
            assert connection._registration is not None

    run(main())


def test_a_connection_may_be_collected_as_garbage_in_another_thread(run, shared_database):
    async def main():
        kept = [await connected(shared_database)]
        await kept[0].execute("SELECT 1")
        ended = os.fstat(kept[0]._registration.descriptor).st_ino
        with pytest.warns(ResourceWarning, match="was deleted while still open"):
            await asyncio.to_thread(kept.clear)
        while ended in inodes_of_sockets():
            await turns(1)

    run(main())


def inodes_of_sockets():
    found = set()
    for number in range(1_000):
        with suppress(OSError):
            found.add(os.fstat(number).st_ino)
    return found


def test_who_waits_while_another_task_closes_the_connection_gets_an_error(run, shared_database):
    async def main():
        async with await connected(shared_database) as other:
            connection = await connected(shared_database)
            sleeping = await asleep(connection, other)
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


@pytest.mark.regression("fault 333")
def test_the_event_loop_watches_what_gets_the_number_of_a_socket_that_libpq_closed(run, shared_database):
    async def main():
        async with proxy_to(shared_database) as (proxy, through), await connected(through) as connection:
            await connection.execute("SELECT 1")
            number, (host, port) = connection.fileno(), address_of(through)
            proxy.end_answers()
            # libpq notices that before the event loop does: when it can send no more, it reads.
            select.select([number], [], [])
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("SELECT length(%s)", ["x" * 30_000_000])
            with lower_ones_taken(number):
                reader, writer = await asyncio.open_connection(host, port)
            with closing(writer):
                assert writer.get_extra_info("socket").fileno() == number
                writer.write(connecting._SSL_REQUEST)
                assert await reader.read(1) in {b"N", b"S"}

    run(main())


def address_of(conninfo):
    parameters = psycopg.conninfo.conninfo_to_dict(conninfo)
    return parameters["host"], parameters["port"]


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="only epoll reports what was closed")
@pytest.mark.regression("fault 334")
def test_the_event_loop_is_idle_after_the_end_of_a_session_whose_socket_a_forked_process_has_too(
    run, shared_database
):
    async def main():
        async with await connected(shared_database) as connection, await connected(shared_database) as other:
            await connection.execute("SELECT 1")
            forked = os.dup(connection.fileno())
            sleeping = await asleep(connection, other)
            await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                await sleeping
            with reports_of(asyncio.get_running_loop()) as epoll:
                while epoll.poll(0):
                    await turns(1)
            os.close(forked)

    run(main())


@contextmanager
def reports_of(loop):
    """What the event loop polls."""
    number = loop._selector.fileno() if hasattr(loop, "_selector") else loop._get_backend_id()
    with select.epoll.fromfd(os.dup(number)) as epoll:
        yield epoll


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


@pytest.mark.parametrize(
    "kind", [RegisteredConnection, pytest.param(GuardedConnection, marks=pytest.mark.regression("fault 336"))]
)
def test_a_connection_that_is_forgotten_open_is_closed_with_pythons_warning(run, shared_database, kind):
    async def main():
        kept = []
        connection = await kind.connect(shared_database, autocommit=True)
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
