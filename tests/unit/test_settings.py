"""Settings are read once with their sources. Unknown ones are errors, and secrets are never shown."""

import json
import os
import ssl
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.support.data_directories import running_in
from typer.testing import CliRunner

from frameledger_services import access
from frameledger_services.accepted_values import accepted_values
from frameledger_services.cli import application
from frameledger_services.embedded import leftovers
from frameledger_services.embedded.directory import claimed
from frameledger_services.embedded.record import Phase, Process, Record, write_record
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_masking import SECRETS, masked, without_password
from frameledger_services.settings_sources import SETTINGS_FILE, load, running_file

SASL = {
    "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": "b1:9093,b2:9093",
    "FRAMELEDGER_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "FRAMELEDGER_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "FRAMELEDGER_KAFKA_SASL_USERNAME": "me",
    "FRAMELEDGER_KAFKA_SASL_PASSWORD": "hush",
}


def test_what_nobody_set_is_a_default_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = load({}, look_for_running=False)
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}


def test_a_process_reads_its_settings_from_its_own_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAMELEDGER_KAFKA_PORT", "19999")
    assert Settings.from_env() == Settings(kafka_port=19999)
    monkeypatch.setenv("FRAMELEDGER_KAFKA_PROT", "19999")
    with pytest.raises(SettingsError, match="FRAMELEDGER_KAFKA_PORT"):
        Settings.from_env()


def test_what_the_environment_sets_counts_and_says_so():
    loaded = load({"FRAMELEDGER_KAFKA_PORT": "19999", "PATH": "of no interest"})
    assert loaded.settings.kafka_port == 19999
    assert loaded.sources["kafka_port"] == "environment"


def test_a_variable_set_to_nothing_is_not_set():
    assert load({"FRAMELEDGER_KAFKA_PORT": ""}).sources["kafka_port"] == "default"


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_can_lie_in_a_file(name, tmp_path):
    file = tmp_path / "secret"
    secret = '{"third": {"api_key": "hush"}}' if name == "provider_options" else "dbname=hush"
    file.write_text(f"{secret}\n", encoding="utf-8")
    others = {"FRAMELEDGER_DATABASE_URL": "dbname=x"} if name == "database_password" else {}
    loaded = load({f"FRAMELEDGER_{name.upper()}_FILE": str(file), **others})
    assert getattr(loaded.settings, name).get_secret_value() == secret
    assert loaded.sources[name] == f"file {file}"


def test_a_secret_and_its_file_at_once_are_one_too_many(tmp_path):
    (tmp_path / "url").write_text("dbname=x", encoding="utf-8")
    both = {
        "FRAMELEDGER_DATABASE_URL": "dbname=y",
        "FRAMELEDGER_DATABASE_URL_FILE": str(tmp_path / "url"),
    }
    assert problems(both) == [
        "FRAMELEDGER_DATABASE_URL and FRAMELEDGER_DATABASE_URL_FILE are both set; unset one of them."
    ]


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {"FRAMELEDGER_KAFKA_BOOTSTRAP_SERVER": "b:1"},
            "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVER is not a setting. Did you mean "
            "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS?",
        ),
        ({"FRAMELEDGER_X": "1"}, "FRAMELEDGER_X is not a setting. `frameledger config` lists all settings."),
        ({"FRAMELEDGER_KAFKA_PORT_FILE": "p"}, "FRAMELEDGER_KAFKA_PORT_FILE is not a setting."),
        ({"FRAMELEDGER_DATABASE_URL_FILE": "no/such"}, "FRAMELEDGER_DATABASE_URL_FILE cannot be read: "),
        (
            {"FRAMELEDGER_KAFKA_SECURITY_PROTOCOL": "TLS"},
            "FRAMELEDGER_KAFKA_SECURITY_PROTOCOL takes PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        ),
        (
            {"FRAMELEDGER_DATABASE_URL": "no address"},
            "FRAMELEDGER_DATABASE_URL is not a libpq connection string",
        ),
        (
            {"FRAMELEDGER_DATABASE_PASSWORD": "x"},
            "FRAMELEDGER_DATABASE_PASSWORD is set without FRAMELEDGER_DATABASE_URL",
        ),
        (
            {"FRAMELEDGER_KAFKA_SECURITY_PROTOCOL": "SSL"},
            "FRAMELEDGER_KAFKA_SECURITY_PROTOCOL is set without",
        ),
        (
            {key: value for key, value in SASL.items() if "PASSWORD" not in key},
            "FRAMELEDGER_KAFKA_SASL_PASSWORD is required for SASL with SCRAM-SHA-512.",
        ),
        (
            SASL | {"FRAMELEDGER_KAFKA_SASL_MECHANISM": "OAUTHBEARER"},
            "FRAMELEDGER_KAFKA_SASL_OAUTH_TOKEN_PATH is required for SASL with OAUTHBEARER.",
        ),
    ],
)
def test_a_wrong_environment_is_an_error_that_says_what_is_wrong(environment, sentence):
    (problem,) = problems(environment)
    assert problem.startswith(sentence)


@pytest.mark.regression("journey 40")
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "URL",
            "gateway.example:8080",
            "it is not the address of a gateway, such as https://frameledger.example.",
        ),
        ("TOPIC_PREFIX", "our topics", "only letters without accents, digits and . _ - are allowed."),
        ("GATEWAY_CORS_ORIGINS", "*", "'*' is not an origin such as https://app.example."),
        pytest.param(
            "INFERENCE_SERVICE",
            "projector",
            "projector is the name of the projector's own consumer group.",
            marks=pytest.mark.regression("worker 102"),
        ),
    ],
)
def test_what_is_wrong_with_a_value_is_said_in_words(name, value, sentence):
    assert problems({f"FRAMELEDGER_{name}": value}) == [f"FRAMELEDGER_{name}: {sentence}"]


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("KAFKA_PORT", "many", "a whole number from 1 to 65535"),
        ("KAFKA_PORT", "70000", "a whole number from 1 to 65535"),
        ("WORK_LEASE_SECS", "0", "a number from 0.1 to 3600"),
        ("TIMEKEEPER_CALL_SECS", "inf", "a number from 0 to 1000000000"),
        ("TIMEKEEPER_EVERY_SECS", "61", "a number above 0, at most 60"),
        ("LIMIT_ROUNDS", "-1", "a whole number of at least 0"),
        ("GATEWAY_OPENAI", "perhaps", "true or false"),
        ("LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("INFERENCE_SERVICE", "x" * 101, "text of 1 to 100 characters"),
        ("INFERENCE_EXTRA", "[]", "a JSON object"),
    ],
)
def test_a_wrong_value_is_answered_with_what_the_setting_takes(name, value, accepted):
    assert problems({f"FRAMELEDGER_{name}": value}) == [f"FRAMELEDGER_{name} takes {accepted}."]


@pytest.mark.parametrize("model", [Settings, LLMSettings])
def test_what_a_setting_takes_can_be_said_of_every_setting(model):
    assert all(accepted_values(model, name) for name in model.model_fields)


def test_all_that_is_wrong_is_said_at_once():
    assert len(problems({"FRAMELEDGER_X": "1", "FRAMELEDGER_KAFKA_PORT": "-1", "FRAMELEDGER_JAV": "j"})) == 3


def test_an_error_does_not_show_the_value_that_was_refused():
    assert "hush" not in str(problems({"FRAMELEDGER_DATABASE_URL": "password = 'hush"}))


def test_a_running_up_fills_in_what_nobody_set_and_nothing_else(tmp_path):
    addresses = {"kafka_bootstrap_servers": "127.0.0.1:1", "database_url": "dbname=embedded"}
    environment = {"FRAMELEDGER_DATA_DIR": str(tmp_path), "FRAMELEDGER_DATABASE_URL": "dbname=mine"}
    with running_in(tmp_path, addresses):
        loaded = load(environment)
        assert load(environment, look_for_running=False).settings.kafka_bootstrap_servers is None
    assert loaded.settings.kafka_bootstrap_servers == "127.0.0.1:1"
    assert loaded.sources["kafka_bootstrap_servers"] == "frameledger up"
    assert loaded.settings.database_url.get_secret_value() == "dbname=mine"
    assert loaded.sources["database_url"] == "environment"


def beside(tmp_path, *lines):
    """Returns the environment of a data directory whose settings file has these lines, and the file."""
    file = tmp_path / SETTINGS_FILE
    file.write_text("\n".join(lines), encoding="utf-8")
    return {"FRAMELEDGER_DATA_DIR": str(tmp_path)}, file


@pytest.mark.regression("journey 22")
def test_the_file_in_the_data_directory_says_what_the_environment_does_not(tmp_path):
    environment, file = beside(
        tmp_path,
        "# What every terminal shall have.",
        "",
        "FRAMELEDGER_INFERENCE_PROVIDER=openai",
        "export FRAMELEDGER_INFERENCE_SYSTEM_INSTRUCTION='You are a lighthouse keeper.'  # of the chat",
        """FRAMELEDGER_INFERENCE_EXTRA='{"user": "me"}'""",
        "FRAMELEDGER_KAFKA_PORT=19000",
        "FRAMELEDGER_TOPIC_PREFIX=",
        "OPENAI_API_KEY=hush",
    )
    loaded = load(environment | {"FRAMELEDGER_KAFKA_PORT": "19001"})
    assert loaded.file == file
    assert loaded.settings.inference_provider == "openai"
    assert loaded.settings.inference_system_instruction == "You are a lighthouse keeper."
    assert loaded.settings.inference_extra == {"user": "me"}
    assert loaded.settings.openai_api_key.get_secret_value() == "hush"
    assert loaded.settings.kafka_port == 19001
    assert loaded.sources["inference_provider"] == f"file {file}"
    assert loaded.sources["openai_api_key"] == f"file {file}, OPENAI_API_KEY"
    assert (loaded.sources["kafka_port"], loaded.sources["topic_prefix"]) == ("environment", "default")


@pytest.mark.regression("journey 22")
def test_the_settings_file_comes_before_a_running_up(tmp_path):
    environment, file = beside(tmp_path, "FRAMELEDGER_DATABASE_URL=dbname=mine")
    with running_in(tmp_path, {"database_url": "dbname=embedded"}):
        assert load(environment).sources["database_url"] == f"file {file}"


@pytest.mark.regression("journey 22")
@pytest.mark.parametrize(
    "line", ["FRAMELEDGER_DATABASE_URL=dbname=a", "FRAMELEDGER_DATABASE_URL_FILE=no/such"]
)
def test_a_secret_of_the_environment_outranks_both_its_forms_in_the_file(line, tmp_path):
    environment, _ = beside(tmp_path, line)
    loaded = load(environment | {"FRAMELEDGER_DATABASE_URL": "dbname=mine"})
    assert loaded.settings.database_url.get_secret_value() == "dbname=mine"


@pytest.mark.regression("journey 22")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "FRAMELEDGER_KAFKA_PROT=1",
            "{at}FRAMELEDGER_KAFKA_PROT is not a setting (file {file}). Did you mean",
        ),
        ("KAFKA_PORT=1", "{file}, line 1: KAFKA_PORT is not a setting. Did you mean FRAMELEDGER_KAFKA_PORT?"),
        ("FRAMELEDGER_KAFKA_PORT=hush", "{at}FRAMELEDGER_KAFKA_PORT (file {file}) takes a whole number"),
        ("FRAMELEDGER_DATABASE_PASSWORD=hush hush", "{file}, line 1: it is not NAME=value"),
        ("FRAMELEDGER_DATABASE_PASSWORD='hush", "{file}, line 1: it is not NAME=value"),
        ("hush", "{file}, line 1: it is not NAME=value"),
        (
            "FRAMELEDGER_DATA_DIR=elsewhere",
            "{file}, line 1: FRAMELEDGER_DATA_DIR determines where this file is",
        ),
    ],
)
def test_what_is_wrong_in_the_settings_file_is_said_with_its_place_and_without_its_value(
    line, sentence, tmp_path
):
    environment, file = beside(tmp_path, line)
    (problem,) = problems(environment)
    assert problem.startswith(sentence.format(at="", file=file))
    assert "hush" not in problem


@pytest.mark.regression("journey 69")
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("abc#def", "abc#def"),
        ("https://models.example/v1#part", "https://models.example/v1#part"),
        ("'a#b'", "a#b"),
        ('"a # b"', "a # b"),
        (r"a\#b", "a#b"),
        (r"\#b", "#b"),
        ("''#b", "#b"),
        ("abc  # of the test", "abc"),
        ("abc\t#of the test", "abc"),
        ("abc# # of the test", "abc#"),
        (r'"a\$b\"\\\n"', r'a$b"\\n'),
        ("$a&b;c", "$a&b;c"),
        ("a\u2028b", "a\u2028b"),
    ],
)
@pytest.mark.parametrize("before", ["", "export ", "  "])
def test_a_value_in_the_settings_file_is_quoted_as_in_a_shell(before, written, value, tmp_path):
    environment, _ = beside(tmp_path, f"{before}FRAMELEDGER_INFERENCE_MODEL={written}")
    assert load(environment).settings.inference_model == value


@pytest.mark.regression("worker 107")
@pytest.mark.parametrize("name", ["OPENAI", "ANTHROPIC"])
def test_white_space_around_a_key_and_an_address_is_no_part_of_them(name):
    variables = {f"{name}_API_KEY": "sk-1\n", f"FRAMELEDGER_{name}_BASE_URL": " https://models.example/v1 "}
    settings = load(variables).settings
    assert getattr(settings, f"{name.lower()}_api_key").get_secret_value() == "sk-1"
    assert getattr(settings, f"{name.lower()}_base_url") == "https://models.example/v1"


@pytest.mark.regression("worker 107")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "hush\u200b"),
        ("OPENAI_API_KEY", "\u201chush\u201d"),
        ("ANTHROPIC_API_KEY", "hush\nhush"),
        ("ANTHROPIC_API_KEY", "\n"),
        ("OPENAI_BASE_URL", "localhost:8000/hush"),
        ("ANTHROPIC_BASE_URL", "htp://hush"),
    ],
)
def test_a_key_or_an_address_with_which_nothing_can_be_sent_is_refused(name, value):
    [problem] = problems({name: value})
    assert problem.startswith(f"FRAMELEDGER_{name}: it is not ")
    assert "hush" not in problem


@pytest.mark.regression("journey 72")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_settings_file_may_come_from_windows(mark, end, tmp_path):
    environment, file = beside(tmp_path)
    lines = (
        "FRAMELEDGER_KAFKA_PORT=19000",
        "OPENAI_API_KEY=hush # mine",
        "FRAMELEDGER_TOPIC_PREFIX='mine.'",
        "",
    )
    file.write_bytes((mark + end.join(lines)).encode())
    settings = load(environment).settings
    assert (settings.kafka_port, settings.topic_prefix) == (19000, "mine.")
    assert settings.openai_api_key.get_secret_value() == "hush"


@pytest.mark.regression("journey 72")
def test_a_secret_in_a_file_may_come_from_windows(tmp_path):
    (tmp_path / "secret").write_bytes("\ufeffhush\r\n".encode())
    settings = load(
        {"OPENAI_API_KEY": "", "FRAMELEDGER_OPENAI_API_KEY_FILE": str(tmp_path / "secret")}
    ).settings
    assert settings.openai_api_key.get_secret_value() == "hush"


@pytest.mark.regression("journey 72")
def test_a_file_in_another_encoding_is_an_error_that_names_the_line_and_not_its_text(tmp_path):
    environment, file = beside(tmp_path)
    file.write_bytes("FRAMELEDGER_KAFKA_PORT=1\nOPENAI_API_KEY=höre\n".encode("latin-1"))
    sentence = f"{file} cannot be read: line 2 is not UTF-8. Save the file as UTF-8."
    assert problems(environment) == [sentence]
    named = {"FRAMELEDGER_OPENAI_API_KEY_FILE": str(file)}
    assert problems(named) == [f"FRAMELEDGER_OPENAI_API_KEY_FILE: {sentence}"]


@pytest.mark.regression("journey 22")
def test_config_shows_where_a_setting_comes_from_and_what_it_is_for(tmp_path):
    environment, file = beside(tmp_path, "FRAMELEDGER_INFERENCE_PROVIDER=scripted")
    page = " ".join(CliRunner().invoke(application(), ["config"], env=environment).output.split())
    assert f"Settings file: {file}" in page
    assert "LLM provider: openai, anthropic, scripted" in page
    listed = json.loads(CliRunner().invoke(application(), ["config", "--json"], env=environment).output)
    assert listed["FRAMELEDGER_INFERENCE_PROVIDER"]["source"] == f"file {file}"


@pytest.mark.regression("journey 22")
def test_the_settings_file_is_found_with_the_data_directory_above_the_working_directory(
    tmp_path, monkeypatch
):
    directory = tmp_path / ".frameledger"
    running_file(directory).parent.mkdir(parents=True)
    _, file = beside(directory, "FRAMELEDGER_KAFKA_PORT=19000")
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    loaded = load({})
    assert (loaded.file, loaded.settings.kafka_port) == (file, 19000)


@pytest.mark.regression("journey 22")
def test_the_settings_file_of_another_user_counts_only_where_its_directory_was_named(tmp_path, monkeypatch):
    directory = tmp_path / ".frameledger"
    directory.mkdir()
    environment, _ = beside(directory, "FRAMELEDGER_KAFKA_PORT=19000")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "stat", lambda path, **_: os.stat_result((0, 0, 0, 0, 4711, 0, 0, 0, 0, 0)))
    assert load(environment).settings.kafka_port == 19000
    (problem,) = problems({})
    assert "belongs to another user" in problem


@pytest.fixture
def anothers(tmp_path, monkeypatch):
    """A data directory in the working folder, of another user, with the addresses of an `up`."""
    directory = tmp_path / ".frameledger"
    addresses = {"kafka_bootstrap_servers": "elsewhere.example:9092", "pager": "touch ran"}
    with running_in(directory, addresses):
        pass
    monkeypatch.chdir(tmp_path)
    theirs, stat = os.stat_result((0o40755, 0, 0, 0, 4711, 0, 0, 0, 0, 0)), Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda path, **how: theirs if path.name == ".frameledger" else stat(path, **how)
    )
    return directory


@pytest.mark.regression("fault 83")
def test_the_addresses_of_another_user_count_only_where_their_directory_was_named(anothers):
    (problem,) = problems({})
    assert problem == (
        ".frameledger belongs to another user; to use it anyway, set FRAMELEDGER_DATA_DIR=.frameledger."
    )
    named = {"FRAMELEDGER_DATA_DIR": str(anothers)}
    with running_in(anothers):
        assert load(named).settings.kafka_bootstrap_servers == "elsewhere.example:9092"


@pytest.mark.regression("fault 86")
def test_down_ends_no_process_that_the_record_of_another_user_names(anothers, monkeypatch):
    ended: list[Process] = []
    monkeypatch.setattr(leftovers, "find_living", lambda process: [process.name])
    monkeypatch.setattr(leftovers, "_stop", ended.append)
    write_record(
        anothers, Record(pid=1, started=0.0, phase=Phase.FAILED, processes=(Process(name="editor"),))
    )
    result = CliRunner().invoke(application(), ["down"])
    assert (result.exit_code, ended) == (1, [])
    assert "belongs to another user" in result.output
    assert CliRunner().invoke(application(), ["down", "--data-dir", str(anothers)]).exit_code == 0
    assert [process.name for process in ended] == ["editor"]


@pytest.mark.regression("journey 22")
def test_the_settings_file_is_that_of_the_data_directory_which_up_was_told(tmp_path):
    _, file = beside(tmp_path, "FRAMELEDGER_NO_SETTING=1")
    result = CliRunner().invoke(application(), ["up", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert f"FRAMELEDGER_NO_SETTING is not a setting (file {file})" in result.output


@pytest.mark.regression("journey 25")
@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_a_second_up_says_first_and_only_that_one_runs(options, tmp_path):
    with claimed(tmp_path, least_space=0):
        result = CliRunner().invoke(application(), ["up", "--data-dir", str(tmp_path), *options])
    assert result.exit_code == 1
    assert result.output.startswith(f"`frameledger up` is already running in {tmp_path}")
    assert "No inference service runs" not in result.output


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().kafka_port = 1  # type: ignore[misc]  # which is the point


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hush@db:5432/x?sslmode=verify-full",
        "host=db password=hush sslpassword=hush",
        "postgresql://db/x?sslpassword=hush",
        "nothing = 'hush",
    ],
)
def test_no_password_in_an_address_is_ever_shown(address):
    assert "hush" not in without_password(address)


@pytest.mark.regression("journey 107")
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:p@hush@db/x",
        "postgresql://me:hush/p@db/x",
        "postgres://me:hush%p@db/x?sslmode=require",
        "postgresql://me:pa/hush@db:5432/x",
    ],
)
def test_a_password_that_is_not_escaped_is_refused_without_a_part_of_it(address):
    (problem,) = problems({"FRAMELEDGER_DATABASE_URL": address})
    assert "escape @ as %40" in problem
    assert "hush" not in problem


@pytest.mark.regression("journey 107")
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:p%40ss%2Fx@one:5432,two/x",
        "postgresql:///x?host=/run/postgresql&user=me@example",
        "postgresql://me@db/x?application_name=a@b",
        "host=@abstract user=me@example password=p@ss/x",
        "postgresql://%40abstract/x",
    ],
)
def test_an_address_may_have_these_characters_where_they_belong(address):
    assert load({"FRAMELEDGER_DATABASE_URL": address}).settings.database_url is not None


@pytest.mark.regression("fault 81")
@pytest.mark.parametrize("name", ["scram_client_key", "scram_server_key", "oauth_client_secret"])
def test_no_other_secret_in_an_address_is_ever_shown_either(name):
    for address in (f"host=db user=me {name}=hush", f"postgresql://me@db/x?{name}=hush"):
        shown = without_password(address)
        assert "hush" not in shown
        assert "me" in shown or shown == "********"


@pytest.mark.regression("fault 81")
def test_config_shows_no_password_in_the_address_of_a_server(tmp_path):
    environment = {
        "FRAMELEDGER_DATA_DIR": str(tmp_path),
        "FRAMELEDGER_URL": "https://me:hu@sh@gateway.example/fl",
        "FRAMELEDGER_MAVEN_REPOSITORY": "https://hush@maven.example/all",
        "FRAMELEDGER_OPENAI_BASE_URL": "https://me:hush@models.example/v1",
        "ANTHROPIC_BASE_URL": "https://me:hush@models.example",
    }
    for options in ([], ["--json"]):
        page = CliRunner().invoke(application(), ["config", *options], env=environment).output
        assert "https://********@gateway.example/fl" in page
        assert "https://********@maven.example/all" in page
        assert "https://********@models.example/v1" in page
        assert "sh@" not in page


def test_an_address_without_a_password_is_shown_as_it_is():
    for address in ("postgresql://me@db/x?sslmode=require", "postgresql://me@db/x?password=&hostaddr="):
        assert without_password(address) == address


def test_secrets_are_shown_as_stars_and_the_rest_as_it_is():
    settings = load(SASL).settings
    assert masked("kafka_sasl_password", settings.kafka_sasl_password) == "********"
    assert masked("kafka_sasl_username", settings.kafka_sasl_username) == "me"
    assert masked("kafka_port", None) is None
    assert "hush" not in repr(settings)


def test_every_setting_says_what_it_is_for():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_security_setting_reaches_the_kafka_client():
    options = access.kafka_options(load(SASL).settings)
    context = options.pop("ssl_context")
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert options == {
        "bootstrap_servers": "b1:9093,b2:9093",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": "hush",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": None,
    }


def test_a_plain_broker_needs_nothing_but_its_address():
    settings = load({"FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": "b:1"}).settings
    assert access.kafka_options(settings) == {"bootstrap_servers": "b:1", "security_protocol": "PLAINTEXT"}


def test_a_certificate_that_cannot_be_read_is_an_error_of_the_settings(tmp_path):
    settings = load(SASL | {"FRAMELEDGER_KAFKA_SSL_CA_PATH": str(tmp_path / "none.pem")}).settings
    with pytest.raises(SettingsError, match="KAFKA_SSL"):
        access.kafka_options(settings)


def test_the_password_of_the_database_may_come_beside_its_address():
    settings = load(
        {
            "FRAMELEDGER_DATABASE_URL": "postgresql://me@db/x?sslmode=verify-full",
            "FRAMELEDGER_DATABASE_PASSWORD": "hush",
        }
    ).settings
    address = access.database_address(settings, application_name="test")
    assert set(address.split()) == {
        *("user=me", "dbname=x", "host=db", "sslmode=verify-full"),
        *("password=hush", "application_name=test"),
    }


@pytest.mark.parametrize("reach", [access.kafka_options, access.database_address])
def test_an_address_that_nobody_set_is_an_error_with_its_remedy(reach):
    with pytest.raises(SettingsError, match="frameledger up"):
        reach(Settings())


def problems(environment):
    with pytest.raises(SettingsError) as caught:
        load(environment, look_for_running=False)
    return caught.value.problems
