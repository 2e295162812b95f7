"""Settings as they are displayed: without secrets."""

from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from frameledger_services.settings import Settings
from frameledger_services.url_masking import HIDDEN, without_credentials

SECRET_PARAMETERS = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
"""Parameters of libpq that are neither displayed nor put on a command line."""


def masked(name: str, value: Any) -> str | None:
    """Returns the value of a setting as text, with secrets replaced by stars, including those within an address."""
    if value is None:
        return None
    if name == "database_url":
        return without_password(value.get_secret_value())
    return HIDDEN if isinstance(value, SecretStr) else without_credentials(str(value))


def without_password(address: str) -> str:
    """Returns a libpq address with its secrets replaced by stars."""
    try:
        # An empty one counts as none.
        parts = {name: value for name, value in conninfo_to_dict(address).items() if value}
    except ProgrammingError:
        return HIDDEN
    if "://" in address and SECRET_PARAMETERS.isdisjoint(parts):
        return address
    return make_conninfo(
        "", **{name: HIDDEN if name in SECRET_PARAMETERS else value for name, value in parts.items()}
    )


def _is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)


SECRETS = frozenset(name for name, field in Settings.model_fields.items() if _is_secret(field))
"""The settings that are masked, and that can be read from a file."""
