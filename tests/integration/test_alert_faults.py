"""The faults behind the alerts, caused on real servers: the metric of each moves, and moves back where it can.

One projector, timekeeper, gateway and function service run for all tests, in one event loop in a thread, each with the
metrics that `frameledger run` would give it.
"""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psycopg
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from tests.bounds import IN_PROCESS, ON_SERVERS, scaled
from tests.support import databases
from tests.support.function_harness import CONNECTIONS_LEFT_OPEN, QUICK, called, talking
from tests.support.metric_series import series_of
from tests.support.pipeline import Raw
from tests.support.pipeline import made as pipeline_made
from tests.support.polling import NOTIFICATION_SECONDS
from tests.support.tcp_proxy import proxy, redirected
from tests.unit.rules.dsl import answer, ask, speak
from tests.unit.test_alerts import NAME, queries

from frameledger.evolve import evolve
from frameledger.frames import encode_frame
from frameledger_services.cli import ops
from frameledger_services.embedded import ports
from frameledger_services.functions import FunctionCallParams, FunctionRegistry, FunctionService
from frameledger_services.gateway import service as gateway
from frameledger_services.inference.service import InferenceService
from frameledger_services.projector import batch_fold
from frameledger_services.projector import service as projector
from frameledger_services.providers import plugins
from frameledger_services.store.connections import Connections
from frameledger_services.telemetry import health
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.health import Health
from frameledger_services.telemetry.metrics import METRICS
from frameledger_services.telemetry.metrics_registry import ProcessMetrics
from frameledger_services.timekeeper import service as timekeeper
from frameledger_services.timekeeper import work_to_do

pytestmark = CONNECTIONS_LEFT_OPEN

KEY = "sk-not-the-right-one"


class Counted(ProcessMetrics):
    """What one service counts, read as a collector reads it."""

    def families(self):
        return list(text_string_to_metric_families(generate_latest(self.registry).decode()))

    def value(self, name, **labels):
        """The sum of all series of this name that have these labels; None if there is none."""
        found = [
            sample.value
            for family in self.families()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None


class Stack:
    """The services, in a loop of their own."""

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.settings = pipeline.settings.model_copy(
            update={
                **QUICK,
                "timekeeper_every_secs": 0.05,
                "work_grace_secs": scaled(1.0),
                "gateway_port": ports.choose(0),
            }
        )
        self.projector, self.timekeeper, self.functions = Counted(), Counted(), Counted()
        self.gateway, self.inference, self.health = Counted(), Counted(), Counted()
        self.registry = FunctionRegistry()
        self._stopping: dict[str, asyncio.Event] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._running: dict[str, Future] = {}

    def begin(self):
        self._thread.start()
        self.start("projector")
        self.start("timekeeper")
        self.start("gateway")
        self.start("functions")
        self.start("health")

    def start(self, name):
        self._stopping[name] = stopping = asyncio.Event()
        self._running[name] = asyncio.run_coroutine_threadsafe(
            getattr(self, f"_{name}")(stopping), self._loop
        )

    def stop(self, name):
        """Stop a service. Raises the error that ended it, if any."""
        self._loop.call_soon_threadsafe(self._stopping[name].set)
        self._running.pop(name).result(ON_SERVERS)

    def end(self):
        try:
            for name in list(self._running):
                self.stop(name)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(IN_PROCESS)
            self._loop.close()

    def _projector(self, stopping):
        return projector.serve(self.settings, stopping, metrics=self.projector)

    def _timekeeper(self, stopping):
        return timekeeper.serve(self.settings, stopping, metrics=self.timekeeper)

    def _gateway(self, stopping):
        return gateway.serve(self.settings, stopping, metrics=self.gateway)

    def _functions(self, stopping):
        service = FunctionService(
            self.settings, self.registry, service="tools", stop_secs=scaled(0.2), metrics=self.functions
        )
        return service.run(stopping)

    async def _inference(self, stopping):
        model = plugins.create("openai", self.settings)
        await InferenceService(self.settings, model, metrics=self.inference).run(stopping)

    async def _health(self, stopping):
        self.health = Counted()
        connections = Connections(self.settings, "frameledger ops", most=1)
        asked = Health(ops.checks(self.settings, connections))
        self.health.watch(listed.READY, asked.by_check)
        async with asked.ticking():
            await stopping.wait()
        await connections.close()

    def talk(self, scenario):
        """Play a conversation with this client of its own."""

        async def run():
            async with talking(self.settings) as talk:
                return await scenario(talk)

        return asyncio.run(run())

    def block(self, until):
        """Block the loop of all services until this event is set."""
        self._loop.call_soon_threadsafe(until.wait, ON_SERVERS)

    def until(self, holds):
        """Wait until `holds` returns true. It is called after each batch of the projector, and at an interval."""
        with psycopg.connect(self.pipeline.address, autocommit=True) as connection:
            connection.execute("LISTEN frameledger_progress")
            for _ in range(int(ON_SERVERS / NOTIFICATION_SECONDS)):
                if holds():
                    return
                for name, running in self._running.items():
                    assert not running.done(), (name, running.exception())
                for _ in connection.notifies(timeout=NOTIFICATION_SECONDS, stop_after=1):
                    pass
        raise AssertionError("it was never counted")


@pytest.fixture(scope="module", name="stack")
def one_stack(kafka, database_server, migrated_template):
    with (
        pytest.MonkeyPatch.context() as quick,
        databases.made(database_server, template=migrated_template) as (_, address),
    ):
        pipeline = pipeline_made(kafka.bootstrap_servers, SecretStr(address), None)
        quick.setattr(work_to_do, "EVERY_SECONDS", 0.05)
        quick.setattr(health, "CHECK_SECONDS", scaled(1.0))
        quick.setattr(health, "KEPT_SECONDS", 0.0)
        stack = Stack(pipeline)
        stack.begin()
        try:
            yield stack
        finally:
            stack.end()


def test_while_no_projector_runs_the_timekeeper_sees_what_is_not_stored(stack):
    def behind():
        return stack.timekeeper.value("frameledger_projection_lag_records")

    # One that has counted nothing of other tests.
    stack.stop("projector")
    stack.projector = Counted()
    stack.start("projector")
    stack.pipeline.publish([Raw(b"before", encode_frame(speak()))])
    stack.pipeline.until("SELECT count(*) = 1 FROM frames WHERE context_id = 'before'")
    stack.until(lambda: behind() == 0)
    stack.stop("projector")
    stack.pipeline.publish([Raw(b"before", encode_frame(speak()))])
    stack.until(lambda: behind() == 1)
    stack.start("projector")
    stack.until(lambda: behind() == 0)
    stack.until(lambda: stack.projector.value("frameledger_projector_frames_total") == 2)
    stack.until(lambda: stack.projector.value("frameledger_projector_visible_seconds_count") == 2)
    stack.until(lambda: stack.projector.value("frameledger_projector_lag_records") == 0)


def test_a_broker_that_is_away_shows_in_what_each_process_says_of_itself(stack, kafka):
    def ready(check):
        return stack.health.value("frameledger_ready", check=check)

    stack.until(lambda: ready("log") == 1 and ready("database") == 1)
    with proxy(kafka.port) as to_kafka, redirected((kafka.port, to_kafka.port)):
        stack.stop("health")
        stack.start("health")
        stack.until(lambda: ready("log") == 1)
        to_kafka.cut()
        stack.until(lambda: ready("log") == 0 and ready("database") == 1)
        to_kafka.mend()
        stack.until(lambda: ready("log") == 1)


def test_a_database_that_is_away_shows_there_and_in_the_answers_of_the_gateway(stack):
    there = stack.settings
    answered = "http_server_request_duration_seconds_count"
    for name in ("gateway", "health"):
        stack.stop(name)
    away = f"host=127.0.0.1 port={ports.choose(0)} dbname=nowhere user=nobody"
    stack.settings = there.model_copy(update={"database_url": SecretStr(away)})
    try:
        for name in ("gateway", "health"):
            stack.start(name)
        stack.until(lambda: stack.health.value("frameledger_ready", check="database") == 0)

        def refused():
            with pytest.raises((HTTPError, URLError)):
                urlopen(f"http://127.0.0.1:{there.gateway_port}/v1/contexts", timeout=ON_SERVERS)
            return stack.gateway.value(answered, http_response_status_code="503")

        stack.until(refused)
    finally:
        for name in ("gateway", "health"):
            stack.stop(name)
        stack.settings = there
        for name in ("gateway", "health"):
            stack.start(name)
    stack.until(lambda: stack.health.value("frameledger_ready", check="database") == 1)


def test_a_loop_that_stands_still_is_not_ready(stack):
    def ready():
        return stack.health.value("frameledger_ready", check="loop")

    stack.until(lambda: ready() == 1)
    standing = threading.Event()
    stack.block(standing)
    try:
        stack.until(lambda: ready() == 0)
    finally:
        standing.set()
    stack.until(lambda: ready() == 1)


def test_a_worker_that_is_judged_dead_counts_the_lease_that_it_lost(stack):
    lost = "frameledger_work_leases_lost_total"
    before = stack.functions.value(lost)
    with psycopg.connect(stack.pipeline.address, autocommit=True) as connection:
        # The worker is there: it may have been judged dead before, and begins anew then.
        alive = "kind = 'functions' AND stopped_at IS NULL"
        stack.until(
            lambda: connection.execute(f"SELECT count(*) FROM workers WHERE {alive}").fetchone() == (1,)
        )
        connection.execute(f"UPDATE workers SET stopped_at = clock_timestamp() WHERE {alive}")
        stack.until(lambda: stack.functions.value(lost) == before + 1)
        stack.until(
            lambda: connection.execute(f"SELECT count(*) FROM workers WHERE {alive}").fetchone() == (1,)
        )


def test_a_projector_from_whom_another_one_takes_its_partitions_counts_that(stack):
    fenced = "frameledger_projector_fenced_total"
    before = stack.projector.value(fenced)
    # Once a frame is stored, the projector owns the partition, so it can be taken from it.
    stack.pipeline.publish([Raw(b"fought over", encode_frame(speak()))])
    stack.pipeline.until("SELECT count(*) = 1 FROM frames WHERE context_id = 'fought over'")
    with psycopg.connect(stack.pipeline.address, autocommit=True) as connection:
        connection.execute("UPDATE projections SET epoch = epoch + 1")
    stack.pipeline.publish([Raw(b"fought over", encode_frame(speak()))])
    stack.until(lambda: stack.projector.value(fenced) > before)
    stack.pipeline.until("SELECT count(*) = 2 FROM frames WHERE context_id = 'fought over'")


def test_an_effect_that_waits_in_the_outbox_is_seen_with_its_age(stack):
    oldest = "frameledger_outbox_oldest_seconds"
    stack.until(lambda: stack.timekeeper.value(oldest) == 0)
    # A row as a projector leaves it that dies before it publishes the effect; an hour old.
    with psycopg.connect(stack.pipeline.address, autocommit=True) as connection:
        connection.execute(
            'INSERT INTO outbox (topic, partition, "offset", ordinal, recorded_at, kind, to_topic, headers)'
            " VALUES ('another', 0, 0, 0, clock_timestamp() - interval '1 hour', 'effect', 'gone', '[]')"
        )
        stack.until(lambda: stack.timekeeper.value(oldest) >= 3_600)
        connection.execute("DELETE FROM outbox WHERE topic = 'another'")
    stack.until(lambda: stack.timekeeper.value(oldest) == 0)


def test_an_answer_is_counted_with_the_time_until_its_first_text(stack):
    first = "frameledger_run_first_text_seconds_count"
    assert not stack.projector.value(first)
    frames = [ask(), *answer("At last.")]
    stack.pipeline.publish([Raw(b"slow", encode_frame(one)) for one in frames])
    stack.until(lambda: stack.projector.value(first) == 1)


def test_a_conversation_that_cannot_be_folded_is_counted_as_parked(stack, monkeypatch):
    def failing(state, frame, *others):
        if state.context_id == "poisoned":
            raise ValueError("cannot fold")
        return evolve(state, frame, *others)

    monkeypatch.setattr(batch_fold, "evolve", failing)
    stack.until(lambda: stack.timekeeper.value("frameledger_contexts_parked") == 0)
    stack.pipeline.publish([Raw(b"poisoned", encode_frame(speak()))])
    stack.until(lambda: stack.timekeeper.value("frameledger_contexts_parked") == 1)
    stack.until(lambda: stack.projector.value("frameledger_projector_frames_total", outcome="parked") == 1)


def test_bytes_that_are_no_frame_are_counted_with_what_is_wrong(stack):
    stack.pipeline.publish([Raw(b"broken", b"[1, 2]")])
    stack.until(
        lambda: stack.projector.value("frameledger_projector_rejected_total", code="not_an_object") == 1
    )


def test_a_function_that_hangs_is_counted_and_the_call_of_which_nobody_knows_too(stack):
    released = threading.Event()

    async def search(params: FunctionCallParams):
        await asyncio.Event().wait()

    def book(params: FunctionCallParams):
        # A plain function runs in a thread, so it cannot be cancelled.
        released.wait(ON_SERVERS)

    async def scenario(talk):
        found, booked = called("search"), called("book")
        await talk.call(found, booked)
        return await talk.settled(found.tool_call_id, booked.tool_call_id)

    try:
        # On a busy machine the deadline may pass before the function has begun: then it is known that nothing happened.
        for deadline in (0.3, 1.0, 3.0, 10.0, 30.0):
            stack.registry.register_function("search", search, timeout_secs=deadline)
            stack.registry.register_function("book", book, timeout_secs=deadline)
            if stack.talk(scenario)[1] == "ambiguous":
                break
        else:
            raise AssertionError("the function never began")
    finally:
        released.set()
    tool = "gen_ai_execute_tool_duration_seconds_count"
    for name in ("search", "book"):
        stack.until(
            lambda name=name: stack.functions.value(tool, gen_ai_tool_name=name, error_type="timeout")
        )
    stack.until(lambda: stack.timekeeper.value("frameledger_calls_ambiguous") == 1)
    stack.until(lambda: stack.projector.value("frameledger_calls_total", function="book", status="ambiguous"))
    claims = stack.functions.value("frameledger_work_claims_total", kind="call", how="new")
    assert claims >= 2
    assert stack.functions.value("frameledger_work_queue_seconds_count") == claims


def test_slots_that_are_busy_are_counted(stack):
    def busy():
        return stack.functions.value("frameledger_work_slots", state="busy")

    let_go = threading.Event()

    async def busying(params: FunctionCallParams):
        await asyncio.to_thread(let_go.wait, ON_SERVERS)

    stack.registry.register_function("busying", busying)
    call = called("busying")

    async def scenario(talk):
        await talk.call(call)
        await asyncio.to_thread(stack.until, lambda: busy() == 1)
        let_go.set()
        return await talk.settled(call.tool_call_id)

    try:
        assert stack.talk(scenario) == ["done"]
    finally:
        let_go.set()
    stack.until(lambda: busy() == 0)


def test_a_function_that_fails_is_counted_as_failed(stack):
    async def breaks(params: FunctionCallParams):
        raise RuntimeError("out of order")

    stack.registry.register_function("breaks", breaks)
    broken = called("breaks")

    async def scenario(talk):
        await talk.call(broken)
        return await talk.settled(broken.tool_call_id)

    assert stack.talk(scenario) == ["failed"]
    stack.until(
        lambda: stack.projector.value("frameledger_calls_total", function="breaks", status="failed") == 1
    )


@pytest.mark.long
def test_a_run_that_nobody_takes_is_open_until_the_timekeeper_gives_it_up(stack):
    stack.stop("timekeeper")
    stack.settings = stack.settings.model_copy(update={"timekeeper_run_unclaimed_secs": scaled(0.5)})
    stack.start("timekeeper")
    stack.pipeline.publish([Raw(b"unclaimed", encode_frame(ask()))])
    settled = "frameledger_timekeeper_settled_total"
    stack.until(lambda: stack.timekeeper.value(settled, rule="run_unclaimed"))
    stack.until(lambda: stack.projector.value("frameledger_runs_total", status="failed"))


@contextmanager
def refusing():
    """Yields the address of a provider that rejects the key, and an event that makes it fail with 503 instead."""
    fails = threading.Event()

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self):
            body = b'{"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}'
            self.send_response(503 if fails.is_set() else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", fails
    finally:
        server.shutdown()
        server.server_close()


def test_a_key_that_is_wrong_is_counted_as_a_refusal_of_the_provider_and_its_failure_as_one(stack):
    with refusing() as (address, fails):
        stack.settings = stack.settings.model_copy(
            update={
                "openai_api_key": SecretStr(KEY),
                "openai_base_url": address,
                "inference_retries": 0,
                # So long that no run is closed as unclaimed while the service joins its group.
                "timekeeper_run_unclaimed_secs": ON_SERVERS,
            }
        )
        stack.stop("timekeeper")
        stack.start("timekeeper")
        stack.start("inference")
        try:
            stack.pipeline.publish([Raw(b"keyless", encode_frame(ask()))])
            asked = "gen_ai_client_inference_duration_seconds_count"
            stack.until(lambda: stack.inference.value(asked, error_type="provider_refused"))
            stack.pipeline.until(
                "SELECT count(*) = 1 FROM runs WHERE context_id = 'keyless' AND error_code = 'provider_refused'"
            )
            assert stack.inference.value(asked, gen_ai_provider_name="openai") >= 1
            fails.set()
            stack.pipeline.publish([Raw(b"failing", encode_frame(ask()))])
            stack.until(lambda: stack.inference.value(asked, error_type="provider_unavailable"))
            assert KEY not in generate_latest(stack.inference.registry).decode()
        finally:
            stack.stop("inference")


def test_everything_that_alerts_and_dashboards_name_is_on_a_live_page(stack):
    counted = (
        stack.projector,
        stack.timekeeper,
        stack.functions,
        stack.gateway,
        stack.inference,
        stack.health,
    )
    live = {family.name for one in counted for family in one.families()}
    named = {name for _, query in queries() for name in NAME.findall(query)}
    of = {name: metric.name for metric in METRICS.values() for name in series_of(metric)}
    # The parser of OpenMetrics omits the suffix of a counter's name.
    wanted = {of[name].removesuffix("_total") for name in named if name in of}
    assert len(wanted) > 40
    assert wanted - live == set()
