"""Converts the settings to connection options of aiokafka and psycopg."""

import shlex
import ssl
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from frameledger_services import data_directory
from frameledger_services.settings import PREFIX, Settings, SettingsError


def kafka_options(settings: Settings) -> dict[str, Any]:
    """Returns the options of an aiokafka client: the addresses of the brokers, TLS and authentication.

    Reads the certificates. Raises `SettingsError` if no broker is configured or a certificate cannot be read.
    """
    if settings.kafka_bootstrap_servers is None:
        raise _missing("broker", "KAFKA_BOOTSTRAP_SERVERS")
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap_servers,
        "security_protocol": settings.kafka_security_protocol,
    }
    if settings.kafka_security_protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(settings)
    if settings.kafka_security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        options["sasl_plain_username"] = settings.kafka_sasl_username
        options["sasl_plain_password"] = _secret(settings.kafka_sasl_password)
        options["sasl_kerberos_service_name"] = settings.kafka_sasl_kerberos_service_name
        options["sasl_kerberos_domain_name"] = settings.kafka_sasl_kerberos_domain_name
        if settings.kafka_sasl_oauth_token_path is not None:
            options["sasl_oauth_token_provider"] = _token_file(settings.kafka_sasl_oauth_token_path)
    return options


def database_address(settings: Settings, **parameters: str | int) -> str:
    """Returns the database address for psycopg and libpq, with these libpq parameters added.

    It contains the password, if one is set. Raises `SettingsError` if no database is configured.
    """
    if settings.database_url is None:
        raise _missing("database", "DATABASE_URL")
    all_parameters: dict[str, Any] = dict(parameters)
    if settings.database_password is not None:
        all_parameters["password"] = settings.database_password.get_secret_value()
    return make_conninfo(settings.database_url.get_secret_value(), **all_parameters)


def _token_file(path: Path) -> Any:
    """Returns a token provider that reads this file for every connection. Another program renews the file."""
    # Imported on demand: a command that only reads the database starts without aiokafka.
    from aiokafka.abc import AbstractTokenProvider

    class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # untyped, so it is Any
        async def token(self) -> str:
            # A small local file: reading it is faster than starting a thread.
            return path.read_text(encoding="utf-8").strip()

    return TokenFile()


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    password = _secret(settings.kafka_ssl_key_password)
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ssl_ca_path)
        context.check_hostname = settings.kafka_ssl_check_hostname
        if settings.kafka_ssl_crl_path is not None:
            context.load_verify_locations(settings.kafka_ssl_crl_path)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if settings.kafka_ssl_ciphers is not None:
            context.set_ciphers(settings.kafka_ssl_ciphers)
        if settings.kafka_ssl_certificate_path is not None:
            # Without a password, OpenSSL prompts for one on the terminal, and a service would hang.
            context.load_cert_chain(
                settings.kafka_ssl_certificate_path, settings.kafka_ssl_key_path, password or ""
            )
    except OSError as error:
        raise SettingsError(
            [f"The TLS settings for Kafka ({PREFIX}KAFKA_SSL_...) are invalid: {error}."]
        ) from error
    return context


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def _missing(what: str, variable: str) -> SettingsError:
    elsewhere = "".join(
        f" One is running in {directory.parent}: to use it, set {PREFIX}DATA_DIR={shlex.quote(str(directory))}."
        for directory in data_directory.running()
    )
    return SettingsError(
        [f"No {what} is configured: run `frameledger up` first, or set {PREFIX}{variable}.{elsewhere}"]
    )
