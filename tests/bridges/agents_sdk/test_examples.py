"""The example application is killed and restarted."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from tests.bounds import PROGRAM
from tests.bridges.agents_sdk.test_on_servers import in_sql, road
from tests.support.pages import ROOT

from frameledger_services.client import Client

pytestmark = pytest.mark.servers

EXAMPLE = ROOT / "infra" / "examples" / "agents_app.py"


def test_the_application_of_the_examples_is_killed_in_an_answer_and_knows_what_was_said(
    settings, monkeypatch
):
    monkeypatch.setenv("FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS", settings.kafka_bootstrap_servers)
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", settings.database_url.get_secret_value())
    monkeypatch.setenv("FRAMELEDGER_TOPIC_PREFIX", settings.topic_prefix)

    def started():
        pipe = subprocess.PIPE
        command = [sys.executable, "-W", "ignore", str(EXAMPLE), "ticket-9"]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    async def answering(client):
        """Wait until the model gets its second request."""
        seen = 0
        async for one in client.follow("ticket-9"):
            seen += one.type == "LLMFullResponseStartFrame"
            if seen == 2:
                return

    async def scene():
        async with road(settings), Client(settings) as client:
            app = started()
            try:
                app.stdin.write("Where is order 7?\n")
                app.stdin.flush()
                await answering(client)
                os.kill(app.pid, signal.SIGKILL)
            finally:
                app.kill()
                app.communicate()
            again = started()
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
