"""A process without free file descriptors says so, instead of calling servers unreachable, and a gateway has enough."""

import asyncio
import os
import resource
from contextlib import contextmanager

import psycopg
import pytest
from pydantic import SecretStr

from frameledger_services import database, descriptors
from frameledger_services.event_log import broker
from frameledger_services.gateway import service
from frameledger_services.gateway.live.hub import MAX_FOLLOWERS
from frameledger_services.settings import Settings

NOBODY = "127.0.0.1:1"
SETTINGS = Settings(
    kafka_bootstrap_servers=NOBODY, database_url=SecretStr(f"postgresql://nobody@{NOBODY}/nothing")
)


@contextmanager
def none_left():
    """Yields the limit of this process, which is reached during the block: every lower number is in use."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, most))
    try:
        yield lowest_free
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


async def to_the_database():
    await database.connect(SETTINGS, "test")


async def to_a_broker():
    async with broker.connect(SETTINGS):
        pass


@pytest.mark.regression("fault 316")
@pytest.mark.parametrize(
    ("connect", "error", "server"),
    [
        (to_the_database, psycopg.OperationalError, "PostgreSQL"),
        (to_a_broker, broker.BrokerError, f"Kafka at {NOBODY}"),
    ],
)
def test_a_connection_that_cannot_be_made_for_lack_of_descriptors_says_so(connect, error, server):
    async def scenario():
        with none_left() as limit, pytest.raises(error) as raised:
            await connect()
        return limit, str(raised.value)

    limit, sentence = asyncio.run(scenario())
    assert sentence == (
        f"No connection to {server} could be opened. This process has no file descriptors left. Its limit is {limit}: "
        "raise it (`ulimit -n`)."
    )


@pytest.mark.parametrize(
    ("connect", "error"), [(to_the_database, psycopg.OperationalError), (to_a_broker, broker.BrokerError)]
)
def test_a_process_that_has_descriptors_speaks_of_the_server(connect, error):
    with pytest.raises(error) as raised:
        asyncio.run(connect())
    assert "descriptors" not in str(raised.value)
    assert descriptors.shortage() == ""


@pytest.mark.regression("fault 317")
def test_a_gateway_may_have_as_many_connections_as_it_takes_followers():
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most <= MAX_FOLLOWERS:
        pytest.skip(f"this process may have {most} file descriptors at most")

    async def serve_and_stop():
        stopping = asyncio.Event()
        stopping.set()
        await service.serve(SETTINGS.model_copy(update={"gateway_port": 0}), stopping)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 512), most))
    try:
        asyncio.run(serve_and_stop())
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > MAX_FOLLOWERS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
