"""The benches of inference, functions, gateway, telemetry and audit measure every figure, with small numbers."""

import json
import os
import subprocess
import sys

import pytest
from tests.bounds import BENCH
from typer.testing import CliRunner

from frameledger.fold import Conversation, Folding
from frameledger.react import react
from frameledger_services.bench.functions.asking import asking
from frameledger_services.bench.scene import Committed
from frameledger_services.cli import application

GOALS = {
    "inference": {
        "2 streams, 2 workers: whole road / bare SDK": 0.9,
        "2 streams, 2 workers: CPU of the workers": None,
        "2 streams, 2 workers: and of the projector": None,
        "first token in SQL, on top of the bare SDK, p50 / bare road at that pace": 1.5,
        "first token in SQL, on top of the bare SDK, p50 / bare road, one value right behind another": None,
        "turn published to request at the model, p50": None,
        "turn published to first token in SQL, p50": None,
        "interruption folded to stream closed, p50 / 50 ms": None,
        "interruption folded to stream closed, p99 / 50 ms": 1.0,
        "with cancellations lost, p50 / 1 s": None,
        "with cancellations lost, the slowest / 1 s": 1.0,
    },
    "functions": {
        "call dispatched to result in SQL, safe, p50 / bare road": None,
        "call dispatched to result in SQL, safe, p99 / bare road": None,
        "call dispatched to result in SQL, unsafe, p50 / bare road": None,
        "call dispatched to result in SQL, unsafe, p99 / bare road": None,
        "memory with 20 slow calls at once / 2": 1.5,
        "memory with 20 more / the first 20": 1.1,
    },
    "gateway": {
        "append and wait, p50 / Client.publish(wait=True)": 1.4,
        "CPU of a context read, 4 at once / bare ASGI, the whole context": 2.0,
        "CPU of a context that nobody read before, 4 at once / bare ASGI, the whole context": None,
        "CPU of a context that is known, 4 at once / bare ASGI, the whole context": None,
        "20 streams of 4 conversations, 60 frames/s: COMMIT to client, p99 / 100 ms": 1.0,
        "the same, p50 / bare ASGI": None,
        "the same, p99 / bare ASGI": None,
        "CPU per event / bare ASGI": None,
        "memory in the end / after a third": 1.1,
    },
    "telemetry": {
        "a batch, metrics / without: CPU": 1.02,
        "a batch, traces / without: CPU": 1.031,
        "projector, metrics / without": 0.98,
        "projector, metrics / without: CPU": 1.02,
        "projector, traces / without": 0.97,
        "projector, traces / without: CPU": 1.031,
        "projector, traces for a dead collector / without": 0.97,
        "projector, traces for a dead collector / without: CPU": 1.031,
        "2 streams, metrics / without": 0.98,
        "2 streams, metrics: CPU": None,
        "2 streams, traces / without": 0.97,
        "2 streams, traces: CPU": None,
    },
    "audit": {
        "verify from rows / bare read, sha256 and fold": 0.5,
        "rebuild / the projector with the same backlog": 0.8,
        "restore of 100 frames / allowed": 1.0,
        "restore among 20 others / alone": 1.2,
        "diff of 100 frames / allowed": 1.0,
        "diff among 20 others / alone": 1.2,
        "why of 100 frames / allowed": 1.0,
        "why among 20 others / alone": 1.2,
        "timeline of 100 frames / allowed": 1.0,
        "timeline among 20 others / alone": 1.2,
    },
}


@pytest.mark.parametrize("part", GOALS)
def test_every_figure_is_taken_on_servers_that_exist(part, kafka, postgres):
    address = {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "FRAMELEDGER_DATABASE_URL": postgres.dsn,
    }
    done = subprocess.run(
        [sys.executable, "-m", "frameledger_services", "bench", part, "--quick", "--json"],
        env={**os.environ, **address},
        capture_output=True,
        text=True,
        timeout=BENCH,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {figure["name"]: figure["goal"] for figure in figures} == GOALS[part]
    for figure in figures:
        assert figure["yardstick"] > 0, figure
        # The time on top of the bare road is a difference. It is negative if a busy machine slowed the bare road.
        assert figure["value"] > 0 or "on top of" in figure["name"], figure


@pytest.mark.parametrize(
    ("part", "there_is"),
    [("inference", "interruptions"), ("functions", "crowd"), ("audit", "rebuild"), ("gateway", "streams")],
)
def test_what_is_not_measured_is_a_wrong_call(part, there_is):
    result = CliRunner().invoke(application(), ["bench", part, "--only", "luck"])
    assert result.exit_code == 2
    assert there_is in result.output


def test_the_conversation_of_a_call_dispatches_it_with_its_last_frame():
    folding = Folding(Conversation.new("context"))
    followed = []
    for number, frame in enumerate(asking("context", "safe")):
        before, named = folding.state, frame.model_copy(update={"id": f"frame-{number}"})
        folding.step(named)
        followed.append([one.effect for one in react(before, named, folding.state)])
    assert followed.pop() == ["call_function"]
    assert all("call_function" not in some for some in followed)


def test_a_row_is_visible_with_the_first_commit_after_it_was_written():
    committed = Committed([10.0, 11.0, 12.0])
    assert committed.of(9.5) == 10.0
    assert committed.of(10.5) == 11.0
    assert committed.of(12.0) == 12.0
