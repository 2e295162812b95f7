"""Parameters of the routes. Each is declared once, for the OpenAPI document and for parsing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.types import Scope

from frameledger.record import MAX_KEY_BYTES, is_context_id
from frameledger_services.client import NoSuchContextError
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.problems import ProblemError

_T = TypeVar("_T")

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Parameter(Generic[_T]):
    """A parameter that may be missing."""

    name: str
    schema: dict[str, Any]
    description: str
    read: Callable[[str], _T]
    """Parses the value. Raises ValueError, with the reason, for invalid text."""

    place: Literal["query", "header", "path"] = "query"
    is_required: bool = False
    """Whether a request without it is answered with 400. A parameter in the path is always present."""

    example: str | int | None = None
    """A value for the examples on the page of the routes."""

    def of(self, request: Request) -> _T | None:
        """Returns its value, or None if it is not given. Raises `bad-parameter`."""
        text = (request.headers if self.place == "header" else request.query_params).get(self.name)
        if text is None:
            return None
        try:
            return self.read(text)
        except ValueError as error:
            raise self._refused(error) from None

    def in_path_of(self, request: Request) -> _T:
        """Returns its value as a segment of the path, decoded. Raises `bad-parameter`."""
        try:
            return self.read(unquote_to_bytes(request.path_params[self.name]).decode())
        except ValueError as error:
            raise self._refused(error) from None

    def _refused(self, error: ValueError) -> ProblemError:
        why = "percent-encoded UTF-8 is expected." if isinstance(error, UnicodeDecodeError) else error
        return ProblemError("bad-parameter", f"{self.name}: {why}", param=self.name)

    def described(self) -> dict[str, Any]:
        """Returns the parameter object of the OpenAPI document."""
        return {
            "name": self.name,
            "in": self.place,
            "required": self.is_required or self.place == "path",
            "description": self.description,
            "schema": self.schema,
            **({} if self.example is None else {"example": self.example}),
        }


def integer(name: str, description: str, *, least: int = 0, most: int = INT64_MAX) -> Parameter[int]:
    """Returns a parameter that is an integer between two others."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise ValueError(f"an integer from {least} to {most} is expected, not {text[:40]!r}.")
        return int(text)

    return Parameter(name, {"type": "integer", "minimum": least, "maximum": most}, description, read)


def time(name: str, description: str) -> Parameter[datetime]:
    """Returns a parameter that is a time; UTC if it names no offset."""
    return Parameter(name, {"type": "string", "format": "date-time"}, description, read_time)


def read_time(text: str) -> datetime:
    """Parse a time. Raises ValueError for text that is not a time."""
    try:
        value = datetime.fromisoformat(text.upper())
        # The first and the last year cannot be represented in every time zone.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"a time is expected, such as 2026-05-01T12:00:00Z, not {text[:40]!r}.") from None


def word(name: str, description: str, *words: str) -> Parameter[str]:
    """Returns a parameter that is one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)} is expected, not {text[:40]!r}.")
        return text

    return Parameter(name, {"type": "string", "enum": list(words)}, description, read)


def flag(name: str, description: str) -> Parameter[bool]:
    """Returns a parameter that is `true` or `false`."""

    def read(text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError(f"true or false is expected, not {text[:40]!r}.")
        return text == "true"

    return Parameter(name, {"type": "boolean"}, description, read)


def text(name: str, description: str, *, most: int = 255) -> Parameter[str]:
    """Returns a parameter that is any text without NUL."""
    return Parameter(
        name,
        {"type": "string", "minLength": 1, "maxLength": most},
        description,
        lambda found: read_text(found, most),
    )


def header(name: str, description: str) -> Parameter[str]:
    """Returns a header for the document. Its text is not parsed here."""
    return Parameter(name, {"type": "string"}, description, str, "header")


TRACE = header("traceparent", "The trace to which the published frames belong (W3C Trace Context).")


def read_text(text: str, most: int = 255) -> str:
    """Returns the text unchanged. Raises ValueError if it is empty, too long, or not accepted by the database."""
    if not 0 < len(text) <= most or "\x00" in text:
        raise ValueError(f"text of 1 to {most} characters without NUL is expected.")
    return text


# Cached, because a polling client requests the same one again and again.
@lru_cache(maxsize=1_024)
def read_id(segment: str) -> str:
    """Decode the percent-encoded id of a conversation. Raises ValueError for text that is not an id."""
    try:
        context_id = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise ValueError("a conversation's id is UTF-8.") from None
    if not is_context_id(context_id):
        raise ValueError(f"a conversation's id has 1 to {MAX_KEY_BYTES} bytes without NUL.")
    return context_id


CONTEXT = Parameter(
    "context_id",
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_BYTES},
    "The id of the conversation, percent-encoded: a slash in it is written `%2F`.",
    read_id,
    "path",
    example="order-19",
)


def in_path(parameter: Parameter[_T], name: str, description: str, example: str | int) -> Parameter[_T]:
    """Returns a parameter as a segment of the path."""
    return replace(parameter, name=name, description=description, place="path", example=example)


def required(parameter: Parameter[_T], example: str | int) -> Parameter[_T]:
    """Returns a required parameter. Without it, reading it raises `bad-parameter`."""
    return replace(parameter, is_required=True, example=example)


def repeated(parameter: Parameter[_T], most: int) -> Parameter[_T]:
    """Returns a parameter that may be given up to `most` times. It parses one of them."""
    return replace(parameter, schema={"type": "array", "items": parameter.schema, "maxItems": most})


def context_id(request: Request) -> str:
    """Returns the conversation that the path names. Raises `bad-parameter` for an invalid id, and `NoSuchContextError`
    for a conversation that the caller may not see, as if it did not exist."""
    return context_id_of(request.path_params[CONTEXT.name], request.scope)


def context_id_of(segment: str, scope: Scope) -> str:
    """Returns the conversation that a segment of the path names. Raises the same errors as `context_id`."""
    try:
        id_ = read_id(segment)
    except ValueError as error:
        raise ProblemError("bad-parameter", f"{CONTEXT.name}: {error}") from None
    if not caller.of(scope).may_see(id_):
        raise NoSuchContextError(id_)
    return id_
