"""`frameledger run functions`, `frameledger calls`, and the examples in infra/examples, as a user runs them."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.bounds import ON_SERVERS, scaled
from tests.support import commands, databases
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    called,
    stage_settings,  # noqa: F401  # a fixture
    talking,
)
from tests.support.polling import look_again
from tests.support.tiers import long

EXAMPLES = Path(__file__).resolve().parents[2] / "infra" / "examples"


pytestmark = CONNECTIONS_LEFT_OPEN


def environment(settings):
    return {
        **commands.environment(settings),
        "FRAMELEDGER_WORK_LEASE_SECS": str(settings.work_lease_secs),
        "FRAMELEDGER_WORK_HEARTBEAT_SECS": str(settings.work_heartbeat_secs),
    }


@pytest.fixture
def command(settings, command):
    """Run a command with the settings of this test's pipeline."""
    return partial(command, settings)


@contextmanager
def running(settings, *words):
    """A process in the folder of the examples, which must end well when told to, and a list for what it printed."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=EXAMPLES,
        env=os.environ | environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed: list[str] = []
    try:
        yield process, printed
        process.terminate()
        output, _ = process.communicate(timeout=ON_SERVERS)
        assert process.returncode == 0, output
        printed += output.splitlines()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "words",
    [("-m", "frameledger_services", "run", "functions", "--module", "my_tools"), long(("worker.py",))],
)
def test_both_examples_serve_their_functions(settings, command, words):
    async def scenario(process):
        async with talking(settings) as talk:
            await talk.until_registered(process.pid)
            weather = called("get_weather", {"city": "Oslo", "unit": "fahrenheit"})
            search = called("search", {"text": "cats"})
            refund = called("refund", {"order": "7", "cents": 500})
            await talk.call(weather, search, refund)
            await talk.settled(weather.tool_call_id, search.tool_call_id)
            await talk.settled(refund.tool_call_id, statuses=("waiting",))
            assert (await talk.told(weather.tool_call_id))["degrees"] == 39.2
            row = await talk.call_row(search.tool_call_id)
            assert (row["result"], row["progress_count"]) == (["A page about cats."], 1)

            listed = await asyncio.to_thread(command, "calls", "list", talk.context_id, "--json")
            [line] = [json.loads(line) for line in listed.stdout.splitlines()]
            assert (line["tool_call_id"], line["status"]) == (refund.tool_call_id, "waiting")
            assert line["waiting_for"] == "approval of 500 cents for order 7"

            words = (
                "calls",
                "answer",
                talk.context_id,
                refund.tool_call_id,
                "--result",
                '{"approved": true}',
            )
            answered = await asyncio.to_thread(command, *words)
            assert (answered.exit_code, answered.stdout) == (
                0,
                f"Answered the call {refund.tool_call_id} of {talk.context_id}.\n",
            )
            row = await talk.call_row(refund.tool_call_id)
            assert row["result"] == {"approved": True}
            causes = "SELECT version FROM causes(%s, %s) LIMIT 3"
            assert await talk.rows(causes, row["settled_version"]) == [
                (row["settled_version"],),
                (row["started_version"],),
                (row["dispatched_version"],),
            ]
            again = await asyncio.to_thread(command, *words)
            assert again.exit_code == 1
            assert "is settled already: it is done" in again.stderr

    with running(settings, *words) as (process, printed):
        asyncio.run(scenario(process))
        assert process.poll() is None
    # The example leaves logging to its program.
    if "run" in words:
        [started] = [line for line in printed if "worker.started" in line]
        assert json.loads(started)["serves"] == ["get_weather", "refund", "search"]


@pytest.mark.regression("journey 12")
def test_an_operator_says_what_became_of_an_ambiguous_call_once(settings, command, tmp_path, monkeypatch):
    (tmp_path / "pay_tools.py").write_text(
        "import os, signal\n"
        "from frameledger_services.functions import FunctionRegistry\n"
        "registry = FunctionRegistry()\n"
        "@registry.register_direct_function\n"
        "def pay(cents: int):\n"
        "    'Pays.'\n"
        f"    with open({str(tmp_path / 'paid')!r}, 'a') as file: file.write('paid')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    def process():
        words = ("-m", "frameledger_services", "run", "functions", "--module", "pay_tools")
        return subprocess.Popen(
            [sys.executable, *words], cwd=tmp_path, env=os.environ | environment(settings)
        )

    async def scenario():
        async with talking(settings) as talk:
            pay = called("pay", {"cents": 500})
            dies = process()
            try:
                await talk.until_registered(dies.pid)
                await talk.call(pay)
                assert await asyncio.to_thread(dies.wait, ON_SERVERS) < 0
                databases.dies(settings.database_url.get_secret_value(), dies.pid)
            finally:
                dies.kill()
            takes_over = process()
            try:
                assert await talk.settled(pay.tool_call_id) == ["ambiguous"]
            finally:
                takes_over.terminate()
                assert await asyncio.to_thread(takes_over.wait, ON_SERVERS) == 0
            assert (tmp_path / "paid").read_text() == "paid"
            listed = await asyncio.to_thread(command, "calls", "list", talk.context_id)
            lines = listed.stdout.splitlines()
            settle = f"frameledger calls resolve {talk.context_id} {pay.tool_call_id} --result JSON"
            assert lines[0].startswith("ambiguous  pay  since ")
            assert [line.split()[-1] for line in lines[1:4]] == [
                pay.tool_call_id,
                talk.context_id,
                str((await talk.call_row(pay.tool_call_id))["idempotency_key"]),
            ]
            assert lines[4].endswith(f" {settle}"), "an id that is to be copied is never folded"

            words = ("calls", "resolve", talk.context_id, pay.tool_call_id, "--result", '"It was paid."')
            resolved = await asyncio.to_thread(command, *words)
            assert resolved.exit_code == 0, resolved.output
            assert "It was paid." in (await talk.messages())[-1]["content"]
            row = await talk.call_row(pay.tool_call_id)
            # The result of the worker that took over is caused by the start of the one that died.
            causes = "SELECT version FROM causes(%s, %s)"
            assert await talk.rows(causes, row["resolved_version"]) == [
                (row["resolved_version"],),
                (row["settled_version"],),
                (row["started_version"],),
                (row["dispatched_version"],),
            ]
            again = await asyncio.to_thread(command, *words)
            assert again.exit_code == 1
            assert "is settled already: it is resolved" in again.stderr

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.regression("fault 73")
def test_a_handler_that_ignores_its_cancellation_does_not_hold_the_process(settings, tmp_path):
    (tmp_path / "stubborn_tools.py").write_text(
        "import asyncio, pathlib\n"
        "from frameledger_services.functions import FunctionRegistry\n"
        "registry = FunctionRegistry()\n"
        "@registry.register_direct_function\n"
        "async def pay(cents: int):\n"
        "    'Pays.'\n"
        "    pathlib.Path('begun').touch()\n"
        "    while True:\n"
        "        try:\n"
        "            await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError:\n"
        "            continue\n"
    )

    async def scenario():
        async with talking(settings) as talk, asyncio.timeout(2 * ON_SERVERS):
            pay = called("pay", {"cents": 500})
            await talk.until_registered(process.pid)
            await talk.call(pay)
            while not (tmp_path / "begun").exists():
                await look_again()
            process.terminate()
            assert await asyncio.to_thread(process.wait, ON_SERVERS) == 0
            assert await talk.settled(pay.tool_call_id) == ["ambiguous"]
            assert await talk.rows(
                "SELECT w.stopped_at IS NOT NULL FROM workers AS w JOIN claims USING (worker_id) WHERE context_id = %s"
            ) == [(True,)]

    hasty = {"FRAMELEDGER_WORK_DRAIN_SECS": "0.1", "FRAMELEDGER_WORK_GRACE_SECS": str(scaled(2.0))}
    process = subprocess.Popen(
        [sys.executable, "-m", "frameledger_services", "run", "functions", "--module", "stubborn_tools"],
        cwd=tmp_path,
        env=os.environ | environment(settings) | hasty,
    )
    try:
        asyncio.run(scenario())
    finally:
        process.kill()
        process.wait()


@pytest.mark.regression("worker 65")
def test_a_module_without_functions_is_refused_with_what_to_do(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "no_tools_here.py").write_text("registry = 7\n")
    (tmp_path / "a_program.py").write_text("import sys\nsys.exit(0)\n")
    for module, words in [
        ("no_tools_here", "has no registry"),
        ("nothing_at_all", "There is no module"),
        ("a_program", "sys.exit(0)"),
    ]:
        result = command("run", "functions", "--module", module)
        assert (result.exit_code, words in result.stderr) == (1, True), result.output


@pytest.mark.parametrize("wrong", ["yes", "NaN", "1e999", "[" * 101 + "]" * 101])
def test_what_is_no_json_is_refused_before_anything_is_published(command, wrong):
    result = command("calls", "answer", "a", "b", "--result", wrong)
    assert result.exit_code == 2
    assert "--result" in result.output
