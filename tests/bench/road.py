"""`frameledger bench road` measures every figure, with small numbers."""

import json
import os
import subprocess
import sys

import pytest
from tests.bounds import BENCH
from typer.testing import CliRunner

from frameledger.frames import encode_frame
from frameledger_services.bench.road.stream import interleaved, mixture
from frameledger_services.cli import application

GOALS = {
    "one projector / straight line": 0.5,
    "publish to COMMIT, one at a time, p50": 1.5,
    "publish to COMMIT, one at a time, p99": None,
    "publish(wait=True), one at a time, p50": None,
    "publish to COMMIT, 1,000 frames/s, p50": 1.5,
    "publish to COMMIT, 1,000 frames/s, p99": None,
    "publish to disk, 1,000 frames/s, p50": None,
    "a frame after 1,000 / after 10": 1.1,
    "all tables / bare frames and messages": 1.3,
    "memory after 500 conversations / 50": 1.2,
    "100 messages by the client / bare scan": 1.3,
    "100 messages by context_at / bare scan": 2.0,
}


def test_every_figure_is_taken_on_servers_that_exist_and_nothing_is_left_on_them(kafka, postgres):
    address = {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "FRAMELEDGER_DATABASE_URL": postgres.dsn,
    }
    done = subprocess.run(
        [sys.executable, "-m", "frameledger_services", "bench", "road", "--quick", "--json"],
        env={**os.environ, **address},
        capture_output=True,
        text=True,
        timeout=BENCH,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {figure["name"]: figure["goal"] for figure in figures} == GOALS
    for figure in figures:
        assert min(figure["value"], figure["yardstick"], figure["ratio"]) > 0, figure
    left = subprocess.run(
        [postgres.binaries / "psql", postgres.dsn, "-Atc", "SELECT datname FROM pg_database"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "bench" not in left


def test_what_is_not_measured_is_a_wrong_call():
    result = CliRunner().invoke(application(), ["bench", "road", "--only", "luck"])
    assert result.exit_code == 2
    assert "throughput" in result.output


@pytest.mark.parametrize("size", [355, 1_000])
def test_the_frames_of_the_stream_have_the_size_that_is_asked_for_and_the_same_ids_each_time(size):
    sizes = [len(encode_frame(frame)) for _, frame in mixture(300, size)]
    assert sum(sizes) / len(sizes) == pytest.approx(size, rel=0.15)
    first, second = (list(interleaved(3, 10, size)) for _ in range(2))
    assert first == second
    assert len({frame.id for _, frame in first}) == len(first) == 30
