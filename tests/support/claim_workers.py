"""Workers as rows of a database with their claims, for tests of the statements of `claims`."""

import asyncio
import itertools
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest
from tests.support.scene import Scene

from frameledger_services import claims
from frameledger_services.claims import Registration

_numbers = itertools.count(1)


FUNCTIONS = {"kind": "functions"}


@pytest.fixture
def scene(database):
    return Scene(database)


class Worker:
    """A worker's row, and its statements on a connection of its own. It remembers the tokens of its claims, so that
    tests name work by effects alone."""

    def __init__(self, connection, offer):
        self.connection = connection
        self.id = offer.worker_id
        self.offer = offer
        self.tokens = {}

    def __getattr__(self, name):
        statement = getattr(claims, name)

        async def ask(*args, **options):
            if name in ("finish", "release", "release_all_but", "heartbeat"):
                args = (self.held(args[0]), *args[1:])
            if name == "next_attempt":
                args = (args[0], self.tokens.get(args[0], ""), *args[1:])
            answer = await statement(self.connection, self.id, *args, **options)
            if name.startswith(("claim_", "take_over_")):
                claimed = getattr(answer, "claimed", answer)
                self.tokens |= {one.effect_id: one.claim for one in claimed}
            return answer

        return ask

    def held(self, effect_ids):
        return {one: self.tokens.get(one, "") for one in effect_ids}


@asynccontextmanager
async def workers(address, *offered):
    """Yields registered workers, each given as the fields of its registration that differ from the default."""
    async with AsyncExitStack() as stack:
        made = []
        for options in offered:
            connection = await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(address, autocommit=True)
            )
            usual = {
                "worker_id": f"worker-{next(_numbers)}",
                "service": "test",
                "kind": "inference",
                "host": "here",
                "pid": 1,
                "lease_secs": 60.0,
                "slots": 10,
            }
            offer = Registration(**usual | options)
            await claims.register(connection, offer)
            made.append(Worker(connection, offer))
        yield made


def run(scenario):
    asyncio.run(scenario)


async def die(worker):
    """Make a worker's last heartbeat older than its lease."""
    await worker.connection.execute(
        "UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 day' WHERE worker_id = %s", (worker.id,)
    )


async def connected_for_long(worker):
    await worker.connection.execute(
        "UPDATE workers SET connected_at = connected_at - interval '1 day' WHERE worker_id = %s", (worker.id,)
    )


async def finishes(worker):
    cursor = await worker.connection.execute("SELECT context_id, finish FROM claims")
    return dict(await cursor.fetchall())
