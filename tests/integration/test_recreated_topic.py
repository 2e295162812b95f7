"""A topic is deleted, created and filled again while a projector cannot notice: no frame of the new topic is
skipped."""

import asyncio
import json
import signal
import time

import psycopg
import pytest
from tests.support.killable import STATEMENT_PER_TABLE, Plan, projector
from tests.support.polling import pause
from tests.support.recovering import make_again, until_gone
from tests.support.road import Raw, road_of_its_own  # noqa: F401  # a fixture

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
def test_a_projector_that_was_frozen_meanwhile_stops_and_skips_nothing(road, point):
    """At rest it has a fetch in flight, which the broker answers with an error; in a batch it has none."""
    with projector(
        road.settings, Plan(point=point, signal=signal.SIGSTOP, small=STATEMENT_PER_TABLE)
    ) as frozen:
        road.until_idle(frozen)
        road.publish(said("old 0", "old 1"))
        road.until_idle(frozen)
        if point is None:
            road.publish(said("old 2"))
            road.until_idle(frozen)
            frozen.send(signal.SIGSTOP)
        else:
            frozen.arm()
            road.publish(said("old 2"))
            frozen.frozen()
        since = time.monotonic()
        asyncio.run(make_again(road))
        until_gone(road)
        road.make_topics()
        road.publish(said(*(f"new {number}" for number in range(6))))
        while time.monotonic() < since + 2 * feed.FROZEN_SECONDS:
            pause()
        frozen.send(signal.SIGCONT)
        # It reports the new topic and ends.
        assert frozen.ended() == 1
    with psycopg.connect(road.address) as connection:
        stored = connection.execute("SELECT payload::text FROM frames ORDER BY version").fetchall()
    assert ["old" in text for (text,) in stored] == [True, True, True]


@pytest.mark.regression("fault 4")
def test_a_projector_that_lives_meanwhile_stops_once_there_is_a_topic_again(road):
    """Its partitions are revoked by then, so no fetch tells it."""
    with projector(road.settings) as living:
        road.until_idle(living)
        road.publish(said("old"))
        road.until_idle(living)
        asyncio.run(make_again(road))
        until_gone(road)
        road.make_topics()
        assert living.ended() == 1
