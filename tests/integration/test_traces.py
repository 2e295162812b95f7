"""A turn is one trace across all processes that take part in it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import psycopg
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.bounds import ON_SERVERS, PROGRAM
from tests.support import databases
from tests.support.collector import collecting
from tests.support.full_pipeline import running
from tests.support.pipeline import PARTITIONS
from tests.support.pipeline import made as pipeline_made
from tests.support.polling import pause

from frameledger.frames import FunctionCallInProgressFrame, LLMContextFrame
from frameledger_services.client import Client
from frameledger_services.demo.tools import registry
from frameledger_services.embedded import ports
from frameledger_services.settings import PREFIX
from frameledger_services.telemetry import otel

SECRET = "the passenger of berth seven"
SCRIPT = {
    "replies": [
        {"when": {"user": "late"}, "say": [{"text": f"I look for {SECRET}."}, {"call": "train_position"}]},
        {"when": {"result_of": "train_position"}, "say": [{"text": f"25 minutes, {SECRET}."}]},
    ]
}


@pytest.fixture
def collector():
    with collecting() as found:
        yield found


@pytest.fixture
def program(collector, monkeypatch):
    """The tracer of a program in which our client is used: this one."""
    provider = TracerProvider(
        resource=Resource({"service.name": "program", "service.instance.id": "this"}), shutdown_on_exit=False
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(f"{collector.endpoint}/v1/traces"), schedule_delay_millis=20)
    )
    tracer = provider.get_tracer("program")
    monkeypatch.setattr(otel, "_tracer", tracer)
    yield tracer
    provider.shutdown()


@pytest.fixture
def environment(kafka, database_server, migrated_template, tmp_path, collector):
    """The settings of a pipeline, and the environment in which its services send their spans to the collector."""
    bootstrap_servers = kafka.bootstrap_servers
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    with databases.made(database_server, template=migrated_template) as (_, address):
        pipeline = pipeline_made(bootstrap_servers, address, None)
        said = {
            "kafka_bootstrap_servers": bootstrap_servers,
            "database_url": address,
            "topic_prefix": pipeline.settings.topic_prefix,
            "data_dir": tmp_path,
        }
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "OTEL"))
        }
        yield (
            inherited
            | {f"{PREFIX}{name.upper()}": str(value) for name, value in said.items()}
            | collector.environment(),
            pipeline.settings,
        )


def until(true):
    end = time.monotonic() + ON_SERVERS
    while not true():
        assert time.monotonic() < end
        pause()


def until_effects_are_requested(settings):
    """Wait until a projector has released the held effects of every partition. It requests those from the tables, which
    have no spans."""
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        held = "SELECT count(*) FROM projections WHERE effects_held_until IS NULL"
        until(lambda: connection.execute(held).fetchone() == (PARTITIONS,))


def question(text):
    messages = [{"role": "user", "content": text}]
    return LLMContextFrame(context={"messages": messages, "tools": registry.schemas()}, run_llm=True)


def test_a_turn_with_a_call_is_one_trace_over_four_processes(environment, collector, program, tmp_path):
    inherited, settings = environment

    async def ask():
        async with Client(settings) as client:
            with program.start_as_current_span("a turn"):
                (published,) = await client.publish(
                    "call-17", question("Are we late?"), wait=True, within=ON_SERVERS
                )
            return published

    script = str(tmp_path / "script.json")
    with (
        running(inherited, "run", "projector"),
        running(inherited, "run", "inference", "--provider", "scripted", "--script", script),
        running(inherited, "run", "functions", "--module", "frameledger_services.demo.tools"),
    ):
        until_effects_are_requested(settings)
        asyncio.run(ask())
        spans = collector.until(
            lambda spans: (
                sum(one.name.startswith("chat ") for one in spans) == 2
                and sum(one.name.endswith(".inference") for one in spans) == 2
                and any(one.name == "a turn" for one in spans)
            )
        )
    (trace,) = {one.trace_id for one in spans if one.name == "a turn"}
    turn = [one for one in spans if one.trace_id == trace]
    assert len(turn) >= 8
    assert len({(one.service, one.instance) for one in turn}) == 4
    by_id = {one.span_id: one for one in turn}
    below = {(by_id[one.parent_id].plain if one.parent_id else None, one.plain) for one in turn}
    assert below == {
        (None, "a turn"),
        ("a turn", "send frames"),
        ("send frames", "process frames"),
        ("send frames", "process inference"),
        ("process inference", "chat scripted"),
        ("chat scripted", "process frames"),
        ("chat scripted", "process function-calls"),
        ("process function-calls", "execute_tool train_position"),
        ("process function-calls", "process frames"),
        ("process function-calls", "process inference"),
    }
    assert {one.status for one in turn} == {0}
    everything = repr(spans)
    assert not [word for word in (SECRET, "Are we late", "06:31", "late_minutes") if word in everything]
    assert {one.events for one in spans} == {0}

    first, _ = sorted(
        (one for one in turn if one.plain == "chat scripted"),
        key=lambda one: one.attributes["frameledger.context.version"],
    )
    assert first.kind == "client"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": "call-17",
        "session.id": "call-17",
        "frameledger.context.version": 1,
        "gen_ai.response.finish_reasons": ["tool_calls"],
    }
    assert {name: first.attributes.get(name) for name in expected} == expected
    assert first.attributes["gen_ai.usage.output_tokens"] > 0
    assert 0 <= first.attributes["gen_ai.response.time_to_first_chunk"] < ON_SERVERS
    (called,) = [one for one in turn if one.plain == "process function-calls"]
    assert called.kind == "consumer"
    assert called.attributes["frameledger.claim.ending"] == "done"
    assert 0 <= called.attributes["frameledger.queue_seconds"] < ON_SERVERS
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        found = connection.execute("SELECT DISTINCT trace_id FROM frames WHERE context_id = 'call-17'")
        assert found.fetchall() == [(trace,)]


@pytest.mark.long
def test_what_a_person_publishes_on_the_command_line_begins_a_trace_and_an_answer_leads_to_its_call(
    environment, collector, program
):
    inherited, settings = environment
    waits = FunctionCallInProgressFrame(
        function_name="approve", tool_call_id="call-1", arguments={}, waiting={"for": "approval"}
    )

    async def call():
        async with Client(settings) as client:
            with program.start_as_current_span("a call"):
                await client.publish("call-18", waits, wait=True, within=ON_SERVERS)

    def frameledger(*words):
        command = [sys.executable, "-m", "frameledger_services", *words]
        subprocess.run(command, env=inherited, check=True, timeout=PROGRAM, stdout=subprocess.DEVNULL)

    with running(inherited, "run", "projector"):
        asyncio.run(call())
        frameledger("calls", "answer", "call-18", "call-1", "--result", "true")
        frameledger("publish", "call-19", '{"type": "LLMRunFrame"}')
        spans = collector.until(
            lambda spans: (
                sum(one.service == "frameledger-cli" and one.plain == "send frames" for one in spans) == 2
            )
        )
    (called,) = [one for one in spans if one.plain == "a call"]
    (answered,) = [one for one in spans if one.plain == "settle_call approve"]
    assert (answered.service, answered.parent_id) == ("frameledger-cli", "")
    (link,) = answered.links
    assert link.partition("-")[0] == called.trace_id != answered.trace_id
    below, published = sorted(
        (one for one in spans if one.service == "frameledger-cli" and one.plain == "send frames"),
        key=lambda one: one.attributes["gen_ai.conversation.id"],
    )
    assert (below.trace_id, below.parent_id) == (answered.trace_id, answered.span_id)
    assert published.parent_id == ""


SLOW_TOOLS = """
import asyncio
from pathlib import Path
from frameledger_services.functions import FunctionRegistry, tool_options

registry = FunctionRegistry()

@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=300)
async def train_position() -> dict:
    "Where the train is."
    first = Path({first!r})
    if not first.exists():
        first.touch()
        await asyncio.Event().wait()
    return {{"late_minutes": 25}}
"""


@pytest.mark.long
def test_who_takes_over_from_a_dead_worker_begins_a_trace_with_a_link(
    environment, collector, program, tmp_path
):
    """The first worker is killed in the middle of the call, and the second one runs it again."""
    inherited, settings = environment
    first = tmp_path / "first"
    (tmp_path / "slow_tools.py").write_text(SLOW_TOOLS.format(first=str(first)))
    functions = inherited | {
        "PYTHONPATH": str(tmp_path),
        f"{PREFIX}WORK_LEASE_SECS": "1.5",
        f"{PREFIX}WORK_HEARTBEAT_SECS": "0.1",
    }
    command = ("run", "functions", "--module", "slow_tools")

    async def ask():
        async with Client(settings) as client:
            with program.start_as_current_span("a turn"):
                await client.publish("call-17", question("Are we late?"), wait=True, within=ON_SERVERS)
            async for frame in client.follow("call-17"):
                if frame.type == "FunctionCallInProgressFrame":
                    return

    script = str(tmp_path / "script.json")
    with (
        running(inherited, "run", "projector"),
        running(inherited, "run", "inference", "--provider", "scripted", "--script", script),
    ):
        with running(functions, *command) as dying:
            until_effects_are_requested(settings)
            asyncio.run(ask())
            until(first.exists)
            dying.kill()
        with running(functions, *command):
            spans = collector.until(
                lambda spans: (
                    sum(one.plain == "process inference" for one in spans) == 2
                    and any(one.plain == "a turn" for one in spans)
                )
            )
    (turn,) = [one for one in spans if one.plain == "a turn"]
    (call,) = [one for one in spans if one.plain == "process function-calls"]
    assert (call.parent_id, call.attributes["frameledger.call.attempt"] > 1) == ("", True)
    assert call.trace_id != turn.trace_id
    (link,) = call.links
    assert link.partition("-")[0] == turn.trace_id
    before, after = sorted(
        (one for one in spans if one.plain == "process inference"),
        key=lambda one: one.attributes["frameledger.context.version"],
    )
    assert (before.trace_id, after.trace_id) == (turn.trace_id, call.trace_id)


@pytest.mark.long
def test_a_collector_that_is_away_costs_spans_and_nothing_else(environment, tmp_path):
    """Nothing listens at the endpoint: the turn is answered, and the log says so once for each process."""
    inherited, settings = environment
    dead = inherited | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{ports.choose(0)}"}

    async def ask():
        async with Client(settings) as client:
            await client.publish("call-17", question("Are we late?"), wait=True, within=ON_SERVERS)
            async with asyncio.timeout(ON_SERVERS):
                async for frame in client.follow("call-17"):
                    if frame.type == "LLMFullResponseEndFrame" and frame.frame.finish_reason == "stop":
                        return

    script = str(tmp_path / "script.json")
    commands = {
        "projector": ("run", "projector"),
        "inference": ("run", "inference", "--provider", "scripted", "--script", script),
        "functions": ("run", "functions", "--module", "frameledger_services.demo.tools"),
    }
    started = []
    with ExitStack() as stack:
        for name, words in commands.items():
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            command = [sys.executable, "-m", "frameledger_services", *words]
            started.append(subprocess.Popen(command, env=dead, stderr=log))
            stack.callback(started[-1].kill)
        asyncio.run(ask())
        for one in started:
            one.terminate()
        assert [one.wait(PROGRAM) for one in started] == [0, 0, 0]
    for name in commands:
        lines = [json.loads(line) for line in (tmp_path / f"{name}.log").read_text().splitlines()]
        told = [line["event"] for line in lines if line["logger"] == "frameledger.telemetry"]
        assert told.count("telemetry.not_exported") <= 1
        assert told[-1] == "telemetry.spans_lost"
        # The telemetry library logs nothing itself. Kafka's client may log that the machine is busy.
        assert not [line for line in lines if not line["logger"].startswith(("frameledger.", "aiokafka"))]
