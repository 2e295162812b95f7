"""The inference service on real servers: runs are requested on the log, answered on the log, and folded."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.integration.test_embedded_up import Folder
from tests.integration.test_functions_cli import EXAMPLES, environment
from tests.support.answerers import STEADY, answering, ask, frame, rows, spoken, until_closed
from tests.support.killable import projector
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from typer.testing import CliRunner

from frameledger.frames import CancelFrame, EndFrame, StartFrame
from frameledger_services.cli import application
from frameledger_services.inference import InferenceService, preparation, recorded_request
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService
from frameledger_services.store.connections import connect


def scripted(*say, **script):
    replies = script.pop("replies", [{"say": list(say)}])
    return ScriptedLLMService(script=Script.model_validate_json(json.dumps({"replies": replies, **script})))


def test_who_asks_is_answered_once(pipeline):
    settings = pipeline.settings.model_copy(update=STEADY)
    with projector(pipeline.settings) as projecting:
        with answering(settings, lambda _: scripted({"text": "Good day to you."})):
            ask(pipeline, "a")
            until_closed(pipeline, "a")
        pipeline.check(projecting)
    assert spoken(pipeline, "a") == [("user", "Hello?"), ("assistant", "Good day to you.")]
    [(status, attempt, provider, worker)] = rows(
        pipeline, "SELECT status, attempt, provider, worker FROM runs"
    )
    assert (status, attempt, provider) == ("ended", 1, "scripted")
    assert rows(pipeline, "SELECT attempt, worker_id FROM claims WHERE finished_at IS NOT NULL") == [
        (1, worker)
    ]


def test_an_answer_says_whether_it_is_to_be_spoken(pipeline):
    settings = pipeline.settings.model_copy(update=STEADY)
    with projector(pipeline.settings), answering(settings, lambda _: scripted({"text": "Good day."})):
        ask(pipeline, "a", "Hello?", frame("LLMConfigureOutputFrame", skip_tts=True))
        ask(pipeline, "b")
        until_closed(pipeline, "a", "b")
    said = "SELECT DISTINCT payload ->> 'skip_tts' FROM frames WHERE context_id = %s AND run_id IS NOT NULL"
    assert rows(pipeline, said, "a") == [("true",)]
    assert rows(pipeline, said, "b") == [(None,)]


def test_a_model_may_cancel_what_it_started_where_the_function_allows_it(pipeline):
    """The cancel tool is offered with the request, its call is announced as built in, and the request can be made again
    when nobody offers the function any more."""
    offered = {
        "functions": [
            {
                "name": name,
                "options": {"cancellable_by_llm": by_llm, "cancel_on_interruption": on_interruption},
            }
            for name, by_llm, on_interruption in (
                ("research", True, False),
                ("pay", False, False),
                ("look", True, True),
            )
        ]
    }
    names = ("research", "pay", "look")
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names
    ]
    model = scripted({"call": "cancel_research"}, {"call": "pay"})
    heard = []
    model.event_handler("on_function_calls_started")(lambda _, calls: heard.extend(calls))
    settings = pipeline.settings.model_copy(update=STEADY)
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO workers (worker_id, heartbeat_at, lease_secs, slots, pid, service, kind, host, offers) "
            "VALUES ('w', now() + interval '1 hour', 5, 1, 1, 'tools', 'functions', 'here', %s)",
            (json.dumps(offered),),
        )
    with projector(pipeline.settings), answering(settings, lambda _: model):
        ask(pipeline, "a", "Stop it.", frame("LLMSetToolsFrame", tools=tools))
        until_closed(pipeline, "a")
    assert rows(pipeline, "SELECT function_name, builtin FROM tool_calls ORDER BY ordinal") == [
        ("cancel_research", True),
        ("pay", False),
    ]
    assert [call.function_name for call in heard] == ["pay"]
    rows_left = rows(pipeline, "DELETE FROM workers WHERE worker_id = 'w' RETURNING worker_id")
    assert rows_left == [("w",)]
    asked, made = rendered_again(pipeline, "a")
    assert [tool["name"] for tool in made.body["tools"]] == ["research", "pay", "look", "cancel_research"]
    assert made.sha256 == asked.start.request_sha256


@pytest.mark.regression("fault 10")
def test_a_database_that_cannot_be_read_for_a_while_uses_up_no_attempts(pipeline, monkeypatch):
    left = [psycopg.OperationalError("the server is silent") for _ in range(5)]
    read = preparation.read

    async def fails_at_first(*arguments):
        if left:
            raise left.pop()
        return await read(*arguments)

    monkeypatch.setattr(preparation, "read", fails_at_first)
    model = scripted({"text": "Good day."})
    with (
        projector(pipeline.settings),
        answering(pipeline.settings.model_copy(update=STEADY), lambda _: model),
    ):
        ask(pipeline, "a")
        until_closed(pipeline, "a")
    assert not left
    assert rows(pipeline, "SELECT status, attempt FROM runs") == [("ended", 1)]


@pytest.mark.long
def test_a_service_may_be_told_more_while_it_runs_and_its_requests_can_still_be_made_again(pipeline):
    model = scripted({"text": "Good day."})
    settings = pipeline.settings.model_copy(update=STEADY)
    with projector(pipeline.settings), answering(settings, lambda _: model):
        ask(pipeline, "before")
        until_closed(pipeline, "before")
        model.append_system_instruction("Be kind.")
        ask(pipeline, "after")
        until_closed(pipeline, "after")
    for context, system in ("before", None), ("after", "Be kind."):
        asked, made = rendered_again(pipeline, context)
        assert made.body.get("system") == system
        assert made.sha256 == asked.start.request_sha256
    assert rows(pipeline, "SELECT count(*) FROM frames WHERE payload #>> '{metadata,offer}' IS NOT NULL") == [
        (1,)
    ]


def test_a_context_that_was_parked_meanwhile_is_answered_when_it_is_not_any_more(pipeline, monkeypatch):
    read, parked = preparation.read, threading.Event()

    async def parked_once(connection, context_id, version):
        stored, cancel_tools = await read(connection, context_id, version)
        if parked.is_set():
            return stored, cancel_tools
        parked.set()
        return replace(stored, parked_version=version + 1), cancel_tools

    monkeypatch.setattr(preparation, "read", parked_once)
    settings = pipeline.settings.model_copy(update=STEADY)
    with projector(pipeline.settings), answering(settings, lambda _: scripted({"text": "Good day."})):
        ask(pipeline, "a")
        until_closed(pipeline, "a")
    assert rows(pipeline, "SELECT status, attempt FROM runs") == [("ended", 1)]


def test_a_context_that_is_gone_is_answered_by_nobody(pipeline, monkeypatch):
    read = preparation.read

    async def gone(connection, context_id, version):
        return await read(connection, "nowhere" if context_id == "a" else context_id, version)

    monkeypatch.setattr(preparation, "read", gone)
    settings = pipeline.settings.model_copy(update=STEADY)
    with projector(pipeline.settings), answering(settings, lambda _: scripted({"text": "Good day."})):
        ask(pipeline, "a")
        pipeline.until("SELECT count(*) = 1 FROM claims WHERE finish = 'over'")
        ask(pipeline, "b")
        until_closed(pipeline, "b")
    assert rows(pipeline, "SELECT type FROM frames WHERE context_id = 'a' AND run_id IS NOT NULL") == []


def test_the_commands_answer_and_show_what_was_asked(pipeline, tmp_path, monkeypatch):
    """`run inference` ends cleanly on SIGTERM; `request` prints the very bytes, and says so if they are others."""
    environment = {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": pipeline.settings.kafka_bootstrap_servers,
        "FRAMELEDGER_DATABASE_URL": pipeline.address,
        "FRAMELEDGER_TOPIC_PREFIX": pipeline.settings.topic_prefix,
        "FRAMELEDGER_INFERENCE_SYSTEM_INSTRUCTION": "Be kind.",
    }
    (tmp_path / "script.json").write_text('{"replies": [{"say": [{"text": "Good day."}]}]}')
    answering = Folder(tmp_path, **environment).start(
        *("run", "inference", "--provider", "scripted", "--model", "m", "--models", "m,n", "--slots", "2"),
        *("--script", "script.json"),
    )
    with projector(pipeline.settings):
        ask(pipeline, "a")
        until_closed(pipeline, "a")
    answering.terminate()
    said, _ = answering.communicate(timeout=ON_SERVERS)
    assert answering.returncode == 0, said
    assert spoken(pipeline, "a")[-1] == ("assistant", "Good day.")
    assert rows(pipeline, "SELECT service, serves, serves_all, slots FROM workers") == [
        ("inference-scripted", ["m", "n"], False, 2)
    ]

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # How a worker was set up is in its row, not here.
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_SYSTEM_INSTRUCTION", "Be quick.")
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_SCRIPT", "not-there.json")
    [(run_id, sha256)] = rows(pipeline, "SELECT run_id, request_sha256 FROM runs")
    shown = command("request", "a", run_id)
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout) == {
        "model": "m",
        "system": "Be kind.",
        "messages": [{"role": "user", "content": "Hello?"}],
    }
    assert command("request", "a", run_id[:8]).stdout == shown.stdout
    raw = command("request", "a", run_id, "--attempt", "1", "--raw").stdout_bytes
    assert hashlib.sha256(raw).hexdigest() == sha256

    assert "no attempt 2; it has 1" in command("request", "a", run_id, "--attempt", "2").stderr
    assert "no run 'x' that has started" in command("request", "a", "x").stderr
    rows(
        pipeline,
        "UPDATE workers SET offers = jsonb_set(offers::jsonb, '{settings,seed}', '1')::json RETURNING 1",
    )
    changed = command("request", "a", run_id)
    assert changed.exit_code == 1
    assert "differs from the one that was sent" in changed.stderr


def test_a_service_that_cannot_begin_says_why():
    assert "FRAMELEDGER_INFERENCE_PROVIDER" in command("run", "inference").stderr
    assert "no provider 'nobody'" in command("run", "inference", "--provider", "nobody").stderr
    missing = command("run", "inference", "--provider", "scripted", "--script", "nowhere.json")
    assert "nowhere.json cannot be read" in missing.stderr
    assert missing.exit_code == 1


def command(*words):
    return CliRunner().invoke(application(), list(words))


def rendered_again(pipeline, context_id):
    """Returns what is recorded of the request of the latest run of this context, and the request rebuilt from it."""

    async def asked():
        [(run_id,)] = rows(pipeline, "SELECT run_id FROM runs WHERE context_id = %s", context_id)
        async with await connect(pipeline.settings) as connection:
            return await recorded_request.recorded_request(connection, context_id, run_id)

    found = asyncio.run(asked())
    return found, recorded_request.rebuild(found, lambda _: ScriptedLLMService())


@pytest.mark.long
@pytest.mark.regression("repair 11")
def test_a_program_of_ones_own_starts_answers_and_stops(pipeline):
    """`start` returns when runs are claimed, and does nothing if called again; `stop` drains; then it may start
    again."""
    settings = pipeline.settings.model_copy(update=STEADY)

    async def life():
        async with asyncio.timeout(ON_SERVERS):
            service = InferenceService(settings, scripted({"text": "Good day to you."}))
            async with service:
                await service.start(StartFrame())
                await asyncio.to_thread(ask, pipeline, "a")
                await asyncio.to_thread(until_closed, pipeline, "a")
            await service.stop(EndFrame())
            await service.start()
            await asyncio.to_thread(ask, pipeline, "b")
            await asyncio.to_thread(until_closed, pipeline, "b")
            await service.cancel(CancelFrame())
            await service.cleanup()

    with projector(pipeline.settings) as projecting:
        asyncio.run(life())
        pipeline.check(projecting)
    assert (
        spoken(pipeline, "a")
        == spoken(pipeline, "b")
        == [("user", "Hello?"), ("assistant", "Good day to you.")]
    )


@pytest.mark.regression("repair 11")
def test_the_example_of_a_model_answers_and_its_hooks_are_called(pipeline, tmp_path):
    (tmp_path / "script.json").write_text('{"replies": [{"say": [{"text": "I look."}, {"call": "look"}]}]}')
    set_here = environment(pipeline.settings) | {
        "FRAMELEDGER_INFERENCE_SCRIPT": str(tmp_path / "script.json")
    }
    with projector(pipeline.settings):
        example = subprocess.Popen(
            [sys.executable, "model.py"],
            cwd=EXAMPLES,
            env=os.environ | set_here,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            ask(pipeline, "a")
            until_closed(pipeline, "a")
            example.terminate()
            output, _ = example.communicate(timeout=ON_SERVERS)
        finally:
            example.kill()
            example.communicate()
    assert example.returncode == 0
    assert "calls: look" in output
    assert spoken(pipeline, "a")[1:] == [("assistant", "I look.")]
