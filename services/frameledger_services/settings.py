"""The declaration of all settings: one immutable object that is passed down. `settings_sources` reads it.

A setting `kafka_port` is the variable `FRAMELEDGER_KAFKA_PORT`. Every libpq parameter (`sslmode`, `sslrootcert`, a
service file ...) is set in the database address or by libpq's own variables, `PGSSLMODE` and so on.
"""

import errno
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from frameledger.errors import ConfigurationError
from frameledger_services import data_directory
from frameledger_services.settings_types import (
    ApiKey,
    Days,
    GatewayAddress,
    HeaderNames,
    InstanceId,
    JsonObject,
    OptionsByProvider,
    Origins,
    Port,
    ProviderAddress,
    SaslMechanism,
    Secs,
    SecurityProtocol,
    ServiceName,
    TopicPrefix,
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
        "info", "Lowest severity that the services log."
    )
    log_format: Literal["auto", "console", "json"] = _setting(
        "auto", "Format of the services' logs. `auto`: console on a terminal, JSON elsewhere."
    )
    trace_url: TraceAddress | None = _setting(
        None,
        "URL of a trace in your tracing tool, with `{trace_id}` in the place of the id, such as "
        "`https://jaeger.example/trace/{trace_id}`. The page links each frame that has a trace to it; `timeline`, "
        "`runs` and `why` print it.",
    )
    metrics_port: Port | None = _setting(
        None,
        "Port at which `frameledger run` serves `/metrics`, `/livez` and `/readyz`; each process needs its own. Not "
        "set: not served; under `up`, 18091 and the following ports, or free ones.",
    )
    metrics_host: str = _setting(
        "127.0.0.1",
        "Address for `metrics_port`. No authentication: bind beyond loopback only on a trusted network; metrics "
        "expose model and function names.",
    )
    url: GatewayAddress | None = _setting(
        None,
        "URL of a gateway. `HttpClient`, `frameledger chat` and `frameledger tail` use it over HTTP and then need "
        "neither Kafka nor PostgreSQL.",
    )
    token: SecretStr | None = _setting(None, "Token for the gateway at `url` (`frameledger token new`).")
    kafka_bootstrap_servers: str | None = _setting(
        None, "Kafka `bootstrap.servers`: host:port, separated by commas. Not set: the embedded broker."
    )
    kafka_security_protocol: SecurityProtocol = _setting("PLAINTEXT", "Kafka `security.protocol`.")
    kafka_ssl_ca_path: Path | None = _setting(None, "CA certificates, PEM. Not set: the system's.")
    kafka_ssl_certificate_path: Path | None = _setting(None, "Client certificate (mutual TLS), PEM.")
    kafka_ssl_key_path: Path | None = _setting(
        None, "Private key of the client, PEM, if it is not in the certificate file."
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
        None, "File with the OAUTHBEARER token, read for every connection."
    )
    database_url: SecretStr | None = _setting(
        None,
        "libpq connection string: postgresql://... or key=value pairs. Not set: the embedded PostgreSQL.",
    )
    database_password: SecretStr | None = _setting(None, "libpq `password`, if not in the connection string.")

    data_dir: Path = _setting(
        Path(data_directory.NAME),
        "Data directory of `frameledger up`. Not set: .frameledger in the working directory, or in the nearest "
        "parent folder that has one.",
    )
    pager: str | None = _setting(
        None,
        "Shell command of the pager for long output on a terminal; `cat` for none. Not set: `PAGER`, else `less`.",
    )
    kafka_port: Port | None = _setting(None, "Port of the embedded broker. Not set: 19092, or a free one.")
    postgres_port: Port | None = _setting(
        None, "Port of the embedded PostgreSQL. Not set: 15432, or a free one."
    )
    kafka_home: Path | None = _setting(
        None, "Directory of an installed Kafka to run instead of the packaged one."
    )
    java: Path | None = _setting(None, "Path of the `java` executable for the embedded broker.")
    cache_dir: Path | None = _setting(
        None,
        "Cache directory for the broker's jars (50 MB) and Java's class archives (up to 200 MB). Not set: the user's "
        "cache directory.",
    )
    maven_repository: str | None = _setting(None, "Maven repository with the jars. Not set: Maven Central.")

    topic_prefix: TopicPrefix = _setting("llm.", "Prefix of topic names.")
    topic_partitions: int | None = _setting(
        None,
        "Number of partitions of topics that Frameledger creates. Not set: 64; on the embedded broker, 8.",
        ge=1,
        le=100_000,
    )
    topic_replication: int | None = _setting(
        None,
        "Replication factor of topics that Frameledger creates. Not set: the broker's `default.replication.factor`.",
        ge=1,
        le=1_000,
    )
    topic_min_insync_replicas: int | None = _setting(
        None,
        "Kafka `min.insync.replicas` of topics that Frameledger creates. Not set: the broker's.",
        ge=1,
        le=1_000,
    )
    frames_retention_days: int | None = _setting(
        None,
        "Kafka `retention.ms` of the topics of frames and dead letters that Frameledger creates, in days. "
        "Not set: unlimited.",
        ge=1,
        le=1_000_000,
    )

    work_lease_secs: float = _setting(
        5.0,
        "Lease of a worker in seconds. A worker without a heartbeat for this time is considered dead.",
        ge=0.1,
        le=3_600,
    )
    work_heartbeat_secs: float = _setting(
        0.4, "Heartbeat interval in seconds; at most half of the lease.", ge=0.01, le=600
    )
    work_slots: int = _setting(
        100, "Maximum concurrent jobs of a worker, unless its service sets another number.", ge=1, le=100_000
    )
    work_drain_secs: float = _setting(
        20.0,
        "Drain timeout in seconds: how long a stopping worker waits for its jobs to finish.",
        ge=0,
        le=86_400,
    )
    work_grace_secs: float = _setting(
        5.0, "Grace period in seconds for a cancelled job to stop.", ge=0, le=3_600
    )

    erased_ids: Literal["reuse", "refuse"] = _setting(
        "reuse",
        "What happens to a frame that is published under the id of an erased conversation: `reuse` starts a new "
        "conversation, `refuse` makes the frame a dead letter, without its value. Use the same value for all "
        "projectors.",
    )
    projector_instance_id: InstanceId | None = _setting(
        None,
        "Kafka `group.instance.id` (static membership): a projector that restarts with this id resumes at once "
        "instead of after 10 s. Must be unique among running projectors; a second one with this id fails.",
    )

    projector_rebuild_frames: int = _setting(
        1_000,
        "Conversations that an older release folded are rebuilt at their next frame if they have at most this number "
        "of frames. 0: never; use `frameledger rebuild`.",
        ge=0,
    )
    function_call_timeout_secs: float = _setting(
        600,
        "Default timeout of a function call in seconds, counted from its dispatch.",
        gt=0,
        allow_inf_nan=False,
    )
    enable_async_tool_cancellation: bool = _setting(
        False, "Let the model cancel calls of all asynchronous functions of the service."
    )

    inference_provider: str | None = _setting(
        None,
        "LLM provider: openai, anthropic, scripted, or an installed plug-in. Not set: runs are not answered.",
    )
    inference_model: str | None = _setting(
        None, "Default model for conversations that set none. Not set: the provider's default.", min_length=1
    )
    inference_system_instruction: str | None = _setting(
        None, "System instruction of every request, in addition to the conversation's system message."
    )
    inference_temperature: float | None = _setting(
        None,
        "Default temperature. Settings of a conversation override this setting and those below.",
        ge=0,
        allow_inf_nan=False,
    )
    inference_max_tokens: int | None = _setting(None, "Maximum number of output tokens (max_tokens).", ge=1)
    inference_max_completion_tokens: int | None = _setting(
        None,
        "Maximum number of output tokens including reasoning tokens (max_completion_tokens), for models that require "
        "it.",
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
        None, "Additional fields of the provider's request, a JSON object that is passed through unchanged."
    )
    inference_run_in_parallel: bool = _setting(
        True, "Run the function calls of one response in parallel instead of one after another."
    )
    inference_group_parallel_tools: bool = _setting(
        True, "Run the model again once all calls of a response are settled instead of after each call."
    )
    inference_completion_timeout_secs: float = _setting(
        120,
        "A request fails after this number of seconds in which the provider sends nothing.",
        gt=0,
        allow_inf_nan=False,
    )
    inference_turn_completion: str = _setting(
        "", "Text appended to every system instruction: how the model marks an incomplete user turn."
    )
    inference_retries: int = _setting(
        4, "Maximum retries of a request that has produced no output yet.", ge=0, le=100
    )
    inference_merge_ms: int = _setting(
        50,
        "Chunks of a response that arrive within this number of milliseconds are merged into one frame.",
        ge=0,
        le=1_000,
    )
    limit_rounds: int = _setting(
        50, "Maximum consecutive runs triggered by function results without user input. 0: no limit.", ge=0
    )
    limit_calls_per_run: int = _setting(128, "Maximum function calls of one response. 0: no limit.", ge=0)
    limit_context_messages: int = _setting(0, "Maximum messages in a request. 0: no limit.", ge=0)
    limit_context_bytes: int = _setting(
        33_554_432, "Maximum bytes of a request to a model. 0: no limit.", ge=0
    )
    limit_runs_per_minute: int = _setting(0, "Maximum runs of a conversation per minute. 0: no limit.", ge=0)
    limit_conversation_tokens_per_day: int = _setting(
        0,
        "Maximum input and output tokens of a conversation per day (UTC); further runs fail. 0: no limit.",
        ge=0,
    )
    limit_conversation_cost_per_day: float = _setting(
        0,
        "Maximum cost of a conversation per day (UTC), by the table `prices`. 0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    limit_tokens_per_day: int = _setting(
        0, "Maximum tokens of all conversations per day (UTC). 0: no limit.", ge=0
    )
    limit_cost_per_day: float = _setting(
        0,
        "Maximum cost of all conversations per day (UTC), by the table `prices`. 0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    inference_service: ServiceName | None = _setting(
        None,
        "Name of the inference service, also its Kafka consumer group. Not set: inference-PROVIDER.",
    )
    inference_models: str | None = _setting(
        None,
        "Comma-separated models whose runs this service takes, beside those that name no model. Not set: its own "
        "model, and all models that no live service lists, also those of a service that is down.",
    )
    inference_script: Path | None = _setting(
        None, "Script file of the provider scripted. Not set: it echoes the user."
    )
    provider_options: OptionsByProvider | None = _setting(
        None,
        'Constructor arguments of providers, for plug-ins and further keys: a JSON object {"PROVIDER": {...}}. '
        "Masked as a whole.",
    )
    openai_api_key: ApiKey | None = _setting(
        None, "API key of the provider openai. OPENAI_API_KEY is read too."
    )
    openai_base_url: ProviderAddress | None = _setting(
        None, "URL of an OpenAI-compatible API. OPENAI_BASE_URL is read too."
    )
    openai_developer_role: Literal["developer", "system", "user"] | None = _setting(
        None,
        "Role of developer messages in requests to an OpenAI-compatible API. Not set: developer at OpenAI and Azure, "
        "and user elsewhere, because most other APIs lack the role developer.",
    )
    anthropic_api_key: ApiKey | None = _setting(
        None, "API key of the provider anthropic. ANTHROPIC_API_KEY is read too."
    )
    anthropic_base_url: ProviderAddress | None = _setting(
        None, "URL of an Anthropic-compatible API. ANTHROPIC_BASE_URL is read too."
    )

    timekeeper_every_secs: float = _setting(
        1.0, "Seconds between two sweeps of the timekeeper.", gt=0, le=60, allow_inf_nan=False
    )
    timekeeper_run_unclaimed_secs: Secs = _setting(
        60, "A run that no worker claims fails after this number of seconds. 0: never."
    )
    timekeeper_run_silent_secs: Secs = _setting(
        300, "A run without a new frame fails after this number of seconds. 0: never."
    )
    timekeeper_call_secs: Secs = _setting(
        600, "Timeout in seconds of calls that set none, counted from their dispatch. 0: none."
    )
    timekeeper_call_grace_secs: Secs = _setting(
        10, "Seconds after a call's deadline in which its worker can still settle it."
    )
    timekeeper_call_unserved_secs: Secs = _setting(
        30,
        "A call is settled as not available if no service offers its function for this number of seconds. 0: never. "
        "A call of a name that is not a tool of its conversation is settled at once by any live function service.",
    )
    timekeeper_call_unstarted_secs: Secs = _setting(
        120,
        "A call whose function a service offers is settled as not started after this number of seconds. 0: never.",
    )
    timekeeper_interrupted_call_secs: Secs = _setting(
        10, "An interrupted call is cancelled this number of seconds after its worker died. 0: never."
    )
    timekeeper_lost_call_secs: Secs = _setting(
        10,
        "A started call that is not safe to retry becomes ambiguous this number of seconds after its worker died, and "
        "one of `run_function_calls` that is safe, or waits behind a started one, is cancelled. 0: at its deadline.",
    )
    timekeeper_waiting_calls: bool = _setting(
        True, "Settle calls that wait for a person at their own deadlines."
    )
    timekeeper_client_call_secs: Secs = _setting(
        86_400,
        "A call that waits for the client that offered its function is cancelled after its conversation had no new "
        "frame for this number of seconds. 0: never.",
    )
    timekeeper_user_silent_secs: Secs = _setting(
        60, "An open user turn is closed after this number of seconds without speech. 0: never."
    )
    timekeeper_final_words_secs: Secs = _setting(
        5, "Seconds that a stopped user turn waits for its final transcription. 0: without limit."
    )
    timekeeper_bot_silent_secs: Secs = _setting(
        120, "A speaking bot is considered stopped after this number of seconds without a frame. 0: never."
    )
    timekeeper_root_every_secs: Secs = _setting(
        0,
        "Interval in seconds at which a Merkle root over all conversations is published to the topic `roots` "
        "(`frameledger heads`). 0: never.",
    )
    timekeeper_keep_claims_days: Days = _setting(30, "Retention of claims in days. 0: unlimited.")
    timekeeper_keep_workers_days: Days = _setting(
        365,
        "Retention of dead workers in days; `frameledger request` needs them to render requests. 0: unlimited.",
    )

    gateway_host: str = _setting(
        "127.0.0.1", "Address at which the gateway listens. Beyond loopback, tokens are required."
    )
    gateway_port: Port | None = _setting(
        None, f"Port of the gateway. Not set: {GATEWAY_PORT}; under `up` that or a free one."
    )
    gateway_tokens_file: Path | None = _setting(
        None,
        "File with the gateway's tokens (`frameledger token`). Not set: gateway-tokens.json in the data directory, "
        "if it exists.",
    )
    gateway_session_key: SecretStr | None = _setting(
        None,
        "Key that signs the sessions of the page: 32 random characters or more, the same for all gateways behind one "
        "address. Not set: a random key at each start, which ends all sessions.",
    )
    gateway_cors_origins: Origins | None = _setting(
        None,
        "Comma-separated origins whose pages may call the gateway with a token, such as `https://app.example`. Not "
        "set: none.",
    )
    gateway_requests_per_sec: float = _setting(
        50, "Rate limit: requests per second for each token.", gt=0, le=1e6
    )
    gateway_burst: int = _setting(200, "Burst size of the rate limit.", ge=1, le=1_000_000)
    gateway_streams_per_token: int = _setting(
        50, "Maximum concurrent live streams for each token.", ge=1, le=100_000
    )
    gateway_openai: bool = _setting(
        False,
        "Serve OpenAI's API: `/v1/chat/completions`, `/v1/responses`, `/v1/models`.",
    )
    gateway_chat_id_headers: HeaderNames = _setting(
        "X-OpenWebUI-Chat-Id",
        "Comma-separated headers in which front ends of the OpenAI API send the id of their chat. Empty: none.",
    )
    gateway_openai_tools: bool = _setting(
        True, "Offer live workers' functions to conversations created through the OpenAI API."
    )
    gateway_openai_begin_secs: float = _setting(
        30.0, "Timeout in seconds for the model's first output, then 503.", ge=1, le=3_600
    )
    gateway_openai_interrupt: bool = _setting(
        True,
        "Interrupt the answer when the client closes its connection, as the stop button of front ends does.",
    )
    gateway_ag_ui: bool = _setting(False, "Serve AG-UI 1.0 for front ends: `/v1/ag-ui`.")
    gateway_ag_ui_tools: bool = _setting(
        True, "Offer live workers' functions to conversations created through AG-UI."
    )
    gateway_ag_ui_reconnect_secs: float = _setting(
        5.0,
        "Seconds that an AG-UI client has to reconnect (`GET /v1/ag-ui/{id}`) after its connection closed, before "
        "its run is interrupted. The stop button of front ends closes the connection, too.",
        ge=0,
        le=86_400,
    )
    gateway_drain_secs: float = _setting(
        10.0, "Drain timeout in seconds: how long a stopping gateway waits for open requests.", ge=1, le=3_600
    )
    gateway_kept_mb: int = _setting(
        32,
        "Size in MB of the cache of recently read contexts. Entries live at most a minute and are revalidated with "
        "the database at each read. 0 disables it.",
        ge=0,
        le=65_536,
    )
    gateway_request_secs: float = _setting(
        30.0,
        "Timeout in seconds of the Kafka part and of the database part of a request.",
        ge=1,
        le=600,
    )
    gateway_database_connections: int = _setting(
        20,
        "Maximum database connections for reads; as many again wait for appended frames.",
        ge=1,
        le=1_000,
    )
    gateway_database_wait_secs: float = _setting(
        5.0,
        "Maximum wait in seconds for a free database connection, then 503.",
        gt=0,
        le=600,
    )

    @property
    def directory(self) -> Path:
        """The data directory as an absolute path without links, whether it exists or not. Raises `SettingsError` if it
        has no such path."""
        try:
            return _without_links(self.data_dir)
        except FileNotFoundError:
            # The working directory has no path any more.
            problem = (
                f"The data directory {self.data_dir} is relative to the working directory, which was deleted. Change "
                f"to another folder, or set {PREFIX}DATA_DIR to an absolute path."
            )
        except RuntimeError:
            problem = (
                f"The data directory {self.data_dir} is a link that leads back to itself. Remove the link, or set "
                f"{PREFIX}DATA_DIR to another path."
            )
        raise SettingsError([problem])

    def options_of(self, provider: str) -> dict[str, Any]:
        """Returns the options of a provider in `provider_options`; empty if there are none."""
        options = self.provider_options
        return {} if options is None else dict(json.loads(options.get_secret_value()).get(provider, {}))


class SettingsError(ConfigurationError):
    """The settings are incomplete or invalid. `problems` has a sentence for each problem.

    Remedy: Correct the variables that the problems name, in the environment or in the settings file; `frameledger
    config` shows the effective settings.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _without_links(path: Path) -> Path:
    """Returns a path with its links resolved. Raises RuntimeError for a link that leads back to itself, which
    `Path.resolve` does not report since Python 3.13."""
    resolved = path.resolve()
    try:
        resolved.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RuntimeError(f"Symlink loop from {path}") from error
    return resolved
