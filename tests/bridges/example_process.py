"""An example program in a process that has imported what it imports: it starts in a tenth of the time."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest
from tests.support.processes import preload

from frameledger_services.settings import Settings

for framework, bridge in (
    ("pipecat", "frameledger_services.pipecat"),
    ("agents", "frameledger_services.agents_sdk"),
):
    if find_spec(framework) is not None:
        preload(bridge)


def in_the_environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set the variables with the servers of a test, for programs. Returns them."""
    assert settings.kafka_bootstrap_servers is not None
    variables = {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "FRAMELEDGER_DATABASE_URL": settings.database_url.get_secret_value(),
        "FRAMELEDGER_TOPIC_PREFIX": settings.topic_prefix,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def run(path: str, argument: str, line: str, environment: Mapping[str, str], said: Any) -> None:
    """Run the program as `python PATH ARGUMENT` would, with one line on its standard input, which stays open."""
    os.environ.update(environment)
    reads, writes = os.pipe()
    os.write(writes, line.encode())
    sys.stdin = os.fdopen(reads)
    sys.argv = [path, argument]
    runpy.run_path(path, run_name="__main__")
