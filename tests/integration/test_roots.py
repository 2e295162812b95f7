"""Roots on the log: published by a command, and at an interval by one of several timekeepers."""

import asyncio
import json
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise

import psycopg
import pytest
from tests.bounds import ON_SERVERS, scaled
from tests.support.batches import value_of
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause
from tests.support.timekeeper_process import timekeeper

from frameledger.published_root import PublishedRoot
from frameledger.record import LogPosition, Outgoing
from frameledger_services.audit import heads, roots
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.reader import records_from
from frameledger_services.store import leaves
from frameledger_services.timekeeper import roots as at_intervals

HEAD = """
    INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, state)
    VALUES (%s, 1, 1, now(), now(), 1, sha256('x'), '{}')
"""


def published(pipeline):
    found = asyncio.run(records_from(pipeline.settings, LogPosition(pipeline.names.roots, 0, 0)))
    return [json.loads(record.value) for record in found]


def until_published(pipeline, count):
    """Wait until so many roots are on the topic."""
    until = time.monotonic() + ON_SERVERS
    while len(found := published(pipeline)) < count:
        assert time.monotonic() < until, found
        pause()
    return found


def turn(settings, every):
    async def run():
        async with Producer(settings) as producer:
            return await roots.publish_if_due(settings, producer, every)

    return asyncio.run(run())


def root_of(settings):
    async def run():
        async with heads.snapshot(settings, "test") as connection:
            return await heads.compute(connection)

    return asyncio.run(run())


@pytest.fixture
def command(pipeline, command):
    return partial(command, pipeline.settings)


def test_the_command_publishes_the_root_that_it_prints(pipeline, command):
    with psycopg.connect(pipeline.address) as connection:
        connection.execute(HEAD, ("talk",))
    said = json.loads(command("heads", "--publish", "--json").stdout)
    again = command("heads", "--publish").stdout

    first, second = published(pipeline)
    assert first == {name: said[name] for name in ("root", "leaves", "at", "release")}
    assert (said["published"], first["leaves"]) == ({"topic": pipeline.names.roots, "offset": 0}, 1)
    assert first["root"] == second["root"] == root_of(pipeline.settings).hash.hex()
    assert f"published {pipeline.names.roots}, offset 1" in again
    newest = asyncio.run(roots.newest(pipeline.settings))
    assert newest is not None
    assert newest.at.isoformat() == second["at"]


def test_a_root_is_due_when_the_newest_one_is_older_than_the_interval(pipeline):
    first = turn(pipeline.settings, 100.0)
    assert first.published is not None
    second = turn(pipeline.settings, 100.0)
    assert second.published is None
    assert 0 < second.again_in <= 100.0
    assert turn(pipeline.settings, 0.0).published is not None
    assert len(published(pipeline)) == 2


@pytest.mark.regression("fault 125")
def test_a_root_is_due_also_when_the_clock_was_set_back_behind_the_newest_one(pipeline):
    newest = root_of(pipeline.settings)
    ahead = replace(newest, at=newest.at + timedelta(days=365))

    async def run():
        async with Producer(pipeline.settings) as producer:
            await roots.publish(producer, pipeline.settings, ahead)

    asyncio.run(run())
    assert turn(pipeline.settings, 100.0).published is not None
    assert turn(pipeline.settings, 100.0).published is None


def test_something_else_on_the_topic_is_no_root_and_in_nobodys_way(pipeline):
    async def run():
        async with Producer(pipeline.settings) as producer:
            await producer.publish(pipeline.names.roots, [Outgoing(b"x", b"no root", ())])

    asyncio.run(run())
    assert asyncio.run(roots.newest(pipeline.settings)) is None
    assert turn(pipeline.settings, 100.0).published is not None


def test_who_does_not_get_the_lock_leaves_the_root_to_who_has_it(pipeline):
    with psycopg.connect(pipeline.address) as other:
        assert value_of(other, "SELECT pg_try_advisory_xact_lock(%s)", leaves.ROOT_LOCK) is True
        assert turn(pipeline.settings, 0.0).published is None
    assert published(pipeline) == []
    assert turn(pipeline.settings, 0.0).published is not None


def test_without_its_topic_no_root_is_published_and_the_remedy_is_said(pipeline, monkeypatch):
    settings = pipeline.settings.model_copy(
        update={"topic_prefix": "nowhere.", "timekeeper_root_every_secs": 1.0}
    )
    with pytest.raises(
        BrokerError, match=r"no topic nowhere\.roots: create it with `frameledger topics --create`"
    ):
        turn(settings, 0.0)

    class Heard:
        def __init__(self):
            self.stopping = asyncio.Event()
            self.events = []

        def warning(self, event, **fields):
            self.events.append((event, fields["reason"]))
            self.stopping.set()

    async def keep():
        heard = Heard()
        monkeypatch.setattr(at_intervals, "_log", heard)
        async with asyncio.timeout(ON_SERVERS):
            await at_intervals.keep_publishing(settings, heard.stopping)
        return heard.events

    [(event, reason)] = asyncio.run(keep())
    assert event == "timekeeper.root_failed"
    assert "nowhere.roots" in reason


@pytest.mark.long
def test_of_two_timekeepers_one_publishes_in_each_interval_also_when_the_other_is_killed(pipeline):
    every = scaled(0.5)
    settings = pipeline.settings.model_copy(
        update={"timekeeper_every_secs": 0.05, "timekeeper_root_every_secs": every}
    )
    with timekeeper(settings) as first:
        with timekeeper(settings) as second:
            count = len(until_published(pipeline, 4))
            second.kill()
        count = len(until_published(pipeline, count + 3))
        with psycopg.connect(pipeline.address) as connection:
            connection.execute(HEAD, ("talk",))
        found = until_published(pipeline, count + 3)
        assert first.stop() == 0

    assert found[-1]["root"] == root_of(settings).hash.hex()
    assert [one["leaves"] for one in (found[0], found[-1])] == [0, 1]
    times = [PublishedRoot.model_validate(one).at for one in found]
    between = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    assert min(between) >= every, between


def test_no_root_is_published_unless_the_settings_say_so(pipeline):
    with timekeeper(pipeline.settings.model_copy(update={"timekeeper_every_secs": 0.05})) as process:
        pipeline.publish([Raw(b"talk", b'{"type":"LLMRunFrame"}')])
        pipeline.until("SELECT count(*) > 0 FROM workers WHERE pid = %s", process.pid)
        assert process.stop() == 0
    assert published(pipeline) == []
