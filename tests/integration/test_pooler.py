"""Connecting through a pooler in transaction mode fails with one clear error."""

import asyncio
import os
import sys

import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support.pooling import transactions_pooled
from tests.support.tiers import long

from frameledger_services import database as connecting
from frameledger_services.settings import Settings
from frameledger_services.store import server


@pytest.mark.regression("trial C7", "fault 17e")
def test_a_pooler_in_transaction_mode_is_refused(database):
    async def scenario():
        async with asyncio.timeout(ON_SERVERS), transactions_pooled(database) as address:
            with pytest.raises(connecting.PoolerError, match="transaction mode"):
                await connecting.connect(Settings(database_url=SecretStr(address)), "test")

    asyncio.run(scenario())


@pytest.mark.regression("trial C7", "fault 17e")
@pytest.mark.parametrize("service", [long("timekeeper"), "projector"])
def test_a_service_behind_it_ends_with_one_sentence(database, service):
    async def scenario():
        async with asyncio.timeout(ON_SERVERS), transactions_pooled(database) as address:
            environment = {
                **os.environ,
                "FRAMELEDGER_DATABASE_URL": address,
                "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            }
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "frameledger_services", "run", service),
                env=environment,
                stderr=asyncio.subprocess.PIPE,
            )
            _, said = await process.communicate()
            return process.returncode, said.decode()

    code, said = asyncio.run(scenario())
    assert code == 1
    assert said.startswith("The database address is that of a connection pooler in transaction mode")
    assert said.count("\n") == 1


@pytest.mark.regression("trial C7")
def test_two_sessions_of_a_server_are_no_pooler(database):
    async def scenario():
        settings = Settings(database_url=SecretStr(database))
        async with await connecting.connect(settings, "test", {"statement_timeout": "7s"}) as connection:
            said = await (await connection.execute("SHOW statement_timeout")).fetchone()
            assert said == ("7s",)

    asyncio.run(scenario())


@pytest.mark.regression("trial C6", "trial C7")
def test_a_pooler_of_sessions_is_taken_and_noticed(database):
    async def scenario():
        async with asyncio.timeout(ON_SERVERS), transactions_pooled(database, whole=True) as address:
            async with await connecting.connect(Settings(database_url=SecretStr(address)), "test") as through:
                assert await server.is_pooled(through)
            async with await connecting.connect(Settings(database_url=SecretStr(database)), "test") as direct:
                assert not await server.is_pooled(direct)

    asyncio.run(scenario())
