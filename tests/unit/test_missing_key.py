"""A provider without a key is reported before anything is started, by every command that uses it."""

import asyncio

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.cli.doctor import checks
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings

PROVIDERS = ("openai", "anthropic")
pytestmark = pytest.mark.regression("journey 18")


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run a command in a folder of its own, with no key in sight."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"FRAMELEDGER_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(application(), list(words))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "words", [("run", "inference"), ("up",), ("up", "--detach"), ("infer", "Hello?")], ids=" ".join
)
def test_a_command_that_would_have_it_answer_names_the_variable_and_starts_nothing(
    command, monkeypatch, tmp_path, words, provider
):
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_PROVIDER", provider)
    shown = command(*words)
    assert shown.exit_code == 1
    assert f"needs a key, and {provider.upper()}_API_KEY is not set" in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_provider_that_an_option_names_is_the_one_that_is_looked_at(command):
    assert "ANTHROPIC_API_KEY" in command("infer", "Hello?", "--provider", "anthropic").stderr
    assert "OPENAI_API_KEY" in command("run", "inference", "--provider", "openai").stderr


@pytest.mark.regression("journey 116")
@pytest.mark.parametrize("content", [None, "{"])
@pytest.mark.parametrize("words", [("run", "inference"), ("up",), ("up", "--detach")], ids=" ".join)
def test_a_script_that_cannot_be_played_is_told_before_anything_starts(
    command, monkeypatch, tmp_path, words, content
):
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_PROVIDER", "scripted")
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_SCRIPT", "script.json")
    if content is not None:
        (tmp_path / "script.json").write_text(content)
    shown = command(*words)
    assert shown.exit_code == 1
    assert "script.json" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert [one.name for one in tmp_path.iterdir()] == ([] if content is None else ["script.json"])
    found = model_finding(Settings(inference_provider="scripted", inference_script=tmp_path / "script.json"))
    assert (found.state, "script.json" in found.found) == ("fail", True)


def model_finding(settings):
    async def first():
        return await anext(checks.findings(settings))

    return asyncio.run(first())


def test_doctor_says_that_the_key_is_missing():
    found = model_finding(Settings(inference_provider="openai"))
    assert (found.check, found.state) == ("model", "fail")
    assert "OPENAI_API_KEY is not set" in found.found
    assert "Set OPENAI_API_KEY" in found.remedy
    assert model_finding(Settings(inference_provider="nobody")).state == "fail"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(inference_provider="openai", openai_api_key=SecretStr("sk")),
        Settings(inference_provider="openai", openai_base_url="http://127.0.0.1:8000/v1"),
        Settings(inference_provider="scripted"),
    ],
)
def test_a_key_a_server_of_ones_own_and_the_scripted_model_are_enough(settings):
    plugins.require_key(settings.inference_provider, settings)
    assert model_finding(settings).state == "ok"
