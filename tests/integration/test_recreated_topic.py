"""A topic is deleted, created and filled again while a projector cannot notice: no frame of the new topic is
skipped."""

import asyncio
import json
import signal
import time

import psycopg
import pytest
from tests.support.killable import STATEMENT_PER_TABLE, Plan, projector
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause
from tests.support.recovering import make_again, until_gone

from frameledger_services.event_log import feed

KEY = b"ctx"


def said(*texts):
    frame = {"type": "LLMMessagesAppendFrame"}
    return [
        Raw(KEY, json.dumps(frame | {"messages": [{"role": "user", "content": text}]}).encode())
        for text in texts
    ]


@pytest.mark.regression("fault 4")
@pytest.mark.parametrize("point", [None, "before commit"], ids=["at rest", "in a batch"])
def test_a_projector_that_was_frozen_meanwhile_stops_and_skips_nothing(pipeline, point):
    """At rest it has a fetch in flight, which the broker answers with an error; in a batch it has none."""
    with projector(
        pipeline.settings, Plan(point=point, signal=signal.SIGSTOP, small=STATEMENT_PER_TABLE)
    ) as frozen:
        pipeline.until_idle(frozen)
        pipeline.publish(said("old 0", "old 1"))
        pipeline.until_idle(frozen)
        if point is None:
            pipeline.publish(said("old 2"))
            pipeline.until_idle(frozen)
            frozen.send(signal.SIGSTOP)
        else:
            frozen.arm()
            pipeline.publish(said("old 2"))
            frozen.frozen()
        since = time.monotonic()
        asyncio.run(make_again(pipeline))
        until_gone(pipeline)
        pipeline.make_topics()
        pipeline.publish(said(*(f"new {number}" for number in range(6))))
        while time.monotonic() < since + 2 * feed.FROZEN_SECONDS:
            pause()
        frozen.send(signal.SIGCONT)
        # It reports the new topic and ends.
        assert frozen.ended() == 1
    with psycopg.connect(pipeline.address) as connection:
        stored = connection.execute("SELECT payload::text FROM frames ORDER BY version").fetchall()
    assert ["old" in text for (text,) in stored] == [True, True, True]


@pytest.mark.regression("fault 4")
def test_a_projector_that_lives_meanwhile_stops_once_there_is_a_topic_again(pipeline):
    """Its partitions are revoked by then, so no fetch tells it."""
    with projector(pipeline.settings) as living:
        pipeline.until_idle(living)
        pipeline.publish(said("old"))
        pipeline.until_idle(living)
        asyncio.run(make_again(pipeline))
        until_gone(pipeline)
        pipeline.make_topics()
        assert living.ended() == 1
