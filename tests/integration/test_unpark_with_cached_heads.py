"""Unparking while a projector has the conversation cached as parked, and while it takes over its partition again."""

import asyncio
import json
import signal
import time

import psycopg
import pytest
from tests.support.batches import value_of
from tests.support.killable import Plan, projector
from tests.support.pipeline import PARTITIONS, Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause
from tests.support.unparking import Sent, operator

from frameledger.partition import partition_for
from frameledger_services.recovery.unpark import ContradictoryHeadError, unpark

KEY = b"ctx"
HOME = partition_for(KEY, PARTITIONS)
FROZEN_MS = 1_000
LASTING = Plan(session_ms=30_000, frozen_ms=FROZEN_MS)
"""With this session timeout the group keeps a frozen member and its partitions, and the member itself notices that it
was frozen."""

EPOCH = "SELECT epoch FROM projections WHERE partition = %s"


def said(text):
    frame = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": text}]}
    return Raw(KEY, json.dumps(frame).encode())


def park(pipeline, running):
    """Make the projector park the conversation at its second frame; the cause is removed afterwards."""
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute("ALTER TABLE messages ADD CONSTRAINT refused CHECK (text <> 'refused')")
        pipeline.until_idle(running)
        pipeline.publish([said("before"), said("refused"), said("behind")])
        pipeline.until_idle(running)
        connection.execute("ALTER TABLE messages DROP CONSTRAINT refused")
        assert value_of(connection, "SELECT parked_version FROM contexts") == 2


def unparked(pipeline):
    async def run():
        async with operator(pipeline.address) as connection:
            return await unpark(connection, pipeline.names, "ctx", "mended", Sent())

    return asyncio.run(run())


@pytest.mark.regression("fault 2")
def test_a_conversation_that_was_unparked_stays_so_when_its_partition_is_taken_over_anew(pipeline):
    with projector(pipeline.settings, LASTING) as running:
        park(pipeline, running)
        assert unparked(pipeline).parked_version is None
        with psycopg.connect(pipeline.address) as connection:
            epoch = value_of(connection, EPOCH, HOME)
        # After being frozen it checks its log again.
        since = time.monotonic()
        running.send(signal.SIGSTOP)
        while time.monotonic() < since + 2 * FROZEN_MS / 1000:
            pause()
        running.send(signal.SIGCONT)
        pipeline.until(f"SELECT ({EPOCH}) > %s", HOME, epoch)
        pipeline.publish([said("after")])
        pipeline.until_idle(running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        assert (
            connection.execute("SELECT outcome FROM frames ORDER BY version").fetchall() == [("applied",)] * 4
        )
        head = "SELECT version, state_version <= version, parked_version, message_count FROM contexts"
        assert connection.execute(head).fetchone() == (4, True, None, 4)


@pytest.mark.regression("fault 2")
def test_a_head_that_contradicts_itself_is_not_folded_upon(pipeline):
    with projector(pipeline.settings, LASTING) as running:
        park(pipeline, running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute("UPDATE contexts SET state_version = version")
        before = connection.execute("TABLE contexts").fetchall()
    with pytest.raises(ContradictoryHeadError, match=r"parked from version 2 on.*is that of version 3"):
        unparked(pipeline)
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute("TABLE contexts").fetchall() == before
