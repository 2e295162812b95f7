"""All settings: one frozen object, read once from the environment and passed down.

A setting `kafka_port` is the variable `FRAMELEDGER_KAFKA_PORT`. A secret can also lie in a file that the same
name with `_FILE` names. What the environment does not set is taken from the file `frameledger.env` of the data
directory, then from a running `frameledger up` of that directory, or has a default. An unknown variable with our
prefix is an error, because it is a typo.

Everything that libpq knows (`sslmode`, `sslrootcert`, a service file ...) is set in the database address or by
libpq's own variables, `PGSSLMODE` and so on.
"""

import difflib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from frameledger_services import data_directory

PREFIX = "FRAMELEDGER_"
FILE = "_FILE"
HIDDEN = "********"
SETTINGS_FILE = "frameledger.env"
RUNNING = "frameledger up"
"""The source of a setting that a running `up` gave."""
WELL_KNOWN = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
"""Variables without our prefix that every program of their kind reads. Our own of the same name outrank them."""

_DATA_DIR = f"{PREFIX}DATA_DIR"

Port = Annotated[int, Field(ge=1, le=65535)]
Secs = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Days = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def _json_object(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it is no JSON") from None


JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]
"""A variable that holds a JSON object."""


class Settings(BaseModel):
    """What can be set. A field's description is what `frameledger config` says about it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kafka_bootstrap_servers: str | None = Field(
        None, description="Brokers, host:port separated by commas. Not set: the embedded one."
    )
    kafka_security_protocol: SecurityProtocol = Field("PLAINTEXT", description="How brokers are spoken to.")
    kafka_ssl_ca_path: Path | None = Field(None, description="CA certificates, PEM. Not set: the system's.")
    kafka_ssl_certificate_path: Path | None = Field(None, description="Our certificate for brokers, PEM.")
    kafka_ssl_key_path: Path | None = Field(None, description="Our certificate's key, if not in its file.")
    kafka_ssl_key_password: SecretStr | None = Field(None, description="The key's password.")
    kafka_ssl_crl_path: Path | None = Field(None, description="Revoked certificates, PEM.")
    kafka_ssl_ciphers: str | None = Field(None, description="Ciphers, in OpenSSL's notation.")
    kafka_ssl_check_hostname: bool = Field(
        True, description="Whether a broker's name must be its certificate's."
    )
    kafka_sasl_mechanism: SaslMechanism = Field("PLAIN", description="How we say who we are, with SASL_...")
    kafka_sasl_username: str | None = Field(None, description="For PLAIN and SCRAM.")
    kafka_sasl_password: SecretStr | None = Field(None, description="For PLAIN and SCRAM.")
    kafka_sasl_kerberos_service_name: str = Field("kafka", description="For GSSAPI.")
    kafka_sasl_kerberos_domain_name: str | None = Field(
        None, description="For GSSAPI, if not the broker's host."
    )
    kafka_sasl_oauth_token_path: Path | None = Field(
        None, description="For OAUTHBEARER: a file with the token, read again for every connection."
    )
    database_url: SecretStr | None = Field(
        None, description="A libpq address, postgresql://... or key=value pairs. Not set: the embedded one."
    )
    database_password: SecretStr | None = Field(None, description="If it is not in the address.")

    data_dir: Path = Field(
        Path(data_directory.NAME),
        description="Where `frameledger up` keeps everything. Not set: .frameledger here, or in the nearest folder "
        "above that has one.",
    )
    kafka_port: Port | None = Field(None, description="The embedded broker's. Not set: 19092, or a free one.")
    postgres_port: Port | None = Field(
        None, description="The embedded database's. Not set: 15432, or a free one."
    )
    kafka_home: Path | None = Field(
        None, description="An installed Kafka to run instead of the packaged one."
    )
    java: Path | None = Field(None, description="The program `java` for the embedded broker.")
    cache_dir: Path | None = Field(
        None, description="Where the broker's jars are kept. Not set: the user's cache."
    )
    maven_repository: str | None = Field(
        None, description="Where the broker's jars come from, if not from Central."
    )

    topic_prefix: str = Field(
        "llm.", pattern=r"^[a-zA-Z0-9._-]{0,200}$", description="What the names of our topics begin with."
    )
    topic_partitions: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Partitions of a topic when it is made. Not set: 64, and 8 on the embedded broker.",
    )
    topic_replication: int | None = Field(
        None, ge=1, le=1_000, description="Copies of each partition. Not set: as the broker does by default."
    )
    topic_min_insync_replicas: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="Copies that must have a frame before it counts. Not set: the broker's.",
    )
    frames_retention_days: int | None = Field(
        None, ge=1, le=1_000_000, description="How long Kafka keeps frames. Not set: for ever."
    )

    work_lease_secs: float = Field(
        5.0, ge=0.1, le=3_600, description="Seconds after its last heartbeat that a worker is taken for dead."
    )
    work_heartbeat_secs: float = Field(
        0.4, ge=0.01, le=600, description="Seconds between two heartbeats. Several must fit into a lease."
    )
    work_slots: int = Field(
        100, ge=1, le=100_000, description="How much a worker does at once, if its service does not say."
    )
    work_drain_secs: float = Field(
        20.0, ge=0, le=86_400, description="Seconds that a worker which is to end waits for its work."
    )
    work_grace_secs: float = Field(
        5.0, ge=0, le=3_600, description="Seconds that work which is told to stop may take to do so."
    )

    projector_instance_id: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
        description="A name for a projector that outlives its process: the next one under it goes on at once where "
        "one was killed, and not after 10 s. No two that run may have the same: the later one says so and ends.",
    )

    function_call_timeout_secs: float = Field(
        600,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a call has, counted from its dispatch, if its function does not say.",
    )
    enable_async_tool_cancellation: bool = Field(
        False, description="Whether the model may cancel calls of every asynchronous function that is served."
    )

    inference_provider: str | None = Field(
        None, description="Who answers: openai, anthropic, scripted, or an installed plug-in."
    )
    inference_model: str | None = Field(
        None,
        min_length=1,
        description="The model, where a context names none. Not set: the provider's default.",
    )
    inference_system_instruction: str | None = Field(
        None, description="What every model is told first, beside a context's own system message."
    )
    inference_temperature: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Below a context's own, as the next ones."
    )
    inference_max_tokens: int | None = Field(None, ge=1, description="Tokens of an answer at most.")
    inference_max_completion_tokens: int | None = Field(
        None, ge=1, description="The same, with thoughts counted; for models that ask for it."
    )
    inference_top_p: float | None = Field(
        None, ge=0, le=1, description="Sample from the likeliest tokens only."
    )
    inference_top_k: int | None = Field(None, ge=0, description="Sample from so many tokens.")
    inference_frequency_penalty: float | None = Field(
        None, allow_inf_nan=False, description="Against words that were used often."
    )
    inference_presence_penalty: float | None = Field(
        None, allow_inf_nan=False, description="Against words that were used."
    )
    inference_seed: int | None = Field(None, description="For providers that can repeat an answer.")
    inference_extra: JsonObject | None = Field(
        None, description="A JSON object: fields of the provider's own request, set as they are."
    )
    inference_run_in_parallel: bool = Field(
        True, description="Whether the calls of one answer run at once, or one after another."
    )
    inference_group_parallel_tools: bool = Field(
        True, description="Whether the model goes on once all calls of an answer have settled, or after each."
    )
    inference_completion_timeout_secs: float = Field(
        120, gt=0, allow_inf_nan=False, description="For how long a provider may say nothing."
    )
    inference_turn_completion: str = Field(
        "",
        description="A part of every system instruction: how the model shall tell that the user is not done speaking.",
    )
    inference_retries: int = Field(
        4, ge=0, le=100, description="How often a request is sent again while nothing of its answer came."
    )
    inference_merge_ms: int = Field(
        50, ge=0, le=1_000, description="For how long pieces of an answer are gathered into one frame."
    )
    inference_service: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9._-]{1,100}$",
        description="The name of the inference service: its consumer group. Not set: inference-PROVIDER.",
    )
    inference_models: str | None = Field(
        None,
        description="Models, separated by commas, that it answers for where a context names one. Not set: its own, "
        "and all that no other service lists.",
    )
    inference_script: Path | None = Field(
        None,
        description="For the provider scripted: a file of what it says. Not set: it repeats what it heard.",
    )
    openai_api_key: SecretStr | None = Field(
        None, description="For the provider openai; OPENAI_API_KEY counts too."
    )
    openai_base_url: str | None = Field(
        None, description="Of an API that speaks as OpenAI's does; OPENAI_BASE_URL counts too."
    )
    openai_developer_role: Literal["developer", "system", "user"] = Field(
        "developer",
        description="As whom an API that speaks as OpenAI's does hears developer messages: some know no such role.",
    )
    anthropic_api_key: SecretStr | None = Field(
        None, description="For the provider anthropic; ANTHROPIC_API_KEY counts too."
    )
    anthropic_base_url: str | None = Field(
        None, description="Of an API that speaks as Anthropic's does; ANTHROPIC_BASE_URL counts too."
    )

    timekeeper_every_secs: float = Field(
        1.0,
        gt=0,
        le=60,
        allow_inf_nan=False,
        description="How often the timekeeper looks for what is overdue.",
    )
    timekeeper_run_unclaimed_secs: Secs = Field(
        60, description="A run that no live worker has had for so long fails. 0: never."
    )
    timekeeper_run_silent_secs: Secs = Field(
        300, description="A run of which nothing was heard for so long fails. 0: never."
    )
    timekeeper_call_secs: Secs = Field(
        600,
        description="A call that names no deadline has so long from its dispatch. 0: no call has one.",
    )
    timekeeper_call_grace_secs: Secs = Field(
        10, description="A worker has so long beyond a call's deadline to keep it itself."
    )
    timekeeper_call_unserved_secs: Secs = Field(
        30,
        description="A call is answered as not available when nobody served it for so long. 0: never. A name that is "
        "no tool of its context is answered at once by any function service that lives.",
    )
    timekeeper_call_unstarted_secs: Secs = Field(
        120,
        description="A call is answered as not started when somebody serves it and nobody started it. 0: never.",
    )
    timekeeper_interrupted_call_secs: Secs = Field(
        10, description="An interrupted call is ended when its worker has been gone for so long. 0: never."
    )
    timekeeper_lost_call_secs: Secs = Field(
        10,
        description="A call that had begun and must not be run again is ambiguous when its worker has been gone for so "
        "long and nobody takes it over. 0: at its deadline.",
    )
    timekeeper_waiting_calls: bool = Field(
        True, description="Whether calls that wait for a person are ended at their own deadlines."
    )
    timekeeper_user_silent_secs: Secs = Field(
        60, description="A user who speaks and was not heard for so long has stopped. 0: never."
    )
    timekeeper_final_words_secs: Secs = Field(
        5, description="A user's turn that was stopped waits so long for final words. 0: for ever."
    )
    timekeeper_bot_silent_secs: Secs = Field(
        120, description="A bot that speaks and was not heard for so long has stopped. 0: never."
    )
    timekeeper_keep_claims_days: Days = Field(30, description="How long claims are kept. 0: for ever.")
    timekeeper_keep_workers_days: Days = Field(
        365,
        description="How long workers that are gone are kept; a request is rendered again from them. 0: for ever.",
    )


class SettingsError(Exception):
    """The environment does not say what we need to know. `problems` are sentences, one for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, and where each came from."""

    settings: Settings
    sources: Mapping[str, str]
    """By field: `environment`, `file PATH`, `frameledger up` or `default`."""

    file: Path
    """The settings file of the data directory, whether it is there or not."""


def load(environment: Mapping[str, str], *, look_for_running: bool = True) -> Loaded:
    """Read everything once. Raises `SettingsError` with all that is wrong, not only the first of it.

    A variable that is set to nothing counts as not set. `look_for_running`: whether the addresses that nobody
    set are taken from a running `frameledger up` of the data directory. That one is looked for in the working directory
    and above it, if it is not set.
    """
    given = {name: value for name, value in environment.items() if value and _is_ours(name)}
    above = None if _DATA_DIR in given else _data_directory_above()
    directory = above or Path(given.get(_DATA_DIR, Settings.model_fields["data_dir"].default))
    file = directory / SETTINGS_FILE
    written, problems = read_file(file, of_anybody=_DATA_DIR in given)
    # Who sets a secret in the environment means that, in whichever of its two forms the file has it.
    kept = {name: value for name, value in written.items() if not {name, _other_form(name)} & given.keys()}
    place = dict.fromkeys(kept, f"file {file}") | dict.fromkeys(given, "environment")
    values, sources, wrong = _settings_of(kept | given, place)
    problems += wrong
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            problems + [_sentence(part, sources) for part in error.errors(include_url=False)]
        ) from None
    problems += _contradictions(settings)
    if problems:
        raise SettingsError(problems)
    if above is not None:
        settings = settings.model_copy(update={"data_dir": above})
        sources["data_dir"] = f"found in {above.parent}"
    if look_for_running:
        found = {
            name: value
            for name, value in read_running(settings.data_dir).items()
            if getattr(settings, name, "") is None
        }
        settings = Settings.model_validate({**settings.model_dump(), **found})
        sources.update(dict.fromkeys(found, RUNNING))
    return Loaded(settings, sources, file)


def read_file(file: Path, *, of_anybody: bool = True) -> tuple[dict[str, str], list[str]]:
    """The variables of a settings file, as a shell would read it, and what is wrong with it; none if it is not there.

    A line is NAME=value, with quotes where the value has spaces. Beside ours it may set those of `WELL_KNOWN`. Unless
    `of_anybody`, one that another user wrote is wrong: it would say where our conversations go.
    """
    try:
        if not of_anybody and file.stat().st_uid not in (os.getuid(), 0):
            return {}, [f"{file} belongs to another user; if it is meant, set {_DATA_DIR}={file.parent}."]
        lines = file.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"{file} cannot be read: {error}."]
    variables: dict[str, str] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        at = f"{file}, line {number}"
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = ["", ""]
        if words[:1] == ["export"]:
            del words[0]
        if not words:
            continue
        name, equals, value = words[0].partition("=")
        if len(words) > 1 or not equals:
            # Without the line itself: there may be a secret in it.
            problems.append(
                f"{at}: it is no NAME=value; a value with spaces or quotes stands in 'single quotes'."
            )
        elif name == _DATA_DIR:
            problems.append(f"{at}: {_DATA_DIR} says where this file is found; set it in the environment.")
        elif not _is_ours(name):
            problems.append(f"{at}: {name} is no setting.{_guess(PREFIX + name)}")
        elif value:
            variables[name] = value
    return variables, problems


def _settings_of(
    variables: Mapping[str, str], place: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The values by field, the source of every field, and what is wrong. `place` is where each variable was set."""
    problems: list[str] = []
    values: dict[str, str] = {}
    sources = dict.fromkeys(Settings.model_fields, "default")
    for variable in WELL_KNOWN:
        if variable in variables:
            name = variable.lower()
            values[name], sources[name] = variables[variable], f"{place[variable]}, {variable}"
    for variable in sorted(name for name in variables if name.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX).lower()
        if name in Settings.model_fields:
            values[name], sources[name] = variables[variable], place[variable]
        elif (secret := name.removesuffix(FILE.lower())) in SECRETS and name.endswith(FILE.lower()):
            if PREFIX + secret.upper() in variables:
                problems.append(
                    f"{PREFIX}{secret.upper()} and {variable} are both set; one of them is too many."
                )
                continue
            try:
                values[secret] = Path(variables[variable]).read_text(encoding="utf-8").rstrip("\r\n")
                sources[secret] = f"file {variables[variable]}"
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable} cannot be read: {error}.")
        else:
            where = "" if place[variable] == "environment" else f" ({place[variable]})"
            problems.append(f"{variable} is no setting{where}.{_guess(variable)}")
    return values, sources, problems


def _data_directory_above() -> Path | None:
    """The data directory that is meant where none is set, if it is not the one of the working directory."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    found = data_directory.nearest(here)
    return None if found is None or found.parent == here else found


def running_file(data_dir: Path) -> Path:
    """Where `frameledger up` writes the addresses of its servers while it runs: a JSON object of settings."""
    return data_dir / "run" / "settings.json"


def read_running(data_dir: Path) -> dict[str, str]:
    """The addresses that a running `up` wrote down; empty when none runs."""
    try:
        found: dict[str, str] = json.loads(running_file(data_dir).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def shown(name: str, value: Any) -> str | None:
    """A setting's value for people's eyes: secrets hidden, also the password inside an address."""
    if value is None:
        return None
    if name == "database_url":
        return without_password(value.get_secret_value())
    return HIDDEN if isinstance(value, SecretStr) else str(value)


def without_password(address: str) -> str:
    """A libpq address with stars in the place of its passwords."""
    try:
        parts: dict[str, Any] = conninfo_to_dict(address)
    except ProgrammingError:
        return HIDDEN
    if "://" in address and not any("password" in name for name in parts):
        return address
    return make_conninfo(
        "", **{name: HIDDEN if "password" in name else value for name, value in parts.items()}
    )


def _is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)


SECRETS = frozenset(name for name, field in Settings.model_fields.items() if _is_secret(field))
"""The settings that can lie in a file, and are hidden wherever settings are shown."""


def _is_ours(variable: str) -> bool:
    return variable.startswith(PREFIX) or variable in WELL_KNOWN


def _other_form(variable: str) -> str:
    """The name under which the same secret is set in its other form, itself or the file that it lies in."""
    return variable.removesuffix(FILE) if variable.endswith(FILE) else variable + FILE


def _guess(variable: str) -> str:
    known = [name.upper() for name in Settings.model_fields] + [name.upper() + FILE for name in SECRETS]
    close = difflib.get_close_matches(variable.removeprefix(PREFIX), known, n=1)
    return f" Did you mean {PREFIX}{close[0]}?" if close else " `frameledger config` lists those that are."


def _sentence(error: Any, sources: Mapping[str, str]) -> str:
    # The message only, never the value: it may be a secret.
    name = str(error["loc"][0])
    source = sources.get(name, "")
    where = f" ({source})" if source.startswith("file ") else ""
    return f"{PREFIX}{name.upper()}{where}: {error['msg']}."


def _contradictions(settings: Settings) -> list[str]:
    problems = []
    if settings.database_url is not None:
        try:
            conninfo_to_dict(settings.database_url.get_secret_value())
        except ProgrammingError:
            problems.append(f"{PREFIX}DATABASE_URL is no address that libpq can read.")
    if settings.work_heartbeat_secs > settings.work_lease_secs / 2:
        problems.append(
            f"{PREFIX}WORK_HEARTBEAT_SECS is more than half of {PREFIX}WORK_LEASE_SECS: one lost heartbeat would "
            "end the lease."
        )
    if settings.kafka_security_protocol.startswith("SASL"):
        if settings.kafka_sasl_mechanism == "OAUTHBEARER":
            needed = ["kafka_sasl_oauth_token_path"]
        elif settings.kafka_sasl_mechanism == "GSSAPI":
            needed = []
        else:
            needed = ["kafka_sasl_username", "kafka_sasl_password"]
        problems += [
            f"{PREFIX}{name.upper()} is needed for SASL with {settings.kafka_sasl_mechanism}."
            for name in needed
            if getattr(settings, name) is None
        ]
    if settings.database_password is not None and settings.database_url is None:
        problems.append(
            f"{PREFIX}DATABASE_PASSWORD is for a database of your own, and {PREFIX}DATABASE_URL names none."
        )
    if settings.kafka_security_protocol != "PLAINTEXT" and settings.kafka_bootstrap_servers is None:
        problems.append(
            f"{PREFIX}KAFKA_SECURITY_PROTOCOL is for brokers of your own, and "
            f"{PREFIX}KAFKA_BOOTSTRAP_SERVERS names none."
        )
    return problems
