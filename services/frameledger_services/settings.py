"""All settings, declared: one immutable object that is passed down. `settings_sources` reads it.

A setting `kafka_port` is the variable `FRAMELEDGER_KAFKA_PORT`. Every libpq parameter (`sslmode`, `sslrootcert`, a
service file ...) is set in the database address or by libpq's own variables, `PGSSLMODE` and so on.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from frameledger.errors import ConfigurationError
from frameledger_services import data_directory
from frameledger_services.settings_types import (
    Days,
    HeaderNames,
    JsonObject,
    OptionsByProvider,
    Origins,
    Port,
    SaslMechanism,
    Secs,
    SecurityProtocol,
    TraceAddress,
)

PREFIX = "FRAMELEDGER_"
GATEWAY_PORT = 18080
"""Port of the gateway if none is set."""


def _setting(default: Any, description: str, **limits: Any) -> Any:
    """A field of `Settings`. `frameledger config` and the settings page show the description."""
    return Field(default, description=description, **limits)


class Settings(BaseModel):
    """All settings of Frameledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @staticmethod
    def from_env(*, look_for_running: bool = True) -> "Settings":
        """Returns the settings of this process, from its environment, the file `frameledger.env` in the data directory,
        and the addresses of a `frameledger up` that runs in this folder or a parent.

        Raises `SettingsError` with all problems at once. `look_for_running`: use the addresses of a running `up`.
        """
        from frameledger_services import settings_sources

        return settings_sources.load(look_for_running=look_for_running).settings

    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "The least severe events that the services log."
    )
    log_format: Literal["auto", "console", "json"] = _setting(
        "auto", "Format of the services' logs. `auto`: console on a terminal, JSON elsewhere."
    )
    trace_url: TraceAddress | None = _setting(
        None,
        "Address of a trace in the program that shows yours, with `{trace_id}` where the id stands, such as "
        "`https://jaeger.example/trace/{trace_id}`: the page links to it from each frame that has one, and `timeline`, "
        "`runs` and `why` print it.",
    )
    metrics_port: Port | None = _setting(
        None,
        "Port at which `frameledger run` serves `/metrics`, `/livez` and `/readyz`; each process has its own. "
        "Not set: none; under `up` 18091 and following, or free ones.",
    )
    metrics_host: str = _setting(
        "127.0.0.1",
        "Address for that. It asks for no token: beyond loopback it belongs into a network of those who may know the "
        "names of models and functions.",
    )
    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = _setting(
        None,
        "Address of a gateway: `HttpClient`, `frameledger chat` and `frameledger tail` speak HTTP to it, and need "
        "neither Kafka nor PostgreSQL.",
    )
    token: SecretStr | None = _setting(None, "The gateway's token for that (`frameledger token new`).")
    kafka_bootstrap_servers: str | None = _setting(
        None, "Kafka `bootstrap.servers`: host:port, separated by commas. Not set: the embedded broker."
    )
    kafka_security_protocol: SecurityProtocol = _setting("PLAINTEXT", "Kafka `security.protocol`.")
    kafka_ssl_ca_path: Path | None = _setting(None, "CA certificates, PEM. Not set: the system's.")
    kafka_ssl_certificate_path: Path | None = _setting(None, "Client certificate (mutual TLS), PEM.")
    kafka_ssl_key_path: Path | None = _setting(
        None, "The client's private key, PEM, if in a file of its own."
    )
    kafka_ssl_key_password: SecretStr | None = _setting(None, "Password of the private key.")
    kafka_ssl_crl_path: Path | None = _setting(None, "Certificate revocation list (CRL), PEM.")
    kafka_ssl_ciphers: str | None = _setting(None, "Cipher list in OpenSSL's notation.")
    kafka_ssl_check_hostname: bool = _setting(True, "Verify the broker's host name against its certificate.")
    kafka_sasl_mechanism: SaslMechanism = _setting("PLAIN", "Kafka `sasl.mechanism`, for SASL_... protocols.")
    kafka_sasl_username: str | None = _setting(None, "SASL user name, for PLAIN and SCRAM.")
    kafka_sasl_password: SecretStr | None = _setting(None, "SASL password, for PLAIN and SCRAM.")
    kafka_sasl_kerberos_service_name: str = _setting(
        "kafka", "Kafka `sasl.kerberos.service.name`, for GSSAPI."
    )
    kafka_sasl_kerberos_domain_name: str | None = _setting(
        None, "Kerberos domain name, for GSSAPI. Not set: the broker's host."
    )
    kafka_sasl_oauth_token_path: Path | None = _setting(
        None, "File with the OAUTHBEARER token, read again for every connection."
    )
    database_url: SecretStr | None = _setting(
        None,
        "libpq connection string: postgresql://... or key=value pairs. Not set: the embedded PostgreSQL.",
    )
    database_password: SecretStr | None = _setting(None, "libpq `password`, if not in the connection string.")

    data_dir: Path = _setting(
        Path(data_directory.NAME),
        "Where `frameledger up` keeps everything. Not set: .frameledger here, or in the nearest folder "
        "above that has one.",
    )
    pager: str | None = _setting(
        None,
        "Pager for long output on a terminal, a shell command; `cat` for none. Not set: `PAGER`, else `less`.",
    )
    kafka_port: Port | None = _setting(None, "Port of the embedded broker. Not set: 19092, or a free one.")
    postgres_port: Port | None = _setting(
        None, "Port of the embedded PostgreSQL. Not set: 15432, or a free one."
    )
    kafka_home: Path | None = _setting(None, "Home of an installed Kafka to run instead of the packaged one.")
    java: Path | None = _setting(None, "The program `java` for the embedded broker.")
    cache_dir: Path | None = _setting(
        None,
        "Cache of the broker's jars (50 MB) and of what Java keeps of them (up to 200 MB). "
        "Not set: the user's cache directory.",
    )
    maven_repository: str | None = _setting(None, "Maven repository with the jars. Not set: Maven Central.")

    topic_prefix: str = _setting("llm.", "Prefix of topic names.", pattern=r"^[a-zA-Z0-9._-]{0,200}$")
    topic_partitions: int | None = _setting(
        None,
        "Number of partitions of topics that we create. Not set: 64, and 8 on the embedded broker.",
        ge=1,
        le=100_000,
    )
    topic_replication: int | None = _setting(
        None,
        "Replication factor of topics that we create. Not set: the broker's `default.replication.factor`.",
        ge=1,
        le=1_000,
    )
    topic_min_insync_replicas: int | None = _setting(
        None, "Kafka `min.insync.replicas` of topics that we create. Not set: the broker's.", ge=1, le=1_000
    )
    frames_retention_days: int | None = _setting(
        None, "Kafka `retention.ms` of the frames topic, in days. Not set: kept for ever.", ge=1, le=1_000_000
    )

    work_lease_secs: float = _setting(
        5.0,
        "Lease of a worker in seconds: it counts as dead so long after its last heartbeat.",
        ge=0.1,
        le=3_600,
    )
    work_heartbeat_secs: float = _setting(
        0.4, "Heartbeat interval; at most half of the lease.", ge=0.01, le=600
    )
    work_slots: int = _setting(
        100, "Concurrent jobs of a worker, unless its service sets them.", ge=1, le=100_000
    )
    work_drain_secs: float = _setting(
        20.0,
        "Drain timeout in seconds: how long a worker that was told to stop lets its jobs finish.",
        ge=0,
        le=86_400,
    )
    work_grace_secs: float = _setting(
        5.0, "Grace period in seconds: how long a cancelled job may take to stop.", ge=0, le=3_600
    )

    erased_ids: Literal["reuse", "refuse"] = _setting(
        "reuse",
        "A frame that is published to the id of an erased conversation: `reuse` begins a new conversation with it, "
        "`refuse` makes it a dead letter, without its value. The same for all projectors.",
    )
    projector_instance_id: str | None = _setting(
        None,
        "Kafka `group.instance.id` (static membership): a projector that restarts under this id resumes at "
        "once, not after 10 s. Unique among running projectors; a second one fails with an error.",
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
    )

    projector_rebuild_frames: int = _setting(
        1_000,
        "A conversation that an older release folded, and that has at most so many frames, is rebuilt when its next "
        "frame arrives. 0: never; `frameledger rebuild` does it.",
        ge=0,
    )
    function_call_timeout_secs: float = _setting(
        600, "Default timeout of a function call in seconds, from its dispatch.", gt=0, allow_inf_nan=False
    )
    enable_async_tool_cancellation: bool = _setting(
        False, "Let the model cancel calls of every asynchronous function that is served."
    )

    inference_provider: str | None = _setting(
        None, "LLM provider: openai, anthropic, scripted, or an installed plug-in. Not set: no model answers."
    )
    inference_model: str | None = _setting(
        None, "Default model, for contexts that name none. Not set: the provider's default.", min_length=1
    )
    inference_system_instruction: str | None = _setting(
        None, "System instruction of every request, in addition to a context's own system message."
    )
    inference_temperature: float | None = _setting(
        None,
        "Default temperature. A context's own settings override this one and those below.",
        ge=0,
        allow_inf_nan=False,
    )
    inference_max_tokens: int | None = _setting(None, "Maximum number of output tokens (max_tokens).", ge=1)
    inference_max_completion_tokens: int | None = _setting(
        None,
        "The same, with reasoning tokens counted (max_completion_tokens), for models that require it.",
        ge=1,
    )
    inference_top_p: float | None = _setting(None, "Nucleus sampling (top_p).", ge=0, le=1)
    inference_top_k: int | None = _setting(
        None, "Top-k sampling: the number of candidate tokens (top_k).", ge=0
    )
    inference_frequency_penalty: float | None = _setting(None, "Frequency penalty.", allow_inf_nan=False)
    inference_presence_penalty: float | None = _setting(None, "Presence penalty.", allow_inf_nan=False)
    inference_seed: int | None = _setting(None, "Sampling seed, for providers that support one.")
    inference_extra: JsonObject | None = _setting(
        None, "JSON object: extra fields of the provider's request, passed through unchanged."
    )
    inference_run_in_parallel: bool = _setting(
        True, "Run the function calls of one response in parallel; otherwise one after another."
    )
    inference_group_parallel_tools: bool = _setting(
        True, "Run the model again once all calls of a response have settled; otherwise after each."
    )
    inference_completion_timeout_secs: float = _setting(
        120, "Seconds without output after which a request counts as failed.", gt=0, allow_inf_nan=False
    )
    inference_turn_completion: str = _setting(
        "", "Text added to every system instruction: how the model marks that the user's turn is not over."
    )
    inference_retries: int = _setting(
        4, "Retries of a request while nothing of its response came.", ge=0, le=100
    )
    inference_merge_ms: int = _setting(
        50, "Milliseconds for which chunks of a response are merged into one frame.", ge=0, le=1_000
    )
    limit_rounds: int = _setting(
        50, "Runs one after another that results of functions request, without an input. 0: no limit.", ge=0
    )
    limit_calls_per_run: int = _setting(128, "Function calls of one response. 0: no limit.", ge=0)
    limit_context_messages: int = _setting(
        0, "Messages of a context that a model is asked with. 0: no limit.", ge=0
    )
    limit_context_bytes: int = _setting(33_554_432, "Bytes of a request to a model. 0: no limit.", ge=0)
    limit_runs_per_minute: int = _setting(0, "Runs of a conversation in a minute. 0: no limit.", ge=0)
    limit_conversation_tokens_per_day: int = _setting(
        0,
        "Tokens, read and written, of a conversation and a day (UTC); the next run is stopped. 0: no limit.",
        ge=0,
    )
    limit_conversation_cost_per_day: float = _setting(
        0,
        "What a conversation may cost in a day, by the table prices. 0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    limit_tokens_per_day: int = _setting(0, "Tokens of all conversations in a day (UTC). 0: no limit.", ge=0)
    limit_cost_per_day: float = _setting(
        0,
        "What all conversations may cost in a day, by the table prices. 0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    inference_service: str | None = _setting(
        None,
        "Name of the inference service and its Kafka consumer group. Not set: inference-PROVIDER.",
        pattern=r"^[a-zA-Z0-9._-]{1,100}$",
    )
    inference_models: str | None = _setting(
        None,
        "Models, separated by commas, whose runs this service takes. Not set: its own, and all that no "
        "other service lists.",
    )
    inference_script: Path | None = _setting(
        None, "Script of provider scripted. Not set: it echoes the user."
    )
    provider_options: OptionsByProvider | None = _setting(
        None,
        'For plug-ins, and keys beside ours: a JSON object {"PROVIDER": {...}} of arguments for the '
        "constructors of providers. Hidden as a whole.",
    )
    openai_api_key: SecretStr | None = _setting(None, "API key of openai. OPENAI_API_KEY is read too.")
    openai_base_url: str | None = _setting(
        None, "URL of an OpenAI-compatible API. OPENAI_BASE_URL is read too."
    )
    openai_developer_role: Literal["developer", "system", "user"] = _setting(
        "developer",
        "Role in which an OpenAI-compatible API is sent developer messages, since some lack that role.",
    )
    anthropic_api_key: SecretStr | None = _setting(
        None, "API key of anthropic. ANTHROPIC_API_KEY is read too."
    )
    anthropic_base_url: str | None = _setting(
        None, "URL of a compatible API. ANTHROPIC_BASE_URL is read too."
    )

    timekeeper_every_secs: float = _setting(
        1.0, "Seconds between two sweeps of the timekeeper.", gt=0, le=60, allow_inf_nan=False
    )
    timekeeper_run_unclaimed_secs: Secs = _setting(
        60, "A run without a worker fails after so long. 0: never."
    )
    timekeeper_run_silent_secs: Secs = _setting(
        300, "A run without a new frame fails after so long. 0: never."
    )
    timekeeper_call_secs: Secs = _setting(
        600, "Deadline of calls that name none, from their dispatch. 0: none."
    )
    timekeeper_call_grace_secs: Secs = _setting(
        10, "Seconds beyond a call's deadline in which its worker may still settle it."
    )
    timekeeper_call_unserved_secs: Secs = _setting(
        30,
        "A call is answered as not available after so many seconds without a service for it. 0: never. A "
        "name that is no tool of its context is answered at once by any live function service.",
    )
    timekeeper_call_unstarted_secs: Secs = _setting(
        120,
        "A call that is served is answered as not started after so many seconds without a start. 0: never.",
    )
    timekeeper_interrupted_call_secs: Secs = _setting(
        10, "An interrupted call is cancelled so many seconds after its worker died. 0: never."
    )
    timekeeper_lost_call_secs: Secs = _setting(
        10,
        "A call that had started and is not safe to retry becomes ambiguous so many seconds after its "
        "worker died. 0: at its deadline.",
    )
    timekeeper_waiting_calls: bool = _setting(
        True, "End calls that wait for a person at their own deadlines."
    )
    timekeeper_client_call_secs: Secs = _setting(
        86_400,
        "A call that waits for the client which brought its function is cancelled once its conversation has had no new "
        "frame for so many seconds. 0: never.",
    )
    timekeeper_user_silent_secs: Secs = _setting(
        60, "An open user turn is closed after so many seconds without speech. 0: never."
    )
    timekeeper_final_words_secs: Secs = _setting(
        5, "Seconds that a stopped user turn waits for its final transcription. 0: for ever."
    )
    timekeeper_bot_silent_secs: Secs = _setting(
        120, "A speaking bot counts as stopped after so many seconds without a frame. 0: never."
    )
    timekeeper_root_every_secs: Secs = _setting(
        0,
        "Seconds between two roots over all conversations that are published to the topic `roots` "
        "(`frameledger heads`). 0: none.",
    )
    timekeeper_keep_claims_days: Days = _setting(30, "Retention of claims in days. 0: for ever.")
    timekeeper_keep_workers_days: Days = _setting(
        365,
        "Retention of dead workers in days; `frameledger request` renders requests from them. 0: for ever.",
    )

    gateway_host: str = _setting(
        "127.0.0.1", "Address at which the gateway listens. Beyond loopback it needs tokens."
    )
    gateway_port: Port | None = _setting(
        None, f"Port of the gateway. Not set: {GATEWAY_PORT}; under `up` that or a free one."
    )
    gateway_tokens_file: Path | None = _setting(
        None,
        "File with the gateway's tokens (`frameledger token`). Not set: gateway-tokens.json in the data directory, if "
        "it is there.",
    )
    gateway_session_key: SecretStr | None = _setting(
        None,
        "Key that signs the sessions of the page, 32 random characters or more; the same for all gateways behind one "
        "address. Not set: a new one at each start, which ends all sessions.",
    )
    gateway_cors_origins: Origins | None = _setting(
        None,
        "Origins, separated by commas, whose pages may ask the gateway with a token: `https://app.example`. Not set: "
        "none.",
    )
    gateway_requests_per_sec: float = _setting(50, "Requests a second for each token.", gt=0, le=1e6)
    gateway_burst: int = _setting(
        200, "Requests that a token may make at once before that counts.", ge=1, le=1_000_000
    )
    gateway_streams_per_token: int = _setting(
        50, "Live streams that a token may have open at once.", ge=1, le=100_000
    )
    gateway_openai: bool = _setting(
        False,
        "Whether the gateway speaks OpenAI's chat completions: `/v1/chat/completions` and `/v1/models`.",
    )
    gateway_chat_id_headers: HeaderNames = _setting(
        "X-OpenWebUI-Chat-Id",
        "Headers, separated by commas, in which front ends of that API name their chats. Empty: none.",
    )
    gateway_openai_tools: bool = _setting(
        True, "Whether a conversation that begins there has the functions that live workers offer."
    )
    gateway_openai_begin_secs: float = _setting(
        30.0, "Seconds within which a model has to begin its answer there; then it is 503.", ge=1, le=3_600
    )
    gateway_openai_interrupt: bool = _setting(
        True,
        "Whether an answer is interrupted when the client closes its connection: the stop button of front ends.",
    )
    gateway_ag_ui: bool = _setting(
        False, "Whether the gateway speaks AG-UI 1.0, for front ends: `/v1/ag-ui`."
    )
    gateway_ag_ui_tools: bool = _setting(
        True, "Whether a conversation that begins there has the functions that live workers offer."
    )
    gateway_ag_ui_reconnect_secs: float = _setting(
        5.0,
        "Seconds that a client of AG-UI which closed its connection has to come back (`GET /v1/ag-ui/{id}`) before its "
        "run is interrupted: the stop button of front ends closes it, too.",
        ge=0,
        le=86_400,
    )
    gateway_drain_secs: float = _setting(
        10.0, "Seconds for which a gateway that was told to stop lets requests finish.", ge=1, le=3_600
    )
    gateway_kept_mb: int = _setting(
        32,
        "Megabytes of contexts that the gateway keeps in memory for whoever reads them again, each for a minute at "
        "most. What is kept is asked about before it is shown. 0: none.",
        ge=0,
        le=65_536,
    )
    gateway_request_secs: float = _setting(
        30.0,
        "Seconds that a request of the gateway may take for the log, and for the database.",
        ge=1,
        le=600,
    )
    gateway_database_connections: int = _setting(
        20,
        "Connections of the gateway to the database that read, and as many that wait for appends.",
        ge=1,
        le=1_000,
    )
    gateway_database_wait_secs: float = _setting(
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
    """The settings are incomplete or invalid. `problems` has a sentence for each problem.

    Remedy: Correct the variables that the problems name, in the environment or in the settings file; `frameledger
    config` shows the effective settings.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
