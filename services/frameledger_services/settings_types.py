"""The types of settings and what makes a value of each valid."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr


def names_in(text: str) -> list[str]:
    """Returns the names in a comma-separated list."""
    return [one.strip() for one in text.split(",") if one.strip()]


def origins_in(text: str | None) -> list[str]:
    """Returns the origins in `gateway_cors_origins`."""
    return names_in(text or "")


def _json_object(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it is not JSON") from None


def _options_by_provider(secret: SecretStr) -> SecretStr:
    options = _json_object(secret.get_secret_value())
    if not isinstance(options, dict) or not all(isinstance(of_one, dict) for of_one in options.values()):
        raise ValueError("it is not a JSON object of objects")
    return secret


def _origins(text: str) -> str:
    """Reject `*`: any page could use its visitors' tokens."""
    for origin in origins_in(text):
        if not re.fullmatch(r"https?://[^/*\s,@]+", origin):
            raise ValueError(f"{origin!r} is not an origin such as https://app.example")
    return text


def _trace_address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s{}]+\{trace_id\}[^\s{}]*", text):
        raise ValueError(f"{text!r} is not a URL that contains {{trace_id}}")
    return text


def _gateway_address(text: str) -> str:
    # Not quoted: it may contain a password.
    if not re.match(r"https?://[^\s/]", text):
        raise ValueError("it is not the address of a gateway, such as https://frameledger.example")
    return text


def _api_key(secret: SecretStr) -> SecretStr:
    # `echo` puts a line break after the key of a Kubernetes secret.
    key = secret.get_secret_value().strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError("it is not a key: one has letters, digits and signs of ASCII only; copy it again")
    return SecretStr(key)


def _provider_address(text: str) -> str:
    address = text.strip()
    if not re.match(r"https?://[^\s/]", address):
        # Not quoted: it may contain a password.
        raise ValueError("it is not the address of an API, such as https://models.example/v1")
    return address


def _service_name(text: str) -> str:
    if text == "projector":
        raise ValueError("projector is the name of the projector's own consumer group")
    return text


def _kafka_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]*", text):
        raise ValueError("only letters without accents, digits and . _ - are allowed")
    return text


def _header_names(text: str) -> str:
    for name in names_in(text):
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is not a header name")
    return text


Port = Annotated[int, Field(ge=1, le=65535)]
Secs = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Days = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]
"""A JSON object, given as text."""

OptionsByProvider = Annotated[SecretStr, AfterValidator(_options_by_provider)]
"""A JSON object with an object for each provider, kept secret as a whole."""

Origins = Annotated[str, AfterValidator(_origins)]
"""Comma-separated origins; no wildcards."""

TraceAddress = Annotated[str, AfterValidator(_trace_address)]
"""A URL with `{trace_id}` in it."""

GatewayAddress = Annotated[str, AfterValidator(_gateway_address)]
"""A URL that begins with http:// or https:// and a host."""

ApiKey = Annotated[SecretStr, AfterValidator(_api_key)]
"""The key of an API, which is sent in a header, without surrounding whitespace."""

ProviderAddress = Annotated[str, AfterValidator(_provider_address)]
"""A URL that begins with http:// or https:// and a host, without surrounding whitespace."""

TopicPrefix = Annotated[str, Field(max_length=200), AfterValidator(_kafka_name)]
"""The prefix of topic names, or empty."""

InstanceId = Annotated[str, Field(min_length=1, max_length=249), AfterValidator(_kafka_name)]
"""An instance id in a consumer group."""

ServiceName = Annotated[
    str, Field(min_length=1, max_length=100), AfterValidator(_kafka_name), AfterValidator(_service_name)
]
"""The name of a service, which is part of the name of its consumer group."""

HeaderNames = Annotated[str, AfterValidator(_header_names)]
"""Comma-separated names of HTTP headers."""
