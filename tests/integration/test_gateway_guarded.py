"""The checks before the app also hold on the port of a real gateway process. Needs no servers."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import httpx
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, PROGRAM
from tests.support.gateway import running

from frameledger_services.embedded import ports
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.response_headers import HEADERS
from frameledger_services.settings import Settings

AWAY = Settings(
    database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"), kafka_bootstrap_servers="127.0.0.1:1"
)


def client(gateway):
    return httpx.Client(base_url=gateway.address, timeout=ON_SERVERS)


def test_a_gateway_with_tokens_answers_nobody_without_one(tmp_path):
    file = tmp_path / "tokens.json"
    token = tokens.create(file, "ci", ("read",), prefix="acme/", now=datetime.now(UTC))[1]
    port = ports.choose(0)
    with (
        running(AWAY, gateway_tokens_file=str(file), gateway_port=str(port)) as gateway,
        client(gateway) as http,
    ):
        nobody = http.get("/v1/contexts/acme%2F1")
        assert (nobody.status_code, nobody.json()["type"]) == (401, "/problems/unauthorised")
        assert {name: nobody.headers[name] for name in HEADERS} == HEADERS
        assert http.get("/asyncapi.json").json()["asyncapi"] == "3.0.0"
        assert http.get("/livez").status_code == 200

        http.headers["Authorization"] = f"Bearer {token}"
        # Only the one within the prefix is looked for.
        assert http.get("/v1/contexts/acme%2F1").status_code == 503
        assert http.get("/v1/contexts/other%2F1").status_code == 404
        assert http.post("/v1/contexts/acme%2F1/frames").status_code == 403
        tokens.revoke(file, "ci")
        assert http.get("/v1/contexts/acme%2F1").status_code == 401


def test_the_command_begins_and_ends_in_a_process_that_has_imported_nothing_before():
    settings = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "GATEWAY_PORT": str(ports.choose(0)),
        "LOG_FORMAT": "json",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "frameledger_services", "run", "gateway"],
        env=os.environ | {f"FRAMELEDGER_{name}": value for name, value in settings.items()},
        stderr=subprocess.PIPE,
    ) as process:
        try:
            events = (json.loads(line)["event"] for line in process.stderr)
            assert next(events) == "gateway.started"
            process.terminate()
            assert list(events) == ["gateway.draining", "gateway.stopped"]
            assert process.wait(ON_SERVERS) == 0
        finally:
            process.kill()


def test_a_gateway_for_other_machines_does_not_begin_without_tokens(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FRAMELEDGER_")}
    ran = subprocess.run(
        [sys.executable, "-m", "frameledger_services", "run", "gateway"],
        env=environment
        | {
            "FRAMELEDGER_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
            "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "FRAMELEDGER_DATA_DIR": str(tmp_path),
            "FRAMELEDGER_GATEWAY_HOST": "0.0.0.0",
        },
        capture_output=True,
        text=True,
        timeout=PROGRAM,
        check=False,
    )
    assert ran.returncode == 1
    assert "there are no tokens" in ran.stderr
    assert "`frameledger token new --name NAME`" in ran.stderr
