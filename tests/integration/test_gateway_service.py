"""The gateway as a process: it starts, answers, drains when it is stopped, and survives outages of broker and
database."""

import asyncio
import json
import signal
import socket
import threading

import httpx
import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.integration.test_embedded_up import servers_of_this_run, working
from tests.support.gateway import CLIENT, running, with_app
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause

from frameledger_services.embedded import ports
from frameledger_services.gateway import service
from frameledger_services.settings import Settings, SettingsError

NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"
ASK = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Hello?"}]}


def port() -> str:
    return str(ports.choose(0))


def test_it_begins_answers_and_stops_in_order(pipeline):
    with (
        projector(pipeline.settings) as projecting,
        running(pipeline.settings, **gateway_at(port())) as gateway,
    ):
        pipeline.until_idle(projecting)
        assert httpx.get(f"{gateway.address}/livez", timeout=ON_SERVERS).json() == {"live": True}
        ready = httpx.get(f"{gateway.address}/readyz", timeout=ON_SERVERS)
        assert ready.json() == {
            "ready": True,
            "checks": {"database": "ok", "log": "ok", "draining": "no"},
        }
        said = httpx.post(f"{gateway.address}/v1/contexts/a%2Fb/frames", json=ASK, timeout=ON_SERVERS)
        assert said.status_code == 201, said.text
        gateway.process.send(signal.SIGTERM)
        assert [one["event"] for one in gateway.events()] == ["gateway.draining", "gateway.stopped"]
        assert gateway.process.ended() == 0
        assert projecting.stop() == 0


def test_a_request_that_has_begun_is_finished_while_it_drains(pipeline):
    answers: list[httpx.Response] = []
    # No projector: the append waits for all of its time.
    with running(pipeline.settings, **gateway_at(port())) as gateway:
        path = f"{gateway.address}/v1/contexts/slow/frames"
        sending = threading.Thread(
            target=lambda: answers.append(
                httpx.post(path, json=ASK, headers={"Prefer": "wait=2"}, timeout=ON_SERVERS)
            )
        )
        sending.start()
        while not sum(pipeline.ends().values()):
            pause()
        gateway.process.send(signal.SIGTERM)
        sending.join(ON_SERVERS)
        assert gateway.process.ended() == 0
    assert [one.status_code for one in answers] == [202]


def gateway_at(number: str) -> dict[str, str]:
    return {"gateway_port": number}


def test_without_a_database_it_is_alive_and_not_ready_and_says_why(pipeline):
    async def ask(http: httpx.AsyncClient) -> None:
        assert (await http.get("/livez")).status_code == 200
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["checks"] == {"database": "It does not answer.", "log": "ok", "draining": "no"}
        context = await http.get("/v1/contexts/a")
        assert context.json()["type"] == "/problems/database-away"
        assert context.headers["retry-after"] == "1"
        # An append only needs the log.
        said = await http.post("/v1/contexts/a/frames", json=ASK, headers={"Prefer": "wait=1"})
        assert said.status_code == 202, said.text

    with_app(pipeline.settings.model_copy(update={"database_url": SecretStr(NOBODY)}), ask)


def test_without_a_broker_nothing_is_appended_and_the_ids_say_so(pipeline):
    async def ask(http: httpx.AsyncClient) -> None:
        frames = [{**ASK, "id": "one"}, {**ASK, "id": "two"}]
        said = await http.post("/v1/contexts/a/frames", json=frames)
        assert said.status_code == 503
        assert said.json()["type"] == "/problems/log-away"
        assert (said.json()["published"], said.json()["unpublished"]) == ([], ["one", "two"])
        assert (await http.get("/v1/contexts/a")).status_code == 404
        ready = await http.get("/readyz")
        assert ready.json()["checks"] == {"database": "ok", "log": "It does not answer.", "draining": "no"}

    with_app(pipeline.settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"}), ask)


def test_it_does_not_begin_where_it_cannot_work(pipeline):
    async def serve(settings: Settings) -> None:
        async with asyncio.timeout(ON_SERVERS):
            await service.serve(settings, asyncio.Event())

    with pytest.raises(SettingsError, match="No database is configured"):
        asyncio.run(serve(Settings(kafka_bootstrap_servers="127.0.0.1:1")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = pipeline.settings.model_copy(update={"gateway_port": taken.getsockname()[1]})
        with pytest.raises(service.AddressError, match=r"http://127\.0\.0\.1:\d+: .*in use.*_GATEWAY_PORT"):
            asyncio.run(serve(busy))


@pytest.fixture
def folder(kafka, database, tmp_path):
    settings = servers_of_this_run(kafka, database)
    with working(tmp_path, **settings) as made:
        yield made


@pytest.mark.long
def test_up_runs_a_gateway_and_says_where(folder):
    up = folder.run("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    address = folder.processes()["gateway"]["address"]
    assert address in up.stdout
    path = f"{address}/v1/contexts/over%2Fhttp"
    said = httpx.post(f"{path}/frames", content=json.dumps(ASK), timeout=CLIENT["timeout"])
    assert said.status_code == 201, said.text
    assert httpx.get(path, timeout=CLIENT["timeout"]).json()["messages"] == ASK["messages"]
