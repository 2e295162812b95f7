"""Rebuilding and upgrading on real servers: frames arrive, projectors continue, and each frame counts once."""

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.bounds import scaled
from tests.support.batches import value_of
from tests.support.killable import Plan, projector
from tests.support.rebuilding import killed_at, rebuild_in
from tests.support.releases import NEWER, SHOUTED, newer_release
from tests.support.road import FEW, PARTITIONS, Raw, mixed, road_of_its_own  # noqa: F401  # a fixture

from frameledger.frames import LLMMessagesAppendFrame, encode_frame
from frameledger.partition import partition_for

TAMPER = """
    UPDATE messages SET text = 'x' WHERE position % 2 = 0;
    DELETE FROM messages WHERE position % 3 = 1;
    UPDATE runs SET model = 'another';
    UPDATE contexts SET message_count = 0
"""


def test_frames_that_come_while_conversations_are_rebuilt_count_once(road):
    """The rebuild is killed and repeated; the projector keeps its partitions."""
    records = mixed("all", FEW)
    half, step = len(records) // 2, 10
    with projector(road.settings, Plan(member="it", session_ms=30_000)) as running:
        road.publish(records[:half])
        road.until_owned_by(running)
        road.until_idle(running)
        with psycopg.connect(road.address, autocommit=True) as connection:
            connection.execute(TAMPER)
            epochs = connection.execute("SELECT partition, epoch FROM projections ORDER BY 1").fetchall()

        def publish():
            for start in range(half, len(records), step):
                road.publish(records[start : start + step])

        with ThreadPoolExecutor(1) as beside:
            publishing = beside.submit(publish)
            assert killed_at(road.address, 60, road.names)
            done = rebuild_in(road.address, names=road.names)
            publishing.result()
        road.until_idle(running)
        assert done.progress.rebuilt_count > 0
        assert rebuild_in(road.address, names=road.names).progress.differ_count == 0
        with psycopg.connect(road.address, autocommit=True) as connection:
            assert (
                epochs == connection.execute("SELECT partition, epoch FROM projections ORDER BY 1").fetchall()
            )
        assert running.stop() == 0
    road.check()


@pytest.mark.long
def test_an_old_and_a_new_release_run_side_by_side_and_no_conversation_is_folded_by_both_in_turn(
    road, monkeypatch
):
    """The new release starts, stops, and starts again: meanwhile the conversations that it folded wait, and the others
    continue."""
    contexts = [f"ctx-{number}" for number in range(12)]
    # Short enough to wait for a stopped member, and long enough for a living one on a busy machine.
    session_ms = int(scaled(3_000))
    old_plan = Plan(member="old", logging="projector.newer_fold", session_ms=session_ms)
    new_plan = Plan(member="new", is_newer=True, session_ms=session_ms)
    with projector(road.settings, old_plan) as old:
        road.publish(quiet(contexts))
        road.until_idle(old)
        with projector(road.settings, new_plan) as new:
            road.until("SELECT count(DISTINCT owner) = 2 FROM projections")
            road.publish(quiet(contexts))
            road.until_idle(old, new)
            assert new.stop() == 0
        touched = folded_by(road, NEWER)
        untouched = set(contexts) - touched
        assert touched
        assert untouched
        # The old release owns all partitions again, and does not fold what the newer one folded.
        road.until("SELECT count(DISTINCT owner) = 1 FROM projections WHERE owner LIKE 'old %%'")
        road.publish(quiet(sorted(untouched)))
        waiting = {partition_for(one.encode(), PARTITIONS) for one in touched}
        free = {one for one in untouched if partition_for(one.encode(), PARTITIONS) not in waiting}
        road.until(
            "SELECT coalesce(bool_and(version = 3), true) FROM contexts WHERE context_id = ANY (%s)",
            sorted(free),
        )
        road.publish(quiet(sorted(touched)))
        assert old.hear() == "projector.newer_fold"
        assert old.is_alive()
        with projector(road.settings, new_plan) as new:
            road.until("SELECT count(DISTINCT owner) = 2 FROM projections")
            assert old.stop() == 0
            road.until_idle(new)
    with psycopg.connect(road.address) as connection:
        assert connection.execute("SELECT DISTINCT version FROM contexts").fetchall() == [(3,)]
        for context_id in contexts:
            assert value_of(connection, "SELECT intact FROM verify_chain(%s)", context_id) is True
    with newer_release(monkeypatch):
        # A rebuild finds differences exactly in the conversations that only the old release folded.
        only_old = set(contexts) - folded_by(road, NEWER)
        assert rebuild_in(road.address, names=road.names).differing.keys() == only_old
    texts = {SHOUTED.upper()}
    with psycopg.connect(road.address) as connection:
        assert {row[0] for row in connection.execute("SELECT DISTINCT text FROM messages")} == texts


def quiet(contexts):
    frame = LLMMessagesAppendFrame(messages=[{"role": "user", "content": SHOUTED}])
    return [Raw(one.encode(), encode_frame(frame)) for one in contexts]


def folded_by(road, version):
    with psycopg.connect(road.address) as connection:
        found = connection.execute("SELECT context_id FROM contexts WHERE fold_version = %s", (version,))
        return {row[0] for row in found}


@pytest.mark.long
def test_frames_whose_rows_are_lost_come_back_from_the_log(road, command):
    """They are lost in the middle, at the beginning or at the end, and come back with versions, chain and outcomes."""

    def rebuild():
        return command(road.settings, "rebuild", "--from", "kafka", "--apply", "--json")

    with projector(road.settings, Plan(member="it")) as running:
        road.publish(mixed("lost", FEW))
        road.until_idle(running)
        with psycopg.connect(road.address) as connection:
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
    road.check()
