"""`frameledger up` with a provider: what is published is answered."""

import json

import pytest
from tests.bounds import ON_SERVERS
from tests.integration.test_embedded_up import Folder, assert_ready, servers_of_this_run, working


@pytest.fixture
def folder(kafka, database, tmp_path):
    settings = servers_of_this_run(kafka, database)
    with working(tmp_path, **settings, FRAMELEDGER_INFERENCE_PROVIDER="scripted") as made:
        yield made


@pytest.mark.long
def test_up_answers_with_the_provider_that_is_set(folder):
    up = folder.run("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "No inference service runs here" not in up.stdout
    processes = folder.processes()
    for name in ("projector", "timekeeper", "inference", "gateway"):
        assert processes[name]["state"] == "running"
        assert_ready(processes[name])

    said = folder.run("publish", "a", json.dumps(ASKING))
    assert said.returncode == 0, said.stderr
    with folder.database() as connection:
        connection.execute("LISTEN frameledger_projected")
        while not connection.execute("SELECT EXISTS (SELECT FROM runs WHERE status = 'ended')").fetchone()[0]:
            assert list(connection.notifies(timeout=ON_SERVERS, stop_after=1)), "nobody answers"
        [(text,)] = connection.execute("SELECT text FROM messages WHERE role = 'assistant'").fetchall()
    assert "Hello" in text


@pytest.mark.long
def test_up_without_a_provider_says_that_nobody_answers(tmp_path):
    shown = Folder(tmp_path, FRAMELEDGER_JAVA="no java").run("up")
    assert "No inference service runs here: FRAMELEDGER_INFERENCE_PROVIDER " in shown.stdout


ASKING = {
    "type": "LLMMessagesAppendFrame",
    "messages": [{"role": "user", "content": "Hello?"}],
    "run_llm": True,
}
