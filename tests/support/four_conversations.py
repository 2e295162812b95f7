"""The database of the examples in `infra/queries.md`, for its test and for readers who try the page.

    python tests/support/four_conversations.py

creates the database `four` on the PostgreSQL of the settings, such as that of a running `frameledger up`. No service
uses it, so its conversations do not change: nothing is answered, and no timeout is enforced.
"""

import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

if __name__ == "__main__":
    # As pytest does for the tests.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.batches import HISTORIES, Log, Projecting

from frameledger.evolve.changes import CallDispatched, CallStarted, RunOpened
from frameledger.fold import Conversation, Folding
from frameledger.record import decode, read
from frameledger_services import database
from frameledger_services.settings import Settings
from frameledger_services.store import migration

NAME = "four"
CONVERSATIONS = ("barge-in", "parallel-tools", "history-replaced", "ambiguous-payments")
MORNING = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
# Alive for a day.
WORKERS = """
INSERT INTO workers (worker_id, kind, service, host, pid, lease_secs, slots, serves, serves_all, offers)
VALUES
    ('functions-7f31', 'functions', 'functions', 'here', 1, 86400, 64, '{pay,search}', false, '{"functions": [
        {"name": "pay", "schema": {}, "options": {"cancel_on_interruption": true, "timeout_secs": 30}},
        {"name": "search", "schema": {}, "options": {
            "cancel_on_interruption": false, "timeout_secs": 60, "cancellable_by_llm": true, "safe_to_retry": true}}
    ]}'),
    ('inference-02c9', 'inference', 'inference', 'here', 2, 86400, 128, '{meadow-2}', true, '{"provider": "scripted"}');

INSERT INTO claims (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id)
VALUES ('an effect', 'call', 'ambiguous-payments', 60, 59, 0, 'p5', 'functions', 'functions-7f31');
"""


def fill(address):
    """Fill a migrated database: four conversations, ten minutes apart, a record that is no frame, and two live
    workers."""
    log = Log()
    times = []
    for number, name in enumerate(CONVERSATIONS):
        [lines] = [path.read_bytes().splitlines() for path in HISTORIES if path.stem == name]
        add_with_causes(log, name, lines)
        times += [
            MORNING + timedelta(minutes=10 * number, seconds=0.3 * second) for second in range(len(lines))
        ]
    log.add("parallel-tools", b"Hello?")
    times.append(times[-1])
    records = [
        replace(record, timestamp_ms=round(time.timestamp() * 1000))
        for record, time in zip(log.records, times, strict=True)
    ]

    async def store():
        async with Projecting(address) as projecting:
            for record in records:
                projecting.owned[record.partition].end_offset = record.offset + 1
            await projecting.store(records)

    asyncio.run(store())
    with psycopg.connect(address) as connection:
        connection.execute(WORKERS)


def add_with_causes(log, name, lines):
    """Add a history whose frames of runs and calls have the causes that services give them: the frame that opened the
    run, and the latest frame of the call."""
    came_to: dict[str | None, str] = {}
    folding = Folding(Conversation.new(name))
    for line in lines:
        frame = decode(line)
        cause = came_to.get(getattr(frame, "run_id", None) or getattr(frame, "tool_call_id", None))
        log.add(name, line, headers=() if cause is None else (("fl_causation_id", cause.encode()),))
        frame_id, step = read(log.records[-1]).frame_id, folding.step(frame)
        for change in () if step is None else step.changes:
            if isinstance(change, RunOpened):
                came_to[change.run_id] = frame_id
            elif isinstance(change, CallDispatched | CallStarted):
                came_to[change.tool_call_id] = frame_id


def make(server):
    """Create the database on the server at this address, replacing an existing one. Returns its address."""
    address = make_conninfo(server, dbname=NAME)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {NAME}")
        connection.execute(f"CREATE DATABASE {NAME} TEMPLATE template0 ENCODING 'UTF8'")
    migration.migrate(address)
    fill(address)
    return address


if __name__ == "__main__":
    make(database.address(Settings.from_env(), "frameledger four conversations"))
    print(f"Made. Look into it with: frameledger sql {NAME}")
