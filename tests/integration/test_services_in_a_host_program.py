"""The services and the client in a host program: they do not affect anything else in that process."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from tests.bounds import ON_SERVERS
from tests.conftest import ROOT
from tests.support import commands
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import TopicSpec


@pytest.fixture(name="said")
def what_the_program_says(pipeline):
    settings = pipeline.settings
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FRAMELEDGER_")},
        **commands.environment(settings),
    }

    async def make_topic():
        async with broker.connect(settings) as brokers:
            await brokers.create_missing([TopicSpec(f"{settings.topic_prefix}neighbour", 1, 1, {})])

    asyncio.run(make_topic())
    with projector(settings):
        program = subprocess.run(
            [sys.executable, "-m", "tests.support.host_program"],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            timeout=2 * ON_SERVERS,
        )
    assert program.returncode == 0, program.stderr.decode()
    # Our code prints nothing there.
    [said] = program.stdout.splitlines()
    return json.loads(said)


def test_services_and_client_leave_aiokafka_and_the_process_as_they_were(said):
    assert [one["role"] for one in said["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert said["before"] > 1_000
    assert said["changed"] == said["changed afterwards"] == []
    plain = said["plain"]
    assert plain == said["plain beside ours"]
    assert plain["read"] == ["0", "1", "2", "UnicodeDecodeError"]
    # Each attempt is logged, with aiokafka's message.
    assert [line.split(":")[0] for line in plain["logged"]] == ['Unable connect to "127.0.0.1'] * 2
