"""All settings: one frozen object, passed down. `settings_sources` reads it from the environment.

A setting `kafka_port` is the variable `FRAMELEDGER_KAFKA_PORT`. Every libpq parameter (`sslmode`, `sslrootcert`, a
service file ...) is set in the database address or by libpq's own variables, `PGSSLMODE` and so on.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

from frameledger.errors import ConfigurationError
from frameledger_services import data_directory

PREFIX = "FRAMELEDGER_"
HIDDEN = "********"

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


def _options_by_provider(secret: SecretStr) -> SecretStr:
    options = _json_object(secret.get_secret_value())
    if not isinstance(options, dict) or not all(isinstance(of_one, dict) for of_one in options.values()):
        raise ValueError("it is no JSON object of objects")
    return secret


JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]
"""A variable that holds a JSON object."""


class Settings(BaseModel):
    """What can be set. A field's description is what `frameledger config` says about it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @staticmethod
    def from_env(*, look_for_running: bool = True) -> "Settings":
        """Returns the settings of this process: of its environment, of `frameledger.env` in the data directory, and the
        addresses of a `frameledger up` that runs in this folder or above it.

        Raises `SettingsError` with all that is wrong. `look_for_running`: whether a running `up` counts.
        """
        from frameledger_services import settings_sources

        return settings_sources.load(look_for_running=look_for_running).settings

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe events that the services log."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="Format of the services' logs. `auto`: console on a terminal, JSON elsewhere."
    )
    kafka_bootstrap_servers: str | None = Field(
        None,
        description="Kafka `bootstrap.servers`: host:port, separated by commas. Not set: the embedded broker.",
    )
    kafka_security_protocol: SecurityProtocol = Field("PLAINTEXT", description="Kafka `security.protocol`.")
    kafka_ssl_ca_path: Path | None = Field(
        None, description="CA certificates that sign the brokers', PEM. Not set: the system's."
    )
    kafka_ssl_certificate_path: Path | None = Field(None, description="Client certificate (mutual TLS), PEM.")
    kafka_ssl_key_path: Path | None = Field(
        None, description="Private key of the client certificate, PEM, if it is not in that file."
    )
    kafka_ssl_key_password: SecretStr | None = Field(None, description="Password of the private key.")
    kafka_ssl_crl_path: Path | None = Field(None, description="Certificate revocation list (CRL), PEM.")
    kafka_ssl_ciphers: str | None = Field(None, description="Cipher list in OpenSSL's notation.")
    kafka_ssl_check_hostname: bool = Field(
        True, description="Verify the broker's host name against its certificate."
    )
    kafka_sasl_mechanism: SaslMechanism = Field(
        "PLAIN", description="Kafka `sasl.mechanism`, for SASL_PLAINTEXT and SASL_SSL."
    )
    kafka_sasl_username: str | None = Field(None, description="SASL user name, for PLAIN and SCRAM.")
    kafka_sasl_password: SecretStr | None = Field(None, description="SASL password, for PLAIN and SCRAM.")
    kafka_sasl_kerberos_service_name: str = Field(
        "kafka", description="Kafka `sasl.kerberos.service.name`, for GSSAPI."
    )
    kafka_sasl_kerberos_domain_name: str | None = Field(
        None, description="Kerberos domain name, for GSSAPI. Not set: the broker's host."
    )
    kafka_sasl_oauth_token_path: Path | None = Field(
        None, description="File with the OAUTHBEARER token, read again for every connection."
    )
    database_url: SecretStr | None = Field(
        None,
        description="libpq connection string: postgresql://... or key=value pairs. Not set: the embedded PostgreSQL.",
    )
    database_password: SecretStr | None = Field(
        None, description="libpq `password`, if it is not in the connection string."
    )

    data_dir: Path = Field(
        Path(data_directory.NAME),
        description="Where `frameledger up` keeps everything. Not set: .frameledger here, or in the nearest folder "
        "above that has one.",
    )
    kafka_port: Port | None = Field(
        None, description="Port of the embedded broker. Not set: 19092, or a free one."
    )
    postgres_port: Port | None = Field(
        None, description="Port of the embedded PostgreSQL. Not set: 15432, or a free one."
    )
    kafka_home: Path | None = Field(
        None, description="Home of an installed Kafka to run instead of the packaged one."
    )
    java: Path | None = Field(None, description="The program `java` for the embedded broker.")
    cache_dir: Path | None = Field(
        None, description="Cache of the broker's jars. Not set: the user's cache directory."
    )
    maven_repository: str | None = Field(
        None, description="URL of a Maven repository with the broker's jars. Not set: Maven Central."
    )

    topic_prefix: str = Field(
        "llm.", pattern=r"^[a-zA-Z0-9._-]{0,200}$", description="Prefix of topic names."
    )
    topic_partitions: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Number of partitions of topics that we create. Not set: 64, and 8 on the embedded broker.",
    )
    topic_replication: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="Replication factor of topics that we create. Not set: the broker's `default.replication.factor`.",
    )
    topic_min_insync_replicas: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="Kafka `min.insync.replicas` of topics that we create. Not set: the broker's.",
    )
    frames_retention_days: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Kafka `retention.ms` of the frames topic, in days. Not set: kept for ever.",
    )

    work_lease_secs: float = Field(
        5.0,
        ge=0.1,
        le=3_600,
        description="Lease of a worker in seconds: it counts as dead so long after its last heartbeat.",
    )
    work_heartbeat_secs: float = Field(
        0.4, ge=0.01, le=600, description="Heartbeat interval in seconds; at most half of the lease."
    )
    work_slots: int = Field(
        100, ge=1, le=100_000, description="Concurrent jobs of a worker, if its service does not set them."
    )
    work_drain_secs: float = Field(
        20.0,
        ge=0,
        le=86_400,
        description="Drain timeout in seconds: how long a worker that was told to stop lets its jobs finish.",
    )
    work_grace_secs: float = Field(
        5.0, ge=0, le=3_600, description="Grace period in seconds: how long a cancelled job may take to stop."
    )

    projector_instance_id: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
        description="Kafka `group.instance.id` (static membership): a projector that restarts under this id resumes "
        "at once, not after 10 s. Unique among running projectors; a second one fails with an error.",
    )

    function_call_timeout_secs: float = Field(
        600,
        gt=0,
        allow_inf_nan=False,
        description="Default timeout of a function call in seconds, from its dispatch.",
    )
    enable_async_tool_cancellation: bool = Field(
        False, description="Let the model cancel calls of every asynchronous function that is served."
    )

    inference_provider: str | None = Field(
        None,
        description="LLM provider: openai, anthropic, scripted, or an installed plug-in. Not set: no model answers.",
    )
    inference_model: str | None = Field(
        None,
        min_length=1,
        description="Default model, for contexts that name none. Not set: the provider's default.",
    )
    inference_system_instruction: str | None = Field(
        None,
        description="System instruction of every request, in addition to a context's own system message.",
    )
    inference_temperature: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Default temperature. A context's own settings override this one and those below.",
    )
    inference_max_tokens: int | None = Field(
        None, ge=1, description="Maximum number of output tokens (max_tokens)."
    )
    inference_max_completion_tokens: int | None = Field(
        None,
        ge=1,
        description="The same, with reasoning tokens counted (max_completion_tokens), for models that require it.",
    )
    inference_top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling (top_p).")
    inference_top_k: int | None = Field(
        None, ge=0, description="Top-k sampling: the number of candidate tokens (top_k)."
    )
    inference_frequency_penalty: float | None = Field(
        None, allow_inf_nan=False, description="Frequency penalty."
    )
    inference_presence_penalty: float | None = Field(
        None, allow_inf_nan=False, description="Presence penalty."
    )
    inference_seed: int | None = Field(None, description="Sampling seed, for providers that support one.")
    inference_extra: JsonObject | None = Field(
        None, description="JSON object: extra fields of the provider's request, passed through unchanged."
    )
    inference_run_in_parallel: bool = Field(
        True, description="Run the function calls of one response in parallel; otherwise one after another."
    )
    inference_group_parallel_tools: bool = Field(
        True,
        description="Run the model again once all calls of a response have settled; otherwise after each.",
    )
    inference_completion_timeout_secs: float = Field(
        120,
        gt=0,
        allow_inf_nan=False,
        description="Seconds without output after which a request counts as failed.",
    )
    inference_turn_completion: str = Field(
        "",
        description="Text added to every system instruction: how the model marks that the user's turn is not over.",
    )
    inference_retries: int = Field(
        4, ge=0, le=100, description="Retries of a request of whose response nothing has arrived."
    )
    inference_merge_ms: int = Field(
        50,
        ge=0,
        le=1_000,
        description="Milliseconds for which chunks of a response are merged into one frame.",
    )
    inference_service: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9._-]{1,100}$",
        description="Name of the inference service and its Kafka consumer group. Not set: inference-PROVIDER.",
    )
    inference_models: str | None = Field(
        None,
        description="Models, separated by commas, whose runs this service takes. Not set: its own, and all that no "
        "other service lists.",
    )
    inference_script: Path | None = Field(
        None,
        description="Script of the provider scripted. Not set: it echoes the user.",
    )
    provider_options: Annotated[SecretStr, AfterValidator(_options_by_provider)] | None = Field(
        None,
        description='For plug-ins, and keys beside ours: a JSON object {"PROVIDER": {...}} of arguments for the '
        "constructors of providers. Hidden as a whole.",
    )
    openai_api_key: SecretStr | None = Field(
        None, description="API key of the provider openai. OPENAI_API_KEY is read too."
    )
    openai_base_url: str | None = Field(
        None, description="Base URL of an OpenAI-compatible API. OPENAI_BASE_URL is read too."
    )
    openai_developer_role: Literal["developer", "system", "user"] = Field(
        "developer",
        description="Role in which an OpenAI-compatible API is sent developer messages, since some lack that role.",
    )
    anthropic_api_key: SecretStr | None = Field(
        None, description="API key of the provider anthropic. ANTHROPIC_API_KEY is read too."
    )
    anthropic_base_url: str | None = Field(
        None, description="Base URL of an Anthropic-compatible API. ANTHROPIC_BASE_URL is read too."
    )

    timekeeper_every_secs: float = Field(
        1.0,
        gt=0,
        le=60,
        allow_inf_nan=False,
        description="Seconds between two sweeps of the timekeeper.",
    )
    timekeeper_run_unclaimed_secs: Secs = Field(
        60, description="A run fails after so many seconds without a live worker. 0: never."
    )
    timekeeper_run_silent_secs: Secs = Field(
        300, description="A run fails after so many seconds without a new frame. 0: never."
    )
    timekeeper_call_secs: Secs = Field(
        600,
        description="Deadline of calls that name none, in seconds from their dispatch. 0: none.",
    )
    timekeeper_call_grace_secs: Secs = Field(
        10, description="Seconds beyond a call's deadline in which its worker may still settle it."
    )
    timekeeper_call_unserved_secs: Secs = Field(
        30,
        description="A call is answered as not available after so many seconds without a service for it. 0: never. A "
        "name that is no tool of its context is answered at once by any live function service.",
    )
    timekeeper_call_unstarted_secs: Secs = Field(
        120,
        description="A call that is served is answered as not started after so many seconds without a start. 0: never.",
    )
    timekeeper_interrupted_call_secs: Secs = Field(
        10, description="An interrupted call is cancelled so many seconds after its worker died. 0: never."
    )
    timekeeper_lost_call_secs: Secs = Field(
        10,
        description="A call that had started and is not safe to retry becomes ambiguous so many seconds after its "
        "worker died. 0: at its deadline.",
    )
    timekeeper_waiting_calls: bool = Field(
        True, description="End calls that wait for a person at their own deadlines."
    )
    timekeeper_user_silent_secs: Secs = Field(
        60, description="An open user turn is closed after so many seconds without speech. 0: never."
    )
    timekeeper_final_words_secs: Secs = Field(
        5, description="Seconds that a stopped user turn waits for its final transcription. 0: for ever."
    )
    timekeeper_bot_silent_secs: Secs = Field(
        120, description="A speaking bot counts as stopped after so many seconds without a frame. 0: never."
    )
    timekeeper_keep_claims_days: Days = Field(30, description="Retention of claims in days. 0: for ever.")
    timekeeper_keep_workers_days: Days = Field(
        365,
        description="Retention of dead workers in days; `frameledger request` renders requests from them. 0: for ever.",
    )

    def options_of(self, provider: str) -> dict[str, Any]:
        """Returns what `provider_options` has for a provider; empty if it has nothing."""
        found = self.provider_options
        return {} if found is None else dict(json.loads(found.get_secret_value()).get(provider, {}))


class SettingsError(ConfigurationError):
    """The settings are incomplete or wrong. `problems` are sentences, one for each problem.

    Remedy: Set what they name, in the environment or in the settings file; `frameledger config` shows what is in
    force.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


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


def contradictions(settings: Settings) -> list[str]:
    """What cannot be meant together, a sentence each."""
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
