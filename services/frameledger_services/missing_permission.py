"""The error for a database user that lacks a permission that a process needs. It names the role that grants it.

`frameledger migrate` creates the roles. Every connection of `database` states which role its user needs.
"""

from __future__ import annotations

from typing import Literal

from psycopg import errors

from frameledger.errors import ConfigurationError

Role = Literal["frameledger_projector", "frameledger_worker", "frameledger_operator", "frameledger_reader"]


class MissingPermissionError(ConfigurationError, errors.InsufficientPrivilege):
    """The database user lacks a permission. The message names what was refused, the user, and the role that it needs.

    Remedy: Follow the error's own `remedy`: grant the role, or restore its grants.
    """

    def __init__(self, error: errors.InsufficientPrivilege, user: str, remedy: str) -> None:
        """`error` is PostgreSQL's. If it has a hint, one of our functions raised it, and the hint is the remedy."""
        refusal, hint = error.diag.message_primary or str(error).strip(), error.diag.message_hint
        self.problem = refusal if hint else f"The database user {user!r} lacks a permission: {refusal}."
        self.remedy = hint or remedy
        super().__init__(f"{self.problem} {self.remedy}", info=error.pgresult)


def lacks(error: errors.InsufficientPrivilege, user: str, role: Role) -> MissingPermissionError:
    """Returns the error for a user that needs this role."""
    # Quoted as an identifier: a name such as `my-app` is not one without quotes.
    quoted = '"' + user.replace('"', '""') + '"'
    remedy = (
        f"Run as a superuser, or as the user who created the roles: GRANT {role} TO {quoted}; "
        "If it has that role, restore the grants of the role, which `frameledger migrate --sql` prints."
    )
    return MissingPermissionError(error, user, remedy)


def does_not_own(error: errors.InsufficientPrivilege, user: str) -> MissingPermissionError:
    """Returns the error for a user that may not change the schema."""
    return MissingPermissionError(
        error,
        user,
        "Set FRAMELEDGER_DATABASE_URL to the address of the user that owns the database and its tables.",
    )
