"""Inference out of band about a stored conversation: by the client, in a script, on the command line."""

import psycopg
import pytest
from pydantic import SecretStr
from tests.integration.test_client import fill, with_client
from typer.testing import CliRunner

from frameledger.context import LLMContext
from frameledger_services.cli import application
from frameledger_services.client import NoSuchContextError, SyncClient
from frameledger_services.settings import Settings


@pytest.fixture
def stored(database):
    """A database with the conversation ctx-1; the test must not change the number of frames."""

    def frames():
        with psycopg.connect(database) as connection:
            return connection.execute("SELECT count(*) FROM frames").fetchone()

    fill(database)
    before = frames()
    yield database
    assert frames() == before


def test_the_client_asks_about_a_conversation_as_it_is_and_as_it_was(stored):
    settings = Settings(database_url=SecretStr(stored), inference_provider="scripted")

    async def work(client):
        assert await client.run_inference("ctx-1") == "You said: Anew"
        assert await client.run_inference("ctx-1", max_tokens=2, version=2) == "You said:"
        given = LLMContext([{"role": "user", "content": "Not stored."}])
        assert await client.run_inference(given) == "You said: Not stored."
        with pytest.raises(NoSuchContextError):
            await client.run_inference("ctx-2")

    with_client(settings, work)


def test_a_script_asks_without_await(stored):
    settings = Settings(database_url=SecretStr(stored), inference_provider="scripted")
    with SyncClient(settings) as client:
        assert client.run_inference("ctx-1") == "You said: Anew"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "You said: Anew\n"),
        (["--at", "2"], "You said: One?\n"),
        (["And now?", "--at", "2"], "You said: And now?\n"),
    ],
)
def test_the_command_line_asks_about_a_conversation(stored, monkeypatch, words, said):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", stored)
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_PROVIDER", "scripted")
    run = CliRunner().invoke(application(), ["infer", *words, "--context", "ctx-1"])
    assert (run.exit_code, run.stdout) == (0, said), run.output


def test_a_conversation_that_is_not_there_is_told(stored, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", stored)
    run = CliRunner().invoke(application(), ["infer", "--context", "ctx-2", "--provider", "scripted"])
    assert run.exit_code == 1
    assert "ctx-2" in run.stderr
