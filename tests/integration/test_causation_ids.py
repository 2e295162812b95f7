"""Causation ids: the header of a frame becomes a column, and a SQL query follows it back to a frame without a cause."""

import json

import psycopg
import pytest
from tests.laws.strategies import random_conversation
from tests.support.batches import Log, histories_interleaved, project
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.timekeeping import PAST, limits, with_harness
from tests.unit.rules.dsl import (
    announce,
    ask,
    begin,
    bot_speaks,
    committed,
    hear,
    interim,
    speak,
    start,
    stop,
)
from typer.testing import CliRunner

from frameledger import derived
from frameledger.frames import LLMRunFrame, encode_frame
from frameledger.ids import ContextId, Version
from frameledger_services.cli import application
from frameledger_services.client import SyncClient
from frameledger_services.store.frame_ids import frame_uuid


def stored(address, *frames):
    """Store frames of one conversation, each given as its id and the id of its cause."""
    log = Log()
    add(log, "ctx", frames)
    project(address, log.records)


def add(log, context_id, frames):
    for frame_id, cause in frames:
        value = json.dumps({"type": "LLMRunFrame", "id": frame_id}).encode()
        headers = () if cause is None else (("fl_causation_id", cause.encode()),)
        log.add(context_id, value, headers=(("ce_source", b"//test"), *headers))


def way(address, version, *, context_id="ctx"):
    """Returns the chain of causes from a version, each frame with its depth."""
    with psycopg.connect(address) as connection:
        return connection.execute(
            "SELECT depth, version, frame_id, type, source FROM causes(%s, %s)", (context_id, version)
        ).fetchall()


def test_the_causes_of_a_frame_lead_to_one_without_a_cause(database):
    stored(database, ("a", None), ("b", None), ("c", "a"), ("d", str(frame_uuid("c"))))
    assert way(database, 4) == [
        (0, 4, frame_uuid("d"), "LLMRunFrame", "//test"),
        (1, 3, frame_uuid("c"), "LLMRunFrame", "//test"),
        (2, 1, frame_uuid("a"), "LLMRunFrame", "//test"),
    ]
    assert [version for _, version, *_ in way(database, 2)] == [2]
    assert way(database, 5) == []


def test_a_cause_that_is_not_there_ends_the_way(database):
    stored(database, ("a", "nobody"), ("b", "a"))
    assert [version for _, version, *_ in way(database, 2)] == [2, 1]


def test_causes_that_lead_in_a_circle_are_each_listed_once(database):
    shapes = [(before, around) for before in (0, 1, 2, 9) for around in (1, 2, 3, 7, 8, 50)]
    log = Log()
    for before, around in shapes:
        count = before + around
        after = [*range(1, count), before]
        frames = [(str(number), str(after[number])) for number in range(count)]
        add(log, f"{before} frames lead into a circle of {around}", frames)
    project(database, log.records)
    for before, around in shapes:
        found = way(database, 1, context_id=f"{before} frames lead into a circle of {around}")
        assert [depth for depth, *_ in found] == list(range(before + around))
        assert [version for _, version, *_ in found] == list(range(1, before + around + 1))


def unnamed(address, rows):
    """Returns the effects that do not name the frame at their version as their cause."""
    effects = [json.loads(row.value) for row in rows if row.kind == "effect"]
    assert effects
    with psycopg.connect(address) as connection:
        frames = {
            (context_id, version): str(frame_id)
            for context_id, version, frame_id in connection.execute(
                "SELECT context_id, version, frame_id FROM frames"
            )
        }
    return [one for one in effects if frames[one["context_id"], one["version"]] != one.get("causation_id")]


def test_every_effect_of_every_history_names_the_frame_that_brought_it_forth(database):
    assert unnamed(database, project(database, histories_interleaved(), sizes=(1_000,))) == []


def test_every_effect_of_random_conversations_names_the_frame_that_brought_it_forth(database):
    log = Log()
    for seed in range(30):
        for frame in random_conversation(seed):
            log.add(f"random-{seed}", encode_frame(frame))
    assert unnamed(database, project(database, log.records, sizes=(1_000,))) == []


RUN = derived.run_id(ContextId("harness"), Version(1))
DISPATCHED = [ask(), *committed("a", run=RUN)]
"""Four frames: the first asks, the fourth dispatches the call."""


@pytest.mark.parametrize(
    ("frames", "rule", "opened"),
    [
        ([ask()], limits(run_unclaimed=PAST), 1),
        ([hear("Hello?"), start(1), hear("And?")], limits(run_silent=PAST), 1),
        ([*DISPATCHED, hear("Hello?")], limits(call=PAST), 4),
        ([*DISPATCHED, begin("a", attempt=1), hear("Hello?")], limits(call=PAST), 5),
        ([hear("Hello?"), announce("a"), hear("And?")], limits(call=PAST), 2),
        (
            [begin("a"), begin("a", waiting={"for": "us", "deadline": "2026-01-01T00:00:00Z"}), hear("And?")],
            limits(waiting_calls=True),
            1,
        ),
        ([hear("Hello?"), speak(), hear("I")], limits(user_silent=PAST), 2),
        ([speak(), hear("I"), interim(), stop()], limits(final_words=PAST), 1),
        ([hear("Hello?"), bot_speaks(), hear("I")], limits(bot_silent=PAST), 2),
    ],
    ids=["unclaimed", "silent", "dispatched", "running", "announced", "waiting", "turn", "words", "bot"],
)
def test_what_the_timekeeper_settles_was_caused_by_the_frame_that_opened_it(database, frames, rule, opened):
    async def test(harness):
        version = await harness.say("harness", *frames)
        assert [outcome for _, outcome in await harness.settle(rule)] == ["applied"]
        assert await harness.value(CAUSE, version + 1) == opened

    with_harness(database, test)


def test_a_call_that_the_timekeeper_starts_to_answer_it_was_dispatched_by_its_cause(database):
    async def test(harness):
        await harness.say("harness", *DISPATCHED)
        unserved = limits(call_unserved=PAST)
        assert await harness.settle(unserved) == [("call_start", "applied")]
        assert await harness.settle(unserved) == [("call_not_available", "applied")]
        assert [await harness.value(CAUSE, version) for version in (5, 6)] == [4, 5]

    with_harness(database, test)


CAUSE = """
    SELECT cause.version
    FROM frames JOIN frames AS cause
        ON cause.context_id = frames.context_id AND cause.frame_id = frames.causation_id
    WHERE frames.version = %s
"""


def test_a_client_may_name_a_cause_and_so_may_the_command(pipeline, monkeypatch, tmp_path):
    for name in ("kafka_bootstrap_servers", "topic_prefix"):
        monkeypatch.setenv(f"FRAMELEDGER_{name.upper()}", getattr(pipeline.settings, name))
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", pipeline.address)
    monkeypatch.setenv("FRAMELEDGER_DATA_DIR", str(tmp_path))

    def publish(frame_id, *words):
        frame = json.dumps({"type": "LLMRunFrame", "id": frame_id})
        return CliRunner().invoke(application(), ["publish", "ctx", frame, *words, "--wait"])

    with projector(pipeline.settings), SyncClient(pipeline.settings) as client:
        assert publish("a").exit_code == 0
        assert publish("b", "--cause", "a").exit_code == 0
        client.publish("ctx", LLMRunFrame(), causation_id="b", wait=True)
        client.publish("ctx", LLMRunFrame(), causation_id=frame_uuid("b"), wait=True)
        refused = publish("c", "--cause", "")
        assert (refused.exit_code, "a frame's id has 1 to 255 bytes" in refused.stderr) == (2, True)
        with pytest.raises(ValueError, match="causation_id"):
            client.publish("ctx", LLMRunFrame(), causation_id="x" * 256)
    assert [[at for _, at, *_ in way(pipeline.address, version)] for version in (1, 2, 3, 4)] == [
        [1],
        [2, 1],
        [3, 2, 1],
        [4, 2, 1],
    ]
