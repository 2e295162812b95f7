"""`frameledger unpark` beside a projector, killed and frozen: at the end it is as if nothing had been parked."""

import os
import signal

import psycopg
import pytest
from tests.support.commands import environment
from tests.support.killable import Plan, projector
from tests.support.killable_command import KillableCommand, Moment, killed_at
from tests.support.parked_talks import park, said
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

LASTING = Plan(member="it", session_ms=30_000)

MOMENTS = (
    Moment(1, after="UPDATE projections"),
    Moment(2, after="UPDATE projections"),
    Moment(2, after='"messages"'),
    Moment(2, after='"outbox"'),
    # NOTIFY is the last statement. Its commit is sent, and then two topics get their effects.
    Moment(3, after="NOTIFY"),
    Moment(4, after="NOTIFY"),
    Moment(5, after="NOTIFY"),
    Moment(6, after="NOTIFY"),
    Moment(8, after="NOTIFY"),
    Moment(10, after="NOTIFY"),
)


@pytest.fixture
def surroundings(pipeline, tmp_path):
    return {**os.environ, **environment(pipeline.settings), "FRAMELEDGER_DATA_DIR": str(tmp_path)}


def test_wherever_it_is_killed_each_frame_counts_once_and_each_effect_has_one_id(
    pipeline, surroundings, command
):
    names = {f"ctx-{number}": moment for number, moment in enumerate(MOMENTS)}
    with projector(pipeline.settings, LASTING) as running:
        park(pipeline, running, list(names))
        for name, moment in names.items():
            assert killed_at(["unpark", name, "--why", "mended"], surroundings, moment), moment
        pipeline.publish(said(name, "meanwhile") for name in names)
        pipeline.until_idle(running)
        done = [command(pipeline.settings, "unpark", name, "--why", "mended") for name in names]
        # The statement that commits was sent to the server, which may or may not have executed it.
        assert [one.exit_code for one in done[:5]] == [0] * 5
        assert ["not parked" in one.stderr for one in done[6:]] == [True] * 4
        pipeline.until_idle(running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        twice = "SELECT context_id, version FROM outcome_changes GROUP BY 1, 2 HAVING count(*) > 1"
        assert connection.execute(twice).fetchall() == []
    pipeline.check()


@pytest.mark.regression("fault 307")
@pytest.mark.parametrize(
    "after", ["UPDATE projections", '"messages"'], ids=["between two statements", "within the messages"]
)
def test_a_frozen_one_stops_no_projector(pipeline, surroundings, command, after):
    with projector(pipeline.settings, LASTING) as running:
        park(pipeline, running, ["ctx"])
        moment = Moment(2, after=after, signal=signal.SIGSTOP, idle_ms=300)
        with KillableCommand(["unpark", "ctx"], surroundings, moment) as frozen:
            frozen.frozen()
            pipeline.publish([said("ctx", "meanwhile")])
            pipeline.until("SELECT version = 8 FROM contexts")
            frozen.send(signal.SIGCONT)
            assert frozen.ended() == 1
        assert command(pipeline.settings, "unpark", "ctx").exit_code == 0
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()
