"""Runs `unpark` and records what it publishes."""

from contextlib import asynccontextmanager

import psycopg

from frameledger_services.store import binary_copy


class Sent:
    """The frames that were passed for publishing."""

    def __init__(self, error=None):
        self.rows = []
        self.error = error

    async def __call__(self, rows):
        if self.error is not None:
            raise self.error
        self.rows += rows


@asynccontextmanager
async def operator(address):
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        binary_copy.prepare(connection)
        yield connection
