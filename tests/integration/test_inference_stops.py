"""An interruption ends the stream at the provider: usually by the topic of cancellations, at the latest by the
heartbeat."""

import asyncio
import statistics
import threading
import time

import pytest
from tests.bounds import ON_SERVERS
from tests.support.answerers import STEADY, answering, ask, frame, rows, spoken, until_closed
from tests.support.killable import projector
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause

from frameledger_services.bench.inference.answers import Answer, Hang, Text, say
from frameledger_services.bench.inference.model_server import serving
from frameledger_services.inference import preparation
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.work import session
from frameledger_services.work.cancellations import follow

CONTEXTS = [f"context-{number}" for number in range(40)]
NO_HEARTBEATS = {"work_lease_secs": 30 * ON_SERVERS, "work_heartbeat_secs": 10 * ON_SERVERS}
"""Heartbeats so rare that none of them can be what closed a stream."""


def openai(server):
    return OpenAILLMService(api_key="k", base_url=server.openai_base_url)


def interrupt(pipeline, *context_ids):
    pipeline.publish([Raw(context_id.encode(), frame("InterruptionFrame")) for context_id in context_ids])


def closings(pipeline, settings, following):
    """Returns the seconds from each stored interruption to the end of its stream, for many concurrent conversations.
    None is interrupted before cancellations are read."""
    hanging = Answer((Text("Well,"), Hang()))
    with projector(pipeline.settings), answering(settings, openai, serving(hanging)) as beside:
        server = beside.needed
        for context_id in CONTEXTS:
            ask(pipeline, context_id, context_id)
        pipeline.until("SELECT count(*) = %s FROM frames WHERE type = 'LLMTextFrame'", len(CONTEXTS))
        assert server.open_streams == len(CONTEXTS)
        assert following.wait(ON_SERVERS)
        for context_id in CONTEXTS:
            interrupt(pipeline, context_id)
        until_closed(pipeline, *CONTEXTS)
        until = time.monotonic() + ON_SERVERS
        while server.open_streams:
            assert time.monotonic() < until
            pause()
        offset = time.time() - time.monotonic()
        left = {context_of(one.body): offset + one.left_at for one in server.received}
        stored = rows(
            pipeline,
            "SELECT context_id, extract(epoch FROM recorded_at)::float8 FROM frames WHERE type = 'InterruptionFrame'",
        )
        # What was said stays, and the conversation goes on.
        server.then(say("Yes?"))
        ask(pipeline, CONTEXTS[0], "Again?")
        pipeline.until(
            "SELECT count(*) = 2 FROM runs WHERE context_id = %s AND status <> 'open'", CONTEXTS[0]
        )
        assert [text for _, text in spoken(pipeline, CONTEXTS[0])] == [CONTEXTS[0], "Well,", "Again?", "Yes?"]
    assert rows(pipeline, "SELECT DISTINCT finish, attempt FROM claims WHERE version < 3") == [("over", 1)]
    assert rows(pipeline, "SELECT count(*) FROM frames WHERE type = 'LLMFullResponseEndFrame'") == [(1,)]
    return sorted(left[context_id] - at for context_id, at in stored)


def context_of(body):
    """Returns the context of a request: its message is the context's id."""
    return next(context_id for context_id in reversed(CONTEXTS) if context_id.encode() in body)


def test_an_interruption_closes_the_stream_at_once(pipeline, monkeypatch):
    reads = threading.Event()

    async def tell(following):
        await following.wait()
        reads.set()

    async def followed(settings, topic, cancel, following):
        telling = asyncio.create_task(tell(following))
        try:
            await follow(settings, topic, cancel, following)
        finally:
            telling.cancel()

    monkeypatch.setattr(session, "follow", followed)
    took = closings(pipeline, pipeline.settings.model_copy(update=NO_HEARTBEATS), reads)
    print(f"folded -> closed: p50 {statistics.median(took) * 1000:.1f} ms, max {took[-1] * 1000:.1f} ms")


@pytest.mark.long
def test_it_closes_the_stream_by_a_heartbeat_when_the_topic_of_cancellations_is_lost(pipeline, monkeypatch):
    reads = threading.Event()

    async def deaf(settings, topic, cancel, following):
        following.set()
        reads.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(session, "follow", deaf)
    took = closings(pipeline, pipeline.settings.model_copy(update=STEADY), reads)
    print(
        f"folded -> closed, by heartbeats: p50 {statistics.median(took) * 1000:.0f} ms, max {took[-1] * 1000:.0f} ms"
    )


def test_a_run_that_is_interrupted_before_it_has_asked_asks_nobody(pipeline, monkeypatch):
    reading, go_on = threading.Event(), threading.Event()
    read = preparation.read

    async def slowly(*args):
        reading.set()
        await asyncio.to_thread(go_on.wait, ON_SERVERS)
        return await read(*args)

    monkeypatch.setattr(preparation, "read", slowly)
    settings = pipeline.settings.model_copy(update=STEADY)
    with projector(pipeline.settings), answering(settings, openai, serving()) as beside:
        ask(pipeline, "context-0")
        assert reading.wait(ON_SERVERS)
        interrupt(pipeline, "context-0")
        pipeline.until("SELECT bool_and(finish = 'over') FROM claims")
        go_on.set()
        monkeypatch.setattr(preparation, "read", read)
        ask(pipeline, "context-0", "Again?")
        pipeline.until("SELECT count(*) = 1 FROM runs WHERE status = 'ended'")
        assert len(beside.needed.received) == 1
    assert rows(pipeline, "SELECT count(*) FROM frames WHERE type = 'LLMFullResponseStartFrame'") == [(1,)]
