"""Sessions have the settings that the code is written for, whatever the environment and the database say."""

import asyncio

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support.databases import until_somebody_waits
from tests.support.projecting import (
    make_topics,
    projecting,
    settings_of_its_own,  # noqa: F401  # a fixture
    until_projected,
)

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services import database as connecting
from frameledger_services.client import Client
from frameledger_services.settings import Settings
from frameledger_services.store import migration

SETTINGS = {"datestyle": "SQL, DMY", "default_transaction_isolation": "serializable"}

SHOWN = "SELECT current_setting('datestyle'), current_setting('transaction_isolation'), 'ł日本'"


async def stored(settings):
    """Publish, store and read a message, in a conversation whose id is not Latin-1 either. Returns its text."""
    await make_topics(settings)
    async with projecting(settings), Client(settings) as client, asyncio.timeout(ON_SERVERS):
        said = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "日本"}])
        await client.publish("ł日本", said, wait=True)
        return (await client.context("ł日本")).context.messages[0]["content"]


async def shown(settings):
    async with await connecting.connect(settings, "test") as connection:
        return await (await connection.execute(SHOWN)).fetchone()


@pytest.fixture
def set_database(database):
    """A database whose administrator changed defaults such as the format of times and the isolation level."""
    with psycopg.connect(database, autocommit=True) as superuser:
        for name, value in SETTINGS.items():
            superuser.execute(
                sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                    sql.Identifier(superuser.info.dbname), sql.Identifier(name), value
                )
            )
    return database


@pytest.mark.regression("fault 92")
def test_times_and_isolation_are_ours_whatever_the_database_has(settings, set_database):
    assert asyncio.run(stored(settings)) == "日本"
    assert asyncio.run(shown(settings)) == ("ISO, DMY", "read committed", "ł日本")


@pytest.mark.regression("fault 92")
def test_times_and_isolation_are_ours_whatever_environment_and_address_have(settings, database, monkeypatch):
    monkeypatch.setenv("PGDATESTYLE", "German")
    options = "-c default_transaction_isolation=serializable"
    address = SecretStr(make_conninfo(database, options=options))
    found = asyncio.run(shown(settings.model_copy(update={"database_url": address})))
    assert found == ("ISO, DMY", "read committed", "ł日本")


@pytest.mark.regression("fault 92")
def test_a_migration_reads_what_the_one_before_it_did(set_database):
    address = make_conninfo(set_database)
    with migration._opened(address) as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"


@pytest.mark.regression("fault 312")
def test_a_projector_waits_for_a_locked_row_whatever_limit_the_database_has(settings, database):
    """Instead of leaving its group and taking its partitions over again and again."""
    with psycopg.connect(database, autocommit=True) as superuser:
        superuser.execute(
            sql.SQL("ALTER DATABASE {} SET lock_timeout = '1ms'").format(
                sql.Identifier(superuser.info.dbname)
            )
        )
    epochs = "SELECT array_agg(epoch) FROM projections"

    async def run():
        await make_topics(settings)
        said = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Hi"}])
        async with (
            asyncio.timeout(ON_SERVERS),
            projecting(settings),
            Client(settings) as client,
            await psycopg.AsyncConnection.connect(database) as somebody,
        ):
            await client.publish("ctx", said, wait=True)
            before = await (await somebody.execute(epochs)).fetchone()
            await somebody.execute("SELECT FROM contexts FOR UPDATE")
            places = await client.publish("ctx", said.model_copy())
            await until_somebody_waits(database)
            await somebody.rollback()
            await until_projected(settings, places)
            return before == await (await somebody.execute(epochs)).fetchone()

    assert asyncio.run(run())


@pytest.mark.regression("fault 93")
@pytest.mark.parametrize("place", ["environment", "address"])
def test_the_encoding_is_ours_whatever_environment_and_address_have(settings, database, monkeypatch, place):
    if place == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        address = SecretStr(make_conninfo(database, client_encoding="latin1"))
        settings = settings.model_copy(update={"database_url": address})
    assert asyncio.run(stored(settings)) == "日本"


@pytest.mark.regression("fault 161")
def test_backslashes_are_characters_whatever_the_database_has(database, empty_database):
    """In statements of migrations and of services."""
    with psycopg.connect(empty_database, autocommit=True) as superuser:
        superuser.execute(
            sql.SQL("ALTER DATABASE {} SET standard_conforming_strings = off").format(
                sql.Identifier(superuser.info.dbname)
            )
        )
    migration.migrate(empty_database)
    bodies = (
        "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    )
    printed_alike = make_conninfo(empty_database, options="-c standard_conforming_strings=on")
    with psycopg.connect(printed_alike) as migrated, psycopg.connect(database) as other:
        assert sorted(migrated.execute(bodies)) == sorted(other.execute(bodies))

    async def length():
        async with await connecting.connect(Settings(database_url=empty_database), "test") as session:
            return await (await session.execute(r"SELECT length('\s')")).fetchone()

    assert asyncio.run(length()) == (2,)
