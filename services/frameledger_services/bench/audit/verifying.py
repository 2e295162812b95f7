"""The rate of verifying conversations from their rows, in frames per second, compared with a bare read, SHA-256 and the
fold.

Both use one connection. `frameledger verify` reads conversations in groups; the yardstick reads one conversation after
another from the same rows (version, source and payload), hashes, decodes and folds them, and compares nothing.
"""

from __future__ import annotations

import time

from psycopg import AsyncConnection

from frameledger.chain import first_link, next_link
from frameledger.decoding import decode
from frameledger.fold import Conversation, Folding
from frameledger.ids import ContextId
from frameledger_services import access
from frameledger_services.audit.verify import verify
from frameledger_services.audit.verify_many import batches
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import direct
from frameledger_services.bench.road.rounds import in_turns, no_collections
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import context_ids, interleaved
from frameledger_services.database_types import Connection

FRAME_BYTES = 355
WARM_UP = 1


async def measure(servers: Servers, *, contexts: int, each: int, rounds: int) -> list[Figure]:
    """Returns frames per second, for this many conversations of `each` frames."""
    names = context_ids(contexts)
    with servers.database() as settings:
        async with direct(settings) as projector:
            await projector.store(projector.records(interleaved(contexts, each, FRAME_BYTES)), 500)
        async with await AsyncConnection.connect(
            access.database_address(settings), autocommit=True
        ) as connection:
            await connection.execute("ANALYZE")

            groups = [group async for group in batches(settings, names, again=True)]

            async def ours() -> float:
                start = time.perf_counter()
                for group in groups:
                    results = await verify(connection, group, again=True)
                    assert not any(one.differences.count for one in results), (
                        "what is not intact is no measure"
                    )
                return contexts * each / (time.perf_counter() - start)

            async def yardstick() -> float:
                start = time.perf_counter()
                for name in names:
                    await _hashed_and_folded(connection, name)
                return contexts * each / (time.perf_counter() - start)

            with no_collections():
                measured = await in_turns(ours, yardstick, rounds, WARM_UP)
    name = "verify from rows / bare read, sha256 and fold"
    return [measured.figure(name, "frames/s", float, 0.5, "at least")]


async def _hashed_and_folded(connection: Connection, name: str) -> None:
    cursor = await connection.execute(
        "SELECT version, source, convert_to(payload::text, 'UTF8') FROM frames WHERE context_id = %s ORDER BY version",
        (name,),
        binary=True,
    )
    chain = first_link(name)
    folding = Folding(Conversation.new(ContextId(name)))
    for version, source, payload in await cursor.fetchall():
        chain = next_link(chain, version, source, payload)
        folding.step(decode(payload))
