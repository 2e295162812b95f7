"""The small pool of connections for reads: a caller waits for a free one within a limit, and concurrent reads share one
statement."""

import asyncio
from functools import partial

import pytest
from tests.bounds import ON_SERVERS
from tests.support.turns import turns

from frameledger_services import database
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseUnavailableError
from frameledger_services.store.shared_reads import MAX_AT_ONCE, MAX_STATEMENTS, SharedReads


async def held(connection, taken, let_go):
    taken.set()
    await let_go.wait()


def test_who_finds_no_connection_free_waits_so_long_and_holds_up_nobody(shared_database):
    async def main():
        settings = Settings(database_url=shared_database)
        connections = Connections(settings, most=1, within=ON_SERVERS, free_within=0.05)
        taken, let_go = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            holding = tasks.create_task(connections.read(partial(held, taken=taken, let_go=let_go)))
            await taken.wait()
            with pytest.raises(DatabaseUnavailableError, match=r"no connection was free within 0\.05 s"):
                await connections.read(database.ping)
            # A read that has a connection may take longer than that.
            assert not holding.done()
            let_go.set()
            await holding
        await connections.read(database.ping)
        await connections.close()

    asyncio.run(main())


def test_a_connection_that_is_read_with_while_they_are_closed_is_closed_behind_that(shared_database):
    async def held_one(connection, taken, let_go):
        await held(connection, taken, let_go)
        return connection

    async def main():
        connections = Connections(Settings(database_url=shared_database))
        taken, let_go = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(connections.read(held_one, taken=taken, let_go=let_go))
            await taken.wait()
            await connections.close()
            let_go.set()
        assert reading.result().closed
        # A later read gets a connection that is not kept either.
        late = await connections.read(held_one, taken=taken, let_go=let_go)
        assert late.closed

    asyncio.run(main())


def test_no_statement_is_compiled_to_be_read_faster(shared_database):
    async def jit(connection):
        return await (await connection.execute("SHOW jit")).fetchone()

    async def main():
        connections = Connections(Settings(database_url=shared_database))
        assert await connections.read(jit) == ("off",)
        await connections.close()

    asyncio.run(main())


class Asked(SharedReads[str, str]):
    """Answers each question with itself. Statements wait for `go`, and are noted."""

    def __init__(self, address, *, begun_within=ON_SERVERS, **options):
        self.statements = []
        self.go = asyncio.Event()
        connections = Connections(Settings(database_url=address), most=MAX_STATEMENTS)
        super().__init__(connections, self._answered, begun_within=begun_within, **options)

    async def _answered(self, connection, questions):
        self.statements.append(questions)
        await self.go.wait()
        await database.ping(connection)
        if "wrong" in questions:
            raise ValueError("that one")
        return questions

    async def busy(self, tasks):
        """Start as many statements as may run at once."""
        found = []
        for number in range(MAX_STATEMENTS):
            found.append(tasks.create_task(self.read(f"first {number}")))
            while len(self.statements) <= number:
                await turns()
        self.statements.clear()
        return found


def asking(address, body, **options):
    async def main():
        asked = Asked(address, **options)
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            await body(asked, tasks)
        await asked._database.close()

    asyncio.run(main())


def test_who_asks_while_all_statements_are_under_way_shares_the_next_one(shared_database):
    async def body(asked, tasks):
        before = await asked.busy(tasks)
        questions = [f"question {number}" for number in range(MAX_AT_ONCE + 3)]
        # Each is asked twice. "first 0" is under way, and is read again, because that read began before the question.
        reading = [tasks.create_task(asked.read(one)) for one in [*questions, "first 0", *questions]]
        await turns()
        assert asked.statements == []
        asked.go.set()
        assert [await one for one in reading] == [*questions, "first 0", *questions]
        assert [await one for one in before] == [f"first {number}" for number in range(MAX_STATEMENTS)]
        assert asked.statements == [questions[:MAX_AT_ONCE], [*questions[MAX_AT_ONCE:], "first 0"]]

    asking(shared_database, body)


def test_what_goes_wrong_is_for_those_of_the_same_statement_and_who_left_holds_up_nobody(shared_database):
    async def body(asked, tasks):
        await asked.busy(tasks)
        some = [asyncio.ensure_future(asked.read(one)) for one in ("wrong", "left", "right")]
        await turns()
        some[1].cancel()
        asked.go.set()
        ends = await asyncio.gather(*some, return_exceptions=True)
        assert [type(one) for one in ends] == [ValueError, asyncio.CancelledError, ValueError]
        assert await asked.read("right") == "right"

    asking(shared_database, body)


def test_a_question_whose_statement_does_not_begin_is_given_up(shared_database):
    async def body(asked, tasks):
        before = await asked.busy(tasks)
        with pytest.raises(DatabaseUnavailableError, match=r"did not begin to answer within 0\.05 s"):
            await asked.read("late")
        asked.go.set()
        assert len([await one for one in before]) == MAX_STATEMENTS
        assert asked.statements == []

    asking(shared_database, body, begun_within=0.05)


def test_small_reads_have_one_statement_at_a_time(shared_database):
    async def body(asked, tasks):
        reading = [tasks.create_task(asked.read("first"))]
        while not asked.statements:
            await turns()
        reading += [tasks.create_task(asked.read(one)) for one in ("second", "third")]
        await turns()
        assert asked.statements == [["first"]]
        asked.go.set()
        assert [await one for one in reading] == ["first", "second", "third"]
        assert asked.statements == [["first"], ["second", "third"]]

    asking(shared_database, body, patience=2 * ON_SERVERS)


def test_who_is_answered_and_asks_again_shares_the_next_statement_with_those_who_waited(shared_database):
    async def body(asked, tasks):
        async def ask_again():
            await asked.read("first")
            await turns(1)
            await asked.read("again")

        tasks.create_task(ask_again())
        while not asked.statements:
            await turns()
        waiting = tasks.create_task(asked.read("second"))
        await turns()
        asked.go.set()
        await waiting
        assert asked.statements == [["first"], ["second", "again"]]

    asking(shared_database, body, patience=2 * ON_SERVERS)


def test_beside_a_small_read_that_is_held_up_others_are_read_for(shared_database):
    async def body(asked, tasks):
        let_go, held_up = asyncio.Event(), tasks.create_task(asked.read("held up"))
        while not asked.statements:
            await turns()
        # Only that read waits for the first event.
        first, asked.go = asked.go, let_go
        let_go.set()
        for name in ("second", "third", "fourth"):
            assert await asked.read(name) == name
        assert not held_up.done()
        first.set()
        assert await held_up == "held up"
        assert asked.statements == [["held up"], ["second"], ["third"], ["fourth"]]

    asking(shared_database, body, patience=0.001)
