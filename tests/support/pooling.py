"""A minimal connection pooler: a server session belongs to a client for one transaction, or as long as the client is
connected."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
from psycopg.conninfo import make_conninfo

_OK = b"R" + (8).to_bytes(4) + (0).to_bytes(4)
_KEY = b"K" + (12).to_bytes(4) + bytes(8)
_READY = b"Z" + (5).to_bytes(4) + b"I"
_SAYS = b"".join(
    b"S" + (4 + len(said)).to_bytes(4) + said
    for said in (
        b"server_version\x0017.0\x00",
        b"client_encoding\x00UTF8\x00",
        b"standard_conforming_strings\x00on\x00",
    )
)
_SSL, _GSS = 80877103, 80877104

SESSIONS = 4


@asynccontextmanager
async def transactions_pooled(address: str, *, whole: bool = False) -> AsyncIterator[str]:
    """Yields the address of a pooler with `SESSIONS` sessions for the server at an address. With `whole` a client keeps
    its session."""
    made = [psycopg.connect(make_conninfo(address, sslmode="disable")) for _ in range(SESSIONS)]
    # psycopg authenticates; afterwards the pooler uses the sessions directly.
    plain = [socket.socket(fileno=os.dup(one.fileno())) for one in made]
    free = [await asyncio.open_connection(sock=one) for one in plain]
    room = asyncio.Semaphore(SESSIONS)

    open_here: set[asyncio.StreamWriter] = {server for _, server in free}

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_here.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            await _greet(reader, writer)
            first = await _message(reader)
            while first[:1] != b"X":
                async with room:
                    server = free.pop()
                    try:
                        await _transaction(first, (reader, writer), server)
                        first = await _message(reader) if whole else first
                        while whole and first[:1] != b"X":
                            await _transaction(first, (reader, writer), server)
                            first = await _message(reader)
                    finally:
                        free.append(server)
                if not whole:
                    first = await _message(reader)
        writer.transport.abort()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        yield make_conninfo(address, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
    finally:
        listening.close()
        for writer in open_here:
            writer.transport.abort()
        for writer in open_here:
            with suppress(OSError):
                await writer.wait_closed()
        for one in made:
            one.close()


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        length = int.from_bytes(await reader.readexactly(4))
        if int.from_bytes((await reader.readexactly(length - 4))[:4]) not in (_SSL, _GSS):
            break
        writer.write(b"N")
    writer.write(_OK + _SAYS + _KEY + _READY)


async def _message(reader: asyncio.StreamReader) -> bytes:
    kind = await reader.readexactly(1)
    length = await reader.readexactly(4)
    return kind + length + await reader.readexactly(int.from_bytes(length) - 4)


async def _transaction(
    first: bytes,
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Forward data from the client's first message until the server reports that no transaction is open."""
    server[1].write(first)
    said = first
    while True:
        # A statement ends with one of these: a simple query, or Sync.
        while said[:1] not in (b"Q", b"S"):
            said = await _message(client[0])
            server[1].write(said)
        while (answer := await _message(server[0]))[:1] != b"Z":
            client[1].write(answer)
        client[1].write(answer)
        if answer[5:] == b"I":
            return
        said = await _message(client[0])
        server[1].write(said)
