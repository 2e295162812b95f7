"""The example application is killed and restarted."""

import asyncio
import subprocess
import sys

import pytest
from tests.bounds import PROGRAM
from tests.bridges import example_process
from tests.bridges.agents_sdk.test_on_servers import in_sql, pipeline
from tests.bridges.example_process import in_the_environment
from tests.support.pages import ROOT
from tests.support.processes import Process

from frameledger_services.client import Client

pytestmark = pytest.mark.servers

EXAMPLE = ROOT / "infra" / "examples" / "agents_app.py"


def test_the_application_of_the_examples_is_killed_in_an_answer_and_knows_what_was_said(
    settings, monkeypatch
):
    environment = in_the_environment(settings, monkeypatch)

    async def answering(client):
        """Wait until the model gets its second request."""
        seen = 0
        async for one in client.follow("ticket-9"):
            seen += one.type == "LLMFullResponseStartFrame"
            if seen == 2:
                return

    async def scene():
        async with pipeline(settings), Client(settings) as client:
            question = "Where is order 7?\n"
            with Process(example_process.run, str(EXAMPLE), "ticket-9", question, environment) as app:
                await answering(client)
                app.kill()
            pipe = subprocess.PIPE
            command = [sys.executable, "-W", "ignore", str(EXAMPLE), "ticket-9"]
            again = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
            out, _ = await asyncio.to_thread(again.communicate, "\nAnd order 8?\n", PROGRAM)
            assert again.returncode == 0
            return out.splitlines()

    *before, answer = asyncio.run(scene())
    assert before[0] == "user Where is order 7?"
    assert answer == "Question 2: order 8 is on its way."
    runs = in_sql(settings, "SELECT model, status FROM facts_runs ORDER BY requested_version")
    assert runs[0] == ("clerk-1", "ended")
    assert runs[-1] == ("clerk-1", "ended")
    calls = in_sql(settings, "SELECT function_name, status FROM facts_calls")
    assert calls == [("order_status", "done")] * 2
