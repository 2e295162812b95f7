"""Exports and imports between two databases like the commands, also in a process that kills itself."""

import asyncio
import io
import os
import signal

from psycopg import AsyncConnection
from tests.laws.strategies import random_conversation
from tests.support.batches import Log
from tests.support.processes import Process, preload

from frameledger.frames import LLMContextEraseFrame, encode_frame
from frameledger_services import failpoints
from frameledger_services.settings import Settings
from frameledger_services.store.connections import connect
from frameledger_services.transfer import exporting, importing

RELEASE = "0.1.0"

preload(__name__)


def random_log(seeds):
    """Returns random conversations on one log, interleaved frame by frame, and their ids."""
    log = Log()
    conversations = {}
    for seed in seeds:
        frames = random_conversation(seed)
        if not any(isinstance(frame, LLMContextEraseFrame) for frame in frames):
            conversations[f"talk-{seed}"] = frames
    for place in range(max(map(len, conversations.values()))):
        for context_id, frames in conversations.items():
            if place < len(frames):
                source = [("ce_source", f"people/{place % 3}".encode())] if place % 4 else []
                log.add(context_id, encode_frame(frames[place]), headers=source)
    return log, tuple(conversations)


def exported(address, *context_ids):
    """Returns what an export of these conversations writes, or of all if none is given."""

    async def run():
        out = io.BytesIO()
        connection = await connect(Settings(database_url=address))
        async with connection:
            ids = exporting.selected_ids(connection, context_ids, None)
            await exporting.each(connection, ids, exporting.LineExport(RELEASE, out.write).export)
        return out.getvalue()

    return asyncio.run(run())


async def import_file(address, content, failpoint=failpoints.none):
    async with await AsyncConnection.connect(address, autocommit=True) as connection:
        lines = content.splitlines(keepends=True)
        await importing.check_free(connection, importing.check(lines, lambda _: None))
        return await importing.write(connection, lines, lambda _: None, failpoint)


def imported(address, content):
    """Check a file and import it. Returns the result."""
    return asyncio.run(import_file(address, content))


def killed_while_importing(address, content, point, times):
    """Import in another process, which kills itself when it reaches this point for the `times`-th time. Returns its
    exit code."""
    with Process(_import_and_die, address, content, point, times) as process:
        return process.ended()


def _import_and_die(address, content, point, times, _):
    passed = 0

    async def die(name):
        nonlocal passed
        passed += name == point
        if passed == times:
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(import_file(address, content, die))
