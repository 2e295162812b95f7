"""A head's stored state is never far behind its conversation, so loading a head reads few frames."""

import asyncio
import json

import psycopg
import pytest
from tests.support.batches import Log, Projecting

from frameledger_services.projector.head_rows import CHARACTERS_PER_FRAME

BATCH = 10
THOUGHT = 6_000


@pytest.mark.regression("fault 26")
def test_a_long_text_that_never_ends_does_not_keep_the_state_from_being_stored(database):
    log = Log()
    for frame in (
        {"type": "LLMContextFrame", "context": {"messages": []}, "react": False},
        {"type": "LLMThoughtStartFrame", "llm": "p", "append_to_context": True},
        {"type": "LLMThoughtTextFrame", "text": "t" * THOUGHT},
    ):
        log.add("ctx", json.dumps(frame).encode())
    for number in range(100):
        for frame in (
            {"type": "TranscriptionFrame", "user_id": "u", "timestamp": "", "text": f"question {number}"},
            {"type": "LLMFullResponseStartFrame"},
            {"type": "LLMTextFrame", "text": f"answer {number}"},
            {"type": "LLMFullResponseEndFrame", "finish_reason": "stop"},
        ):
            log.add("ctx", json.dumps(frame).encode())

    async def run():
        behind = []
        async with Projecting(database) as projecting:
            for start in range(0, len(log.records), BATCH):
                await projecting.store(log.records[start : start + BATCH])
                cursor = await projecting.connection.execute("SELECT version - state_version FROM contexts")
                behind += await cursor.fetchone()
        return behind

    assert max(asyncio.run(run())) <= THOUGHT // CHARACTERS_PER_FRAME + BATCH
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version FROM contexts").fetchall() == [(403,)]
