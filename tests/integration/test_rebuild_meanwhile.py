"""Rebuilding and upgrading on real servers: frames arrive, projectors continue, and each frame counts once."""

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.bounds import scaled
from tests.support.batches import value_of
from tests.support.killable import Plan, projector
from tests.support.pipeline import FEW, PARTITIONS, Raw, mixed, own_pipeline  # noqa: F401  # a fixture
from tests.support.rebuilding import killed_at, rebuild_in
from tests.support.releases import NEWER, SHOUTED, newer_release

from frameledger.frames import LLMMessagesAppendFrame, encode_frame
from frameledger.partition import partition_for

TAMPER = """
    UPDATE messages SET text = 'x' WHERE position % 2 = 0;
    DELETE FROM messages WHERE position % 3 = 1;
    UPDATE runs SET model = 'another';
    UPDATE contexts SET message_count = 0
"""


def test_frames_that_come_while_conversations_are_rebuilt_count_once(pipeline):
    """The rebuild is killed and repeated; the projector keeps its partitions."""
    records = mixed("all", FEW)
    half, step = len(records) // 2, 10
    with projector(pipeline.settings, Plan(member="it", session_ms=30_000)) as running:
        pipeline.publish(records[:half])
        pipeline.until_owned_by(running)
        pipeline.until_idle(running)
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            connection.execute(TAMPER)
            epochs = connection.execute("SELECT partition, epoch FROM projections ORDER BY 1").fetchall()

        def publish():
            for start in range(half, len(records), step):
                pipeline.publish(records[start : start + step])

        with ThreadPoolExecutor(1) as beside:
            publishing = beside.submit(publish)
            assert killed_at(pipeline.address, 60, pipeline.names)
            done = rebuild_in(pipeline.address, names=pipeline.names)
            publishing.result()
        pipeline.until_idle(running)
        assert done.progress.rebuilt_count > 0
        assert rebuild_in(pipeline.address, names=pipeline.names).progress.differ_count == 0
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            assert (
                epochs == connection.execute("SELECT partition, epoch FROM projections ORDER BY 1").fetchall()
            )
        assert running.stop() == 0
    pipeline.check()


@pytest.mark.long
def test_an_old_and_a_new_release_run_side_by_side_and_no_conversation_is_folded_by_both_in_turn(
    pipeline, monkeypatch
):
    """The new release starts, stops, and starts again: meanwhile the conversations that it folded wait, and the others
    continue."""
    contexts = [f"ctx-{number}" for number in range(12)]
    # Short enough to wait for a stopped member, and long enough for a living one on a busy machine.
    session_ms = int(scaled(3_000))
    old_plan = Plan(member="old", logging="projector.newer_fold", session_ms=session_ms)
    new_plan = Plan(member="new", is_newer=True, session_ms=session_ms)
    with projector(pipeline.settings, old_plan) as old:
        pipeline.publish(quiet(contexts))
        pipeline.until_idle(old)
        with projector(pipeline.settings, new_plan) as new:
            pipeline.until("SELECT count(DISTINCT owner) = 2 FROM projections")
            pipeline.publish(quiet(contexts))
            pipeline.until_idle(old, new)
            assert new.stop() == 0
        touched = folded_by(pipeline, NEWER)
        untouched = set(contexts) - touched
        assert touched
        assert untouched
        # The old release owns all partitions again, and does not fold what the newer one folded.
        pipeline.until("SELECT count(DISTINCT owner) = 1 FROM projections WHERE owner LIKE 'old %%'")
        pipeline.publish(quiet(sorted(untouched)))
        waiting = {partition_for(one.encode(), PARTITIONS) for one in touched}
        free = {one for one in untouched if partition_for(one.encode(), PARTITIONS) not in waiting}
        pipeline.until(
            "SELECT coalesce(bool_and(version = 3), true) FROM contexts WHERE context_id = ANY (%s)",
            sorted(free),
        )
        pipeline.publish(quiet(sorted(touched)))
        assert old.hear() == "projector.newer_fold"
        assert old.is_alive()
        with projector(pipeline.settings, new_plan) as new:
            pipeline.until("SELECT count(DISTINCT owner) = 2 FROM projections")
            assert old.stop() == 0
            pipeline.until_idle(new)
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute("SELECT DISTINCT version FROM contexts").fetchall() == [(3,)]
        for context_id in contexts:
            assert value_of(connection, "SELECT intact FROM verify_chain(%s)", context_id) is True
    with newer_release(monkeypatch):
        # A rebuild finds differences exactly in the conversations that only the old release folded.
        only_old = set(contexts) - folded_by(pipeline, NEWER)
        assert rebuild_in(pipeline.address, names=pipeline.names).differing.keys() == only_old
    texts = {SHOUTED.upper()}
    with psycopg.connect(pipeline.address) as connection:
        assert {row[0] for row in connection.execute("SELECT DISTINCT text FROM messages")} == texts


def quiet(contexts):
    frame = LLMMessagesAppendFrame(messages=[{"role": "user", "content": SHOUTED}])
    return [Raw(one.encode(), encode_frame(frame)) for one in contexts]


def folded_by(pipeline, version):
    with psycopg.connect(pipeline.address) as connection:
        found = connection.execute("SELECT context_id FROM contexts WHERE fold_version = %s", (version,))
        return {row[0] for row in found}


@pytest.mark.long
def test_frames_whose_rows_are_lost_come_back_from_the_log(pipeline, command):
    """They are lost in the middle, at the beginning or at the end, and come back with versions, chain and outcomes."""

    def rebuild():
        return command(pipeline.settings, "rebuild", "--from", "kafka", "--apply", "--json")

    with projector(pipeline.settings, Plan(member="it")) as running:
        pipeline.publish(mixed("lost", FEW))
        pipeline.until_idle(running)
        with psycopg.connect(pipeline.address) as connection:
            connection.execute("SET session_replication_role = replica")
            lost = connection.execute(
                """
                DELETE FROM frames USING contexts
                WHERE contexts.context_id = frames.context_id
                    AND (frames.version <= 2 OR frames.version % 7 = 3 OR frames.version = contexts.version)
                """
            ).rowcount
        done = rebuild()
        assert done.exit_code == 0, done.output
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert sum(one["frames_restored"] for one in told[:-1]) == lost > 20
        assert told[-1]["summary"]["failed_count"] == 0
        again = rebuild()
        assert json.loads(again.stdout)["summary"]["rebuilt_count"] == 0
        assert running.stop() == 0
    pipeline.check()
