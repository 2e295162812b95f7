"""The gateway under faults, for a long time: run by `make chaos`, not by `make test`.

Writers append, disconnect and retry, and streams follow them, while gateways and projectors are killed. The kills are
drawn from a seed that is printed. CHAOS_SEED=... repeats them; CHAOS_APPENDS=... and CHAOS_STREAMS=... set the numbers
of appends and streams.
"""

import os
import random
from contextlib import ExitStack

from tests.bounds import ON_SERVERS
from tests.chaos.failover import SEED, reference  # noqa: F401  # a fixture
from tests.integration.test_database_crash import crashing
from tests.support.gateway import running
from tests.support.gateway_crowd import Audience, Talker, Writers, check
from tests.support.killable import Plan, projector
from tests.support.pipeline import made, own_pipeline  # noqa: F401  # a fixture

from frameledger_services.embedded import ports

APPENDS = int(os.environ.get("CHAOS_APPENDS", "10000"))
STREAMS = int(os.environ.get("CHAOS_STREAMS", "200"))
WRITERS, TALKERS = 16, 2
KILLS = max(3, APPENDS // 500)
FOLLOWED_APPENDS = APPENDS // 5


class Stage:
    """A gateway and a projector of a pipeline. Each is restarted after it is killed."""

    def __init__(self, pipeline, stack):
        self.port = ports.choose(0)
        self._settings = pipeline.settings
        self._gateway, self._projector = (stack.enter_context(ExitStack()) for _ in range(2))
        self._begin_gateway()
        self._begin_projector()

    def kill_gateway(self):
        self._gateway.close()
        self._begin_gateway()

    def kill_projector(self):
        self._projector.close()
        self._begin_projector()

    def _begin_gateway(self):
        also = {"gateway_port": str(self.port), "gateway_requests_per_sec": "1000000"}
        self._gateway.enter_context(running(self._settings, is_heard=False, **also))

    def _begin_projector(self):
        self.projector = self._projector.enter_context(projector(self._settings, Plan(member="it")))


def kill_some(draw, writers, kills):
    """Kill one of these after another at random moments until everything is written."""
    moments = sorted(draw.sample(range(1, writers.batches), KILLS))
    for moment in moments:
        writers.until_answered(moment)
        kill = draw.choice(kills)
        print(f"{moment} of {writers.batches}: {kill.__name__}", flush=True)
        kill()
    writers.until_answered(writers.batches)


def test_every_append_counts_once_however_often_the_gateway_is_killed(pipeline):
    print(f"\nCHAOS_SEED={SEED} CHAOS_APPENDS={APPENDS}")
    with ExitStack() as stack:
        stage = Stage(pipeline, stack)
        writers = Writers("chaos", WRITERS, stage.port, APPENDS // WRITERS, SEED)
        talkers = [
            Talker(f"talks-{number}", stage.port, APPENDS // WRITERS, writers) for number in range(TALKERS)
        ]
        writers.start()
        for one in talkers:
            one.start()
        kill_some(random.Random(SEED), writers, [stage.kill_gateway])
        for one in talkers:
            one.join(ON_SERVERS)
        pipeline.until_idle(stage.projector)
        check(pipeline.address, writers, talkers=talkers)
        assert stage.projector.stop() == 0
    print(f"{writers.lost} answers were lost")
    assert writers.lost > KILLS
    pipeline.check(every=500)


def test_every_stream_has_each_version_once_though_all_that_serves_it_is_killed(kafka, reference, tmp_path):  # noqa: F811
    print(f"\nCHAOS_SEED={SEED} CHAOS_APPENDS={APPENDS} CHAOS_STREAMS={STREAMS}")
    with (
        crashing(tmp_path / "server") as server,
        ExitStack() as stack,
    ):
        pipeline = made(kafka.bootstrap_servers, server.address, reference)
        stage = Stage(pipeline, stack)
        writers = Writers("followed", WRITERS, stage.port, FOLLOWED_APPENDS // WRITERS, SEED)
        audience = Audience(stage.port, writers.context_ids, STREAMS)
        writers.start()
        pipeline.until("SELECT count(*) = %s FROM contexts", WRITERS)
        audience.start()
        kill_some(random.Random(SEED), writers, [stage.kill_gateway, stage.kill_projector, server.crash])
        pipeline.until_idle(stage.projector)
        check(pipeline.address, writers, audience)
        resets = sum(event.name == "reset" for _, browser in audience.browsers for event in browser.events)
        print(f"{writers.lost} answers were lost, {resets} streams began anew")
        assert all(browser.connections > 1 for _, browser in audience.browsers)
        assert stage.projector.stop() == 0
        pipeline.check(every=500)
