"""The few connections that a process reads with: who finds none free waits for one, and not for ever."""

import asyncio
from functools import partial

import pytest
from tests.bounds import ON_SERVERS

from frameledger_services import database
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseUnavailableError


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
            # Who has one may take longer than that.
            assert not holding.done()
            let_go.set()
            await holding
        await connections.read(database.ping)
        await connections.close()

    asyncio.run(main())
