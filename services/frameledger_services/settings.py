"""All settings: one frozen object, passed down. `settings_sources` reads it from the environment.

A setting `kafka_port` is the variable `FRAMELEDGER_KAFKA_PORT`. Every libpq parameter (`sslmode`, `sslrootcert`, a
service file ...) is set in the database address or by libpq's own variables, `PGSSLMODE` and so on.
"""

import json
import re
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


def _origins(text: str) -> str:
    """Only origins that are named: with a `*` any page could use the tokens that its visitors have."""
    for origin in origins_in(text):
        if not re.fullmatch(r"https?://[^/*\s,@]+", origin):
            raise ValueError(f"{origin!r} is no origin, such as https://app.example")
    return text


def _trace_address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s{}]+\{trace_id\}[^\s{}]*", text):
        raise ValueError(f"{text!r} is no address with {{trace_id}} in it")
    return text


def _header_names(text: str) -> str:
    for name in names_in(text):
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is no name of a header")
    return text


GATEWAY_PORT = 18080
"""Port of the gateway where none is set."""


def names_in(text: str) -> list[str]:
    """Returns what a setting lists, separated by commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


def origins_in(text: str | None) -> list[str]:
    """Returns the origins of `gateway_cors_origins`."""
    return names_in(text or "")


JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]
"""A variable that holds a JSON object."""


def _set(default: Any, description: str, **limits: Any) -> Any:
    """A field of `Settings`, with what `frameledger config` says about it."""
    return Field(default, description=description, **limits)


class Settings(BaseModel):
    """What can be set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @staticmethod
    def from_env(*, look_for_running: bool = True) -> "Settings":
        """Returns the settings of this process: of its environment, of `frameledger.env` in the data directory, and the
        addresses of a `frameledger up` that runs in this folder or above it.

        Raises `SettingsError` with all that is wrong. `look_for_running`: whether a running `up` counts.
        """
        from frameledger_services import settings_sources

        return settings_sources.load(look_for_running=look_for_running).settings

    log_level: Literal["debug", "info", "warning", "error"] = _set(
        "info", "The least severe events that the services log."
    )
    log_format: Literal["auto", "console", "json"] = _set(
        "auto", "Format of the services' logs. `auto`: console on a terminal, JSON elsewhere."
    )
    trace_url: Annotated[str, AfterValidator(_trace_address)] | None = _set(
        None,
        "Address of a trace in the program that shows yours, with `{trace_id}` where the id stands, such as "
        "`https://jaeger.example/trace/{trace_id}`: the page links to it from each frame that has one, and `timeline`, "
        "`runs` and `why` print it.",
    )
    metrics_port: Port | None = _set(
        None,
        "Port at which `frameledger run` serves `/metrics`, `/livez` and `/readyz`; each process has its own. "
        "Not set: none; under `up` 18091 and following, or free ones.",
    )
    metrics_host: str = _set(
        "127.0.0.1",
        "Address for that. It asks for no token: beyond loopback it belongs into a network of those who may know the "
        "names of models and functions.",
    )
    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = _set(
        None,
        "Address of a gateway: `HttpClient`, `frameledger chat` and `frameledger tail` speak HTTP to it, and need "
        "neither Kafka nor PostgreSQL.",
    )
    token: SecretStr | None = _set(None, "The gateway's token for that (`frameledger token new`).")
    kafka_bootstrap_servers: str | None = _set(
        None, "Kafka `bootstrap.servers`: host:port, separated by commas. Not set: the embedded broker."
    )
    kafka_security_protocol: SecurityProtocol = _set("PLAINTEXT", "Kafka `security.protocol`.")
    kafka_ssl_ca_path: Path | None = _set(None, "CA certificates, PEM. Not set: the system's.")
    kafka_ssl_certificate_path: Path | None = _set(None, "Client certificate (mutual TLS), PEM.")
    kafka_ssl_key_path: Path | None = _set(None, "The client's private key, PEM, if in a file of its own.")
    kafka_ssl_key_password: SecretStr | None = _set(None, "Password of the private key.")
    kafka_ssl_crl_path: Path | None = _set(None, "Certificate revocation list (CRL), PEM.")
    kafka_ssl_ciphers: str | None = _set(None, "Cipher list in OpenSSL's notation.")
    kafka_ssl_check_hostname: bool = _set(True, "Verify the broker's host name against its certificate.")
    kafka_sasl_mechanism: SaslMechanism = _set("PLAIN", "Kafka `sasl.mechanism`, for SASL_... protocols.")
    kafka_sasl_username: str | None = _set(None, "SASL user name, for PLAIN and SCRAM.")
    kafka_sasl_password: SecretStr | None = _set(None, "SASL password, for PLAIN and SCRAM.")
    kafka_sasl_kerberos_service_name: str = _set("kafka", "Kafka `sasl.kerberos.service.name`, for GSSAPI.")
    kafka_sasl_kerberos_domain_name: str | None = _set(
        None, "Kerberos domain name, for GSSAPI. Not set: the broker's host."
    )
    kafka_sasl_oauth_token_path: Path | None = _set(
        None, "File with the OAUTHBEARER token, read again for every connection."
    )
    database_url: SecretStr | None = _set(
        None,
        "libpq connection string: postgresql://... or key=value pairs. Not set: the embedded PostgreSQL.",
    )
    database_password: SecretStr | None = _set(None, "libpq `password`, if not in the connection string.")

    data_dir: Path = _set(
        Path(data_directory.NAME),
        "Where `frameledger up` keeps everything. Not set: .frameledger here, or in the nearest folder "
        "above that has one.",
    )
    pager: str | None = _set(
        None,
        "Pager for long output on a terminal, a shell command; `cat` for none. Not set: `PAGER`, else `less`.",
    )
    kafka_port: Port | None = _set(None, "Port of the embedded broker. Not set: 19092, or a free one.")
    postgres_port: Port | None = _set(None, "Port of the embedded PostgreSQL. Not set: 15432, or a free one.")
    kafka_home: Path | None = _set(None, "Home of an installed Kafka to run instead of the packaged one.")
    java: Path | None = _set(None, "The program `java` for the embedded broker.")
    cache_dir: Path | None = _set(
        None,
        "Cache of the broker's jars (50 MB) and of what Java keeps of them (up to 200 MB). "
        "Not set: the user's cache directory.",
    )
    maven_repository: str | None = _set(None, "Maven repository with the jars. Not set: Maven Central.")

    topic_prefix: str = _set("llm.", "Prefix of topic names.", pattern=r"^[a-zA-Z0-9._-]{0,200}$")
    topic_partitions: int | None = _set(
        None,
        "Number of partitions of topics that we create. Not set: 64, and 8 on the embedded broker.",
        ge=1,
        le=100_000,
    )
    topic_replication: int | None = _set(
        None,
        "Replication factor of topics that we create. Not set: the broker's `default.replication.factor`.",
        ge=1,
        le=1_000,
    )
    topic_min_insync_replicas: int | None = _set(
        None, "Kafka `min.insync.replicas` of topics that we create. Not set: the broker's.", ge=1, le=1_000
    )
    frames_retention_days: int | None = _set(
        None, "Kafka `retention.ms` of the frames topic, in days. Not set: kept for ever.", ge=1, le=1_000_000
    )

    work_lease_secs: float = _set(
        5.0,
        "Lease of a worker in seconds: it counts as dead so long after its last heartbeat.",
        ge=0.1,
        le=3_600,
    )
    work_heartbeat_secs: float = _set(0.4, "Heartbeat interval; at most half of the lease.", ge=0.01, le=600)
    work_slots: int = _set(
        100, "Concurrent jobs of a worker, unless its service sets them.", ge=1, le=100_000
    )
    work_drain_secs: float = _set(
        20.0,
        "Drain timeout in seconds: how long a worker that was told to stop lets its jobs finish.",
        ge=0,
        le=86_400,
    )
    work_grace_secs: float = _set(
        5.0, "Grace period in seconds: how long a cancelled job may take to stop.", ge=0, le=3_600
    )

    erased_ids: Literal["reuse", "refuse"] = _set(
        "reuse",
        "A frame that is published to the id of an erased conversation: `reuse` begins a new conversation with it, "
        "`refuse` makes it a dead letter, without its value. The same for all projectors.",
    )
    projector_instance_id: str | None = _set(
        None,
        "Kafka `group.instance.id` (static membership): a projector that restarts under this id resumes at "
        "once, not after 10 s. Unique among running projectors; a second one fails with an error.",
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
    )

    projector_rebuild_frames: int = _set(
        1_000,
        "A conversation that an older release folded, and that has at most so many frames, is rebuilt when its next "
        "frame arrives. 0: never; `frameledger rebuild` does it.",
        ge=0,
    )
    function_call_timeout_secs: float = _set(
        600, "Default timeout of a function call in seconds, from its dispatch.", gt=0, allow_inf_nan=False
    )
    enable_async_tool_cancellation: bool = _set(
        False, "Let the model cancel calls of every asynchronous function that is served."
    )

    inference_provider: str | None = _set(
        None, "LLM provider: openai, anthropic, scripted, or an installed plug-in. Not set: no model answers."
    )
    inference_model: str | None = _set(
        None, "Default model, for contexts that name none. Not set: the provider's default.", min_length=1
    )
    inference_system_instruction: str | None = _set(
        None, "System instruction of every request, in addition to a context's own system message."
    )
    inference_temperature: float | None = _set(
        None,
        "Default temperature. A context's own settings override this one and those below.",
        ge=0,
        allow_inf_nan=False,
    )
    inference_max_tokens: int | None = _set(None, "Maximum number of output tokens (max_tokens).", ge=1)
    inference_max_completion_tokens: int | None = _set(
        None,
        "The same, with reasoning tokens counted (max_completion_tokens), for models that require it.",
        ge=1,
    )
    inference_top_p: float | None = _set(None, "Nucleus sampling (top_p).", ge=0, le=1)
    inference_top_k: int | None = _set(None, "Top-k sampling: the number of candidate tokens (top_k).", ge=0)
    inference_frequency_penalty: float | None = _set(None, "Frequency penalty.", allow_inf_nan=False)
    inference_presence_penalty: float | None = _set(None, "Presence penalty.", allow_inf_nan=False)
    inference_seed: int | None = _set(None, "Sampling seed, for providers that support one.")
    inference_extra: JsonObject | None = _set(
        None, "JSON object: extra fields of the provider's request, passed through unchanged."
    )
    inference_run_in_parallel: bool = _set(
        True, "Run the function calls of one response in parallel; otherwise one after another."
    )
    inference_group_parallel_tools: bool = _set(
        True, "Run the model again once all calls of a response have settled; otherwise after each."
    )
    inference_completion_timeout_secs: float = _set(
        120, "Seconds without output after which a request counts as failed.", gt=0, allow_inf_nan=False
    )
    inference_turn_completion: str = _set(
        "", "Text added to every system instruction: how the model marks that the user's turn is not over."
    )
    inference_retries: int = _set(4, "Retries of a request while nothing of its response came.", ge=0, le=100)
    inference_merge_ms: int = _set(
        50, "Milliseconds for which chunks of a response are merged into one frame.", ge=0, le=1_000
    )
    limit_rounds: int = _set(
        50, "Runs one after another that results of functions request, without an input. 0: no limit.", ge=0
    )
    limit_calls_per_run: int = _set(128, "Function calls of one response. 0: no limit.", ge=0)
    limit_context_messages: int = _set(
        0, "Messages of a context that a model is asked with. 0: no limit.", ge=0
    )
    limit_context_bytes: int = _set(33_554_432, "Bytes of a request to a model. 0: no limit.", ge=0)
    limit_runs_per_minute: int = _set(0, "Runs of a conversation in a minute. 0: no limit.", ge=0)
    limit_conversation_tokens_per_day: int = _set(
        0,
        "Tokens, read and written, of a conversation and a day (UTC); the next run is stopped. 0: no limit.",
        ge=0,
    )
    limit_conversation_cost_per_day: float = _set(
        0,
        "What a conversation may cost in a day, by the table prices. 0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    limit_tokens_per_day: int = _set(0, "Tokens of all conversations in a day (UTC). 0: no limit.", ge=0)
    limit_cost_per_day: float = _set(
        0,
        "What all conversations may cost in a day, by the table prices. 0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    inference_service: str | None = _set(
        None,
        "Name of the inference service and its Kafka consumer group. Not set: inference-PROVIDER.",
        pattern=r"^[a-zA-Z0-9._-]{1,100}$",
    )
    inference_models: str | None = _set(
        None,
        "Models, separated by commas, whose runs this service takes. Not set: its own, and all that no "
        "other service lists.",
    )
    inference_script: Path | None = _set(None, "Script of provider scripted. Not set: it echoes the user.")
    provider_options: Annotated[SecretStr, AfterValidator(_options_by_provider)] | None = _set(
        None,
        'For plug-ins, and keys beside ours: a JSON object {"PROVIDER": {...}} of arguments for the '
        "constructors of providers. Hidden as a whole.",
    )
    openai_api_key: SecretStr | None = _set(None, "API key of openai. OPENAI_API_KEY is read too.")
    openai_base_url: str | None = _set(None, "URL of an OpenAI-compatible API. OPENAI_BASE_URL is read too.")
    openai_developer_role: Literal["developer", "system", "user"] = _set(
        "developer",
        "Role in which an OpenAI-compatible API is sent developer messages, since some lack that role.",
    )
    anthropic_api_key: SecretStr | None = _set(None, "API key of anthropic. ANTHROPIC_API_KEY is read too.")
    anthropic_base_url: str | None = _set(None, "URL of a compatible API. ANTHROPIC_BASE_URL is read too.")

    timekeeper_every_secs: float = _set(
        1.0, "Seconds between two sweeps of the timekeeper.", gt=0, le=60, allow_inf_nan=False
    )
    timekeeper_run_unclaimed_secs: Secs = _set(60, "A run without a worker fails after so long. 0: never.")
    timekeeper_run_silent_secs: Secs = _set(300, "A run without a new frame fails after so long. 0: never.")
    timekeeper_call_secs: Secs = _set(600, "Deadline of calls that name none, from their dispatch. 0: none.")
    timekeeper_call_grace_secs: Secs = _set(
        10, "Seconds beyond a call's deadline in which its worker may still settle it."
    )
    timekeeper_call_unserved_secs: Secs = _set(
        30,
        "A call is answered as not available after so many seconds without a service for it. 0: never. A "
        "name that is no tool of its context is answered at once by any live function service.",
    )
    timekeeper_call_unstarted_secs: Secs = _set(
        120,
        "A call that is served is answered as not started after so many seconds without a start. 0: never.",
    )
    timekeeper_interrupted_call_secs: Secs = _set(
        10, "An interrupted call is cancelled so many seconds after its worker died. 0: never."
    )
    timekeeper_lost_call_secs: Secs = _set(
        10,
        "A call that had started and is not safe to retry becomes ambiguous so many seconds after its "
        "worker died. 0: at its deadline.",
    )
    timekeeper_waiting_calls: bool = _set(True, "End calls that wait for a person at their own deadlines.")
    timekeeper_client_call_secs: Secs = _set(
        86_400,
        "A call that waits for the client which brought its function is cancelled once its conversation has had no new "
        "frame for so many seconds. 0: never.",
    )
    timekeeper_user_silent_secs: Secs = _set(
        60, "An open user turn is closed after so many seconds without speech. 0: never."
    )
    timekeeper_final_words_secs: Secs = _set(
        5, "Seconds that a stopped user turn waits for its final transcription. 0: for ever."
    )
    timekeeper_bot_silent_secs: Secs = _set(
        120, "A speaking bot counts as stopped after so many seconds without a frame. 0: never."
    )
    timekeeper_root_every_secs: Secs = _set(
        0,
        "Seconds between two roots over all conversations that are published to the topic `roots` "
        "(`frameledger heads`). 0: none.",
    )
    timekeeper_keep_claims_days: Days = _set(30, "Retention of claims in days. 0: for ever.")
    timekeeper_keep_workers_days: Days = _set(
        365,
        "Retention of dead workers in days; `frameledger request` renders requests from them. 0: for ever.",
    )

    gateway_host: str = _set(
        "127.0.0.1", "Address at which the gateway listens. Beyond loopback it needs tokens."
    )
    gateway_port: Port | None = _set(
        None, f"Port of the gateway. Not set: {GATEWAY_PORT}; under `up` that or a free one."
    )
    gateway_tokens_file: Path | None = _set(
        None,
        "File with the gateway's tokens (`frameledger token`). Not set: gateway-tokens.json in the data directory, if "
        "it is there.",
    )
    gateway_session_key: SecretStr | None = _set(
        None,
        "Key that signs the sessions of the page, 32 random characters or more; the same for all gateways behind one "
        "address. Not set: a new one at each start, which ends all sessions.",
    )
    gateway_cors_origins: Annotated[str, AfterValidator(_origins)] | None = _set(
        None,
        "Origins, separated by commas, whose pages may ask the gateway with a token: `https://app.example`. Not set: "
        "none.",
    )
    gateway_requests_per_sec: float = _set(50, "Requests a second for each token.", gt=0, le=1e6)
    gateway_burst: int = _set(
        200, "Requests that a token may make at once before that counts.", ge=1, le=1_000_000
    )
    gateway_streams_per_token: int = _set(
        50, "Live streams that a token may have open at once.", ge=1, le=100_000
    )
    gateway_openai: bool = _set(
        False,
        "Whether the gateway speaks OpenAI's chat completions: `/v1/chat/completions` and `/v1/models`.",
    )
    gateway_chat_id_headers: Annotated[str, AfterValidator(_header_names)] = _set(
        "X-OpenWebUI-Chat-Id",
        "Headers, separated by commas, in which front ends of that API name their chats. Empty: none.",
    )
    gateway_openai_tools: bool = _set(
        True, "Whether a conversation that begins there has the functions that live workers offer."
    )
    gateway_openai_begin_secs: float = _set(
        30.0, "Seconds within which a model has to begin its answer there; then it is 503.", ge=1, le=3_600
    )
    gateway_openai_interrupt: bool = _set(
        True,
        "Whether an answer is interrupted when the client closes its connection: the stop button of front ends.",
    )
    gateway_ag_ui: bool = _set(False, "Whether the gateway speaks AG-UI 1.0, for front ends: `/v1/ag-ui`.")
    gateway_ag_ui_tools: bool = _set(
        True, "Whether a conversation that begins there has the functions that live workers offer."
    )
    gateway_ag_ui_reconnect_secs: float = _set(
        5.0,
        "Seconds that a client of AG-UI which closed its connection has to come back (`GET /v1/ag-ui/{id}`) before its "
        "run is interrupted: the stop button of front ends closes it, too.",
        ge=0,
        le=86_400,
    )
    gateway_drain_secs: float = _set(
        10.0, "Seconds for which a gateway that was told to stop lets requests finish.", ge=1, le=3_600
    )
    gateway_kept_mb: int = _set(
        32,
        "Megabytes of contexts that the gateway keeps in memory for whoever reads them again, each for a minute at "
        "most. What is kept is asked about before it is shown. 0: none.",
        ge=0,
        le=65_536,
    )
    gateway_request_secs: float = _set(
        30.0,
        "Seconds that a request of the gateway may take for the log, and for the database.",
        ge=1,
        le=600,
    )
    gateway_database_connections: int = _set(
        20,
        "Connections of the gateway to the database that read, and as many that wait for appends.",
        ge=1,
        le=1_000,
    )
    gateway_database_wait_secs: float = _set(
        5.0,
        "Seconds that a request of the gateway waits at most until one of these is free; then it is answered 503.",
        gt=0,
        le=600,
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
            problems.append(
                f"{PREFIX}DATABASE_URL is no address that libpq can read, such as postgresql://USER@HOST:5432/NAME."
            )
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
