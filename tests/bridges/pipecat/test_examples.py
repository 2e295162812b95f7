"""The examples of the page: the example bot is killed and restarted, and an unchanged program is recorded."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bounds import ON_SERVERS, PROGRAM
from tests.bridges import example_process
from tests.bridges.example_process import in_the_environment
from tests.bridges.pipecat.bots import Answer, Bot
from tests.bridges.pipecat.test_restored import run_in_pipeline, wire
from tests.support.processes import Process

from frameledger_services.client import Client
from frameledger_services.pipecat import setup_file

pytestmark = pytest.mark.servers

EXAMPLE = Path(__file__).resolve().parents[3] / "infra" / "examples" / "pipecat_bot.py"


@pytest.fixture
def environment(settings, monkeypatch):
    """The environment variables with the servers of this test, which are set."""
    return in_the_environment(settings, monkeypatch)


async def followed(settings, context_id, *types):
    """Wait until frames of these types are stored in this order."""
    left = list(types)
    async with Client(settings) as client:
        async for one in client.follow(context_id):
            if left and one.type == left[0]:
                left.pop(0)
            if not left:
                break
        return await client.context(context_id)


def test_the_bot_of_the_examples_is_killed_in_an_answer_and_knows_it(settings, environment):
    async def scene():
        question = f"Is there {'really ' * 200}a night train?\n"
        with Process(example_process.run, str(EXAMPLE), "desk-9", question, environment) as bot:
            await followed(settings, "desk-9", "LLMRunFrame", "LLMTextFrame", "LLMTextFrame", "LLMTextFrame")
            bot.kill()
        command = [sys.executable, "-W", "ignore", str(EXAMPLE), "desk-9"]
        pipe = subprocess.PIPE
        again = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        out, _ = await asyncio.to_thread(again.communicate, "And back?\n", PROGRAM)
        assert again.returncode == 0
        lines = out.splitlines()
        assert lines[0].startswith("user: Is there really")
        assert lines[1].startswith("assistant: Question 1: Is")
        assert lines[2].rstrip() == "Question 2: And back?"
        stored = await followed(settings, "desk-9", "StartFrame", "StartFrame", "EndFrame")
        assert [one["role"] for one in stored.context.messages] == ["user", "assistant"] * 2

    run_in_pipeline(settings, scene)


def test_a_program_is_recorded_with_no_line_changed(settings, environment, monkeypatch):
    monkeypatch.setenv("PIPECAT_SETUP_FILES", setup_file.__file__)
    monkeypatch.setenv("PIPECAT_CONTEXT_ID", "call-7")

    async def scene():
        bot = Bot([Answer(["Yes."])])
        async with asyncio.timeout(ON_SERVERS):
            await bot.run(lambda bot: bot.ask("Hi"))
        stored = await followed(settings, "call-7", "EndFrame")
        assert [wire(one) for one in stored.context.messages] == bot.context.messages

    run_in_pipeline(settings, scene)


@pytest.mark.regression("bridge 5")
def test_pipelines_of_a_program_that_run_at_once_are_conversations_of_their_own(
    settings, environment, monkeypatch
):
    monkeypatch.setenv("PIPECAT_SETUP_FILES", setup_file.__file__)
    monkeypatch.setenv("PIPECAT_CONTEXT_ID", "call-7")

    async def scene():
        first, second = Bot([Answer(["One."]), Answer(["Two."])]), Bot([Answer(["Other."])])

        async def play(first):
            await first.ask("First")
            await second.run(lambda second: second.ask("Elsewhere"))
            await first.ask("Second")

        async with asyncio.timeout(ON_SERVERS):
            await first.run(play)
        for bot, context_id in ((first, "call-7"), (second, "call-7-2")):
            stored = await followed(settings, context_id, "EndFrame")
            assert [wire(one) for one in stored.context.messages] == bot.context.messages

    run_in_pipeline(settings, scene)
