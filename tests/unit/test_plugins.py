"""Providers by name: built-in ones, those of other packages, and the error if there is none."""

import asyncio
import json
import re
import sys
import tomllib
from typing import Any

import pytest
from tests.support.pages import ROOT
from typer.testing import CliRunner

from frameledger.context import LLMContext
from frameledger_services.cli import application
from frameledger_services.providers import LLMSettings, UnmappableError, plugins
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.providers.scripted import ScriptedLLMService
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_masking import masked
from frameledger_services.settings_sources import load
from frameledger_services.url_masking import HIDDEN

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
    "frameledger.providers"
]

THIRD = """
from frameledger_services.providers.scripted import ScriptedLLMService

class Third(ScriptedLLMService):
    provider = "third"

    def __init__(self, *, api_key="", region="", **options):
        super().__init__(**options)
        self.api_key, self.region = api_key, region

    def secrets(self):
        return (self.api_key,) if self.api_key else ()
"""
HELLO = LLMContext([{"role": "user", "content": "Hello."}])


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Another distribution, with a provider that works and one that does not."""
    about = tmp_path / "third_party-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n", encoding="utf-8"
    )
    points = "third = third_party_provider:Third\nbroken = third_party_nowhere:Third\nodd = json:dumps\n"
    (about / "entry_points.txt").write_text(f"[frameledger.providers]\n{points}", encoding="utf-8")
    (tmp_path / "third_party_provider.py").write_text(THIRD, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("third_party_provider", None)


def test_our_own_providers_are_always_found():
    assert {"openai", "anthropic", "scripted"} <= set(plugins.known())
    assert isinstance(plugins.create("scripted", Settings()), ScriptedLLMService)


def test_another_package_s_provider_is_found_by_its_name(installed):
    service = plugins.create("third", Settings(inference_temperature=0.5), over=LLMSettings(model="m"))
    assert service.provider == "third"
    assert (service.settings.temperature, service.settings.model) == (0.5, "m")
    assert asyncio.run(service.run_inference(HELLO)) == "You said: Hello."


def test_a_plugin_has_settings_of_its_own_and_says_which_are_secret(installed):
    variable = "FRAMELEDGER_PROVIDER_OPTIONS"
    value = '{"third": {"api_key": "sk-3", "region": "eu"}, "openai": {"api_key": "sk-o", "base_url": "http://o.example"}}'
    settings = load({variable: value}, look_for_running=False).settings
    service: Any = plugins.create("third", settings)
    assert (service.region, service.secrets()) == ("eu", ("sk-3",))
    service = plugins.create("third", settings, region="us")
    assert service.region == "us"
    assert plugins.create("openai", settings).secrets() == ("sk-o",)
    plugins.require_key("openai", settings)
    assert plugins.create("scripted", settings).secrets() == ()
    assert masked("provider_options", settings.provider_options) == HIDDEN


@pytest.mark.parametrize("value", ["[]", '{"third": 1}', "{"])
def test_options_that_are_no_object_of_objects_are_refused_without_being_repeated(value):
    with pytest.raises(
        SettingsError, match=r"FRAMELEDGER_PROVIDER_OPTIONS: .*it is not (a )?JSON"
    ) as refused:
        load({"FRAMELEDGER_PROVIDER_OPTIONS": value}, look_for_running=False)
    assert value not in str(refused.value)


def test_an_option_that_a_provider_does_not_take_is_named(installed):
    settings = load(
        {"FRAMELEDGER_PROVIDER_OPTIONS": '{"third": {"regoin": "eu"}}'}, look_for_running=False
    ).settings
    with pytest.raises(
        SettingsError, match=r"PROVIDER_OPTIONS is not valid for the provider 'third': .*regoin"
    ):
        plugins.create("third", settings)


@pytest.mark.regression("worker 164")
@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("api_key", 1234567, "valid string"),
        ("turn_completion", {"sign": "~"}, "valid string"),
        ("developer_role", "sistem", "'developer', 'system' or 'user'"),
        ("completion_timeout_secs", "soon", "valid number"),
        ("settings", {"temperature": "hot"}, "valid number"),
    ],
)
def test_an_option_of_a_wrong_type_is_named_without_its_value(option, value, problem):
    options = json.dumps({"openai": {option: value}})
    settings = load({"FRAMELEDGER_PROVIDER_OPTIONS": options}, look_for_running=False).settings
    with pytest.raises(
        SettingsError, match=f"PROVIDER_OPTIONS .* 'openai': {option}: .*{problem}"
    ) as refused:
        plugins.create("openai", settings)
    assert str(value) not in str(refused.value)


def test_the_options_of_a_provider_may_have_its_request_settings():
    options = '{"scripted": {"settings": {"temperature": 0.25, "model": "own"}}}'
    environment = {"FRAMELEDGER_PROVIDER_OPTIONS": options, "FRAMELEDGER_INFERENCE_TOP_P": "0.5"}
    settings = load(environment, look_for_running=False).settings
    made = plugins.create("scripted", settings, over=LLMSettings(model="asked")).settings
    assert (made.temperature, made.top_p, made.model) == (0.25, 0.5, "asked")


def test_every_command_with_a_provider_is_open_to_plugins(installed):
    asked = CliRunner().invoke(application(), ["infer", "--provider", "third", "--model", "m", "Hello."])
    assert asked.stdout == "You said: Hello.\n"
    for words in (["demo"], ["run", "inference"], ["infer", "Hello."]):
        refused = CliRunner().invoke(application(), [*words, "--provider", "fourth"])
        assert refused.exit_code == 1
        assert f"Installed are: {', '.join(plugins.known())}." in refused.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fourth", re.escape(f"Installed are: {', '.join(sorted([*DECLARED, 'broken', 'odd', 'third']))}")),
        ("broken", "cannot be loaded"),
        ("odd", "is not a subclass of LLMService"),
    ],
)
def test_what_is_no_provider_is_refused_with_the_reason(installed, name, words):
    with pytest.raises(plugins.NoSuchProviderError, match=words):
        plugins.create(name, Settings())


@pytest.mark.regression("worker 181")
def test_of_the_extras_with_a_missing_module_the_provider_s_own_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("openai", "anthropic"):
        monkeypatch.delitem(sys.modules, f"frameledger_services.providers.{name}", raising=False)
        with pytest.raises(plugins.NoSuchProviderError) as refused:
            plugins.create(name, Settings())
        assert str(refused.value) == (
            f"The provider '{name}' cannot be loaded: httpx is not installed: pip install 'frameledger[{name}]'."
        )


def test_the_settings_of_the_process_reach_the_service():
    settings = load(
        {
            "FRAMELEDGER_INFERENCE_MODEL": "m",
            "FRAMELEDGER_INFERENCE_SYSTEM_INSTRUCTION": "Be brief.",
            "FRAMELEDGER_INFERENCE_MAX_TOKENS": "5",
            "FRAMELEDGER_INFERENCE_EXTRA": '{"user": "u"}',
            "FRAMELEDGER_INFERENCE_RUN_IN_PARALLEL": "false",
            "FRAMELEDGER_INFERENCE_COMPLETION_TIMEOUT_SECS": "1.5",
        },
        look_for_running=False,
    ).settings
    service = plugins.create("scripted", settings)
    assert service.settings == LLMSettings(
        model="m", system_instruction="Be brief.", max_tokens=5, extra={"user": "u"}
    )
    assert (service.run_in_parallel, service.group_parallel_tools) == (False, True)
    assert service.completion_timeout_secs == 1.5


def test_a_setting_that_the_provider_cannot_map_is_refused_before_anything_is_asked():
    with pytest.raises(UnmappableError, match="top_k"):
        plugins.create("openai", Settings(inference_top_k=3, openai_api_key="hush"))


def test_a_key_that_every_program_reads_counts_and_ours_outranks_it():
    known = {"OPENAI_API_KEY": "theirs", "ANTHROPIC_BASE_URL": "http://a.example"}
    loaded = load(known, look_for_running=False)
    assert loaded.settings.openai_api_key.get_secret_value() == "theirs"
    assert loaded.settings.anthropic_base_url == "http://a.example"
    assert loaded.sources["openai_api_key"] == "environment, OPENAI_API_KEY"
    loaded = load({**known, "FRAMELEDGER_OPENAI_API_KEY": "ours"}, look_for_running=False)
    assert loaded.settings.openai_api_key.get_secret_value() == "ours"
    assert loaded.sources["openai_api_key"] == "environment"
    assert isinstance(plugins.create("openai", loaded.settings), OpenAILLMService)


def test_what_may_work_again_is_tried_again_out_of_band(tmp_path):
    script = tmp_path / "s.json"
    failing = '{"times": 1, "say": [{"fail": "overloaded"}]}, {"say": [{"text": "At last."}]}'
    script.write_text(f'{{"replies": [{failing}]}}', encoding="utf-8")

    async def ask(retries):
        asked = OutOfBand(
            Settings(inference_provider="scripted", inference_script=script, inference_retries=retries)
        )
        try:
            return await asked.run_inference(HELLO)
        finally:
            await asked.close()
            await asked.close()

    assert asyncio.run(ask(1)) == "At last."
    with pytest.raises(plugins.NoSuchProviderError, match="FRAMELEDGER_INFERENCE_PROVIDER"):
        asyncio.run(OutOfBand(Settings()).run_inference(HELLO))


def infer(*words, stdin="", **variables):
    names = ("INFERENCE_PROVIDER", "INFERENCE_SCRIPT", "INFERENCE_MODEL")
    unset = {f"FRAMELEDGER_{name}": None for name in names}
    return CliRunner().invoke(application(), ["infer", *words], input=stdin, env={**unset, **variables})


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["Hello."], "", "You said: Hello.\n"),
        ([], "Hello.\n", "You said: Hello.\n"),
        ([], '[{"role": "user", "content": "a b c"}]', "You said: a b c\n"),
        (["--max-tokens", "3"], '{"messages": [{"role": "user", "content": "a b c"}]}', "You said: a\n"),
        (["--json"], "Hello.", '{"provider": "scripted", "text": "You said: Hello."}\n'),
    ],
)
def test_the_command_asks_and_prints(words, stdin, said):
    run = infer(*words, "--provider", "scripted", stdin=stdin)
    assert (run.exit_code, run.stdout) == (0, said)


@pytest.mark.parametrize(
    ("words", "stdin", "code", "said"),
    [
        (["Hello."], "", 1, "FRAMELEDGER_INFERENCE_PROVIDER"),
        (["Hello.", "--provider", "nobody"], "", 1, "There is no provider 'nobody'"),
        (["--provider", "scripted"], '[{"role": "wizard"}]', 1, "'wizard'"),
        (["--provider", "scripted"], "", 2, "no message and no text"),
        (["--provider", "scripted"], "[7]", 2, "not a context"),
        (["Hello.", "--at", "3"], "", 2, "use it with --context"),
    ],
)
def test_the_command_says_what_is_wrong(words, stdin, code, said):
    run = infer(*words, stdin=stdin)
    assert run.exit_code == code
    assert said in run.stderr


@pytest.mark.regression("seed UserTurnCompletionLLMServiceMixin")
def test_a_setting_tells_the_model_how_to_tell_that_the_user_is_not_done():
    settings = Settings(inference_turn_completion="Answer … if I am not done.")
    request = plugins.create("scripted", settings).request(LLMContext([{"role": "user", "content": "So I"}]))
    assert "Answer … if I am not done." in request.content.decode()
