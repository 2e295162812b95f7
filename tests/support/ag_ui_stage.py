"""A front end with AG-UI's official client, in front of a pipeline with a gateway and a scripted model."""

import json
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.bounds import ON_SERVERS, PROGRAM, scaled
from tests.support import full_pipeline
from tests.support.ag_ui import Consumer
from tests.support.gateway import running
from tests.support.scripted_replies import REPLIES

from frameledger_services.embedded import ports

CLIENT = Path(__file__).with_name("ag_ui_client.mjs")
PACKAGE = "@ag-ui/client@1.0.0"

SCRIPT = {
    "pace": 60,
    "replies": [
        {"when": {"user": "count"}, "say": [{"text": " ".join(f"number-{n}" for n in range(1, 300))}]},
        {"when": {"user": "recite"}, "say": [{"text": " ".join(f"verse-{n}" for n in range(1, 4000))}]},
        {"when": {"user": "ponder"}, "say": [{"thought": " ".join(f"reason-{n}" for n in range(1, 4000))}]},
        {
            "when": {"user": "two seats"},
            "say": [{"call": "keep_seat", "arguments": {"berth": berth}} for berth in (7, 8)],
        },
        {"when": {"user": "seat"}, "say": [{"call": "keep_seat", "arguments": {"berth": 7}}]},
        {"when": {"result_of": "keep_seat"}, "say": [{"text": "It is yours."}]},
        *REPLIES,
    ],
}


@pytest.fixture(scope="module", name="package")
def ag_ui_package(tmp_path_factory):
    """A folder with the official client in it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("The official client of AG-UI is run by node, and there is none here.")
    folder = tmp_path_factory.mktemp("npm")
    shutil.copy(CLIENT, folder)
    (folder / "package.json").write_text("{}")
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", PACKAGE]
    try:
        found = subprocess.run(install, cwd=folder, capture_output=True, timeout=PROGRAM)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer, so the official client of AG-UI is not here.")
    if found.returncode:
        pytest.skip("npm is not reached, so the official client of AG-UI is not here.")
    return folder


class FrontEnd:
    """The official client in a process of its own. It checks the order of the events."""

    def __init__(self, folder, url):
        self.said = (folder / "said.txt").open("w+")
        self.process = subprocess.Popen(
            ["node", CLIENT.name, url],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
        )

    def do(self, thread, *, cut=False, **what):
        self.process.stdin.write(json.dumps({"thread": thread, **what}) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        if not cut and told["events"]:
            consumer = Consumer()
            consumer.take_all(told["events"])
            assert consumer.run is None
        return told

    def warnings(self):
        self.said.flush()
        self.said.seek(0)
        return [line for line in self.said if "[ag-ui]" in line]

    def close(self):
        self.process.kill()
        self.process.wait(PROGRAM)
        self.process.stdin.close()
        self.process.stdout.close()
        self.said.close()


class Stage:
    """A pipeline and a gateway."""

    def __init__(self, pipeline, base_url):
        self.address = pipeline.address
        self.settings = pipeline.settings
        self.rows = pipeline.rows
        self.until = pipeline.until
        self.context = pipeline.context
        self.url = f"{base_url}/v1/ag-ui"

    def stored(self, context_id):
        return self.context(context_id)["messages"]

    def runs(self, context_id):
        query = "SELECT status FROM runs WHERE context_id = %s ORDER BY requested_version"
        return [status for (status,) in self.rows(query, context_id)]

    def eras(self, context_id):
        return self.rows("SELECT count(*) FROM eras WHERE context_id = %s", context_id)[0][0]

    def post(self, **body):
        return httpx.post(self.url, json=body, timeout=ON_SERVERS)


@pytest.fixture(scope="module", name="stage")
def ag_ui_stage(kafka, database_server, migrated_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ag-ui")
    servers = (kafka.bootstrap_servers, database_server, migrated_template)
    also = {
        "gateway_port": str(ports.choose(0)),
        "gateway_ag_ui": "true",
        # Long enough to reconnect on a busy machine, and much shorter than the recited answer.
        "gateway_ag_ui_reconnect_secs": str(min(scaled(5.0), 30.0)),
    }
    with (
        full_pipeline.made(*servers, folder, SCRIPT) as pipeline,
        running(pipeline.settings, **also) as gateway,
    ):
        yield Stage(pipeline, gateway.address)


@pytest.fixture(scope="module", name="front_end")
def ag_ui_front_end(package, stage):
    client = FrontEnd(package, stage.url)
    try:
        yield client
    finally:
        client.close()


def types(told):
    return [event["type"] for event in told["events"]]


def words(told):
    return [(one["role"], one.get("content")) for one in told["messages"]]
