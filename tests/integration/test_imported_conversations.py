"""Imported conversations in a database with others from the log: rebuilds from the log do not change them."""

import json

import psycopg
import pytest
from tests.support.batches import project
from tests.support.pipeline import PARTITIONS, Raw, mixed, own_pipeline  # noqa: F401  # a fixture
from tests.support.recovering import (  # noqa: F401  # a fixture
    SAID,
    applied,
    command_on_pipeline,
    looked,
    projected,
)
from tests.support.transferring import exported, imported, random_log

from frameledger.frames import LLMContextEraseFrame, encode_frame

SEEDS = (1, 2, 4)
ERASE = encode_frame(LLMContextEraseFrame(why="asked"))


def said_to(ids, words):
    return [
        Raw(context_id.encode(), SAID % b"%s %d" % (words, number))
        for context_id in ids
        for number in range(4)
    ]


def frames_with_places(address):
    with psycopg.connect(address) as connection:
        return set(
            connection.execute(
                'SELECT context_id, version, frame_id, generation, partition, "offset", outcome, reason, chain, '
                "payload::text FROM frames"
            ).fetchall()
        )


@pytest.mark.long
def test_rebuild_and_recover_know_what_was_imported_and_lose_nothing_that_the_log_has(
    pipeline, run, make_database, migrated_template
):
    """Each imported conversation continues here, in two generations of the topic. The log also has a conversation that
    was erased in the second one, invalid records, and frames without ids."""
    origin = make_database(template=migrated_template)
    log, ids = random_log(SEEDS)
    project(origin, log.records)
    imported(pipeline.address, exported(origin))
    projected(pipeline, [*said_to((*ids, "gone"), b"first"), *mixed("own", ("barge-in",))])
    with psycopg.connect(pipeline.address) as connection:
        connection.execute(
            "UPDATE projections SET next_offset = next_offset + 5 WHERE partition = %s", (PARTITIONS - 1,)
        )
    assert applied(pipeline, run)["generation"] == 2
    projected(pipeline, [*said_to(ids, b"second"), Raw(b"gone", ERASE)])
    looked(pipeline, run, 0)

    before = frames_with_places(pipeline.address)
    with psycopg.connect(pipeline.address) as connection:
        connection.execute("SET session_replication_role = replica")
        lost = connection.execute("DELETE FROM frames WHERE generation > 0 AND version % 3 > 0").rowcount
    assert {row[3] for row in before - frames_with_places(pipeline.address)} == {1, 2}
    done = run(pipeline, "rebuild", "--from", "kafka", "--apply", "--json")
    assert done.exit_code == 0, done.output
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(one["frames_restored"] for one in told[:-1]) == lost
    assert frames_with_places(pipeline.address) == before

    again = run(pipeline, "rebuild", "--from", "kafka", "--json")
    assert again.exit_code == 0, again.output
    verified = run(pipeline, "verify", "--all", "--from", "kafka")
    assert verified.exit_code == 0, verified.output
    on_no_log = sum(row[3] == 0 for row in before)
    assert f" {on_no_log:,} were imported" in verified.stdout
    looked(pipeline, run, 0)
