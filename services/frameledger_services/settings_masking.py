"""Settings as they are shown to people: without secrets."""

from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from frameledger_services.settings import Settings

HIDDEN = "********"


def masked(name: str, value: Any) -> str | None:
    """Returns the value of a setting as text, with secrets replaced by stars, also the password inside an address."""
    if value is None:
        return None
    if name == "database_url":
        return without_password(value.get_secret_value())
    return HIDDEN if isinstance(value, SecretStr) else str(value)


def without_password(address: str) -> str:
    """Returns a libpq address with its passwords replaced by stars."""
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
"""The settings that are masked, and that can be read from a file."""
