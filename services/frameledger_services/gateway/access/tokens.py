"""Access tokens of the gateway, and the file with their permissions.

A token is `fl_ID_SECRET`. The file has its id, its rights, and the SHA-256 of the whole text: a secret of 256 random
bits cannot be guessed, so no slow hash is needed, and a reader of the file cannot use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_serializer

from frameledger.errors import ConfigurationError, RefusedError
from frameledger_services.gateway.access.caller import SCOPES, Caller, Scope
from frameledger_services.settings import Settings

FILE = "gateway-tokens.json"
"""The file's name in the data directory, unless a setting names another."""

CHECK_SECONDS = 0.01
"""Minimum interval between two checks of a running gateway whether the file has changed. A command that changes the
file waits as long before it returns, so that every gateway on this machine applies the change by then."""

ID_BYTES = 5
SECRET_BYTES = 32

_TOKEN = re.compile(r"fl_(?P<id>[0-9a-f]{10})_[A-Za-z0-9_-]{43}", re.ASCII)
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$"


class TokensFileError(ConfigurationError):
    """The tokens file cannot be read or written, or is not a tokens file. The message says why.

    Remedy: Correct the file that the message names, or create tokens again with `frameledger token new`.
    """


class TokenRefusedError(RefusedError):
    """A token cannot be created or revoked: its name is taken, or there is no token of that name.

    Remedy: Choose another name; `frameledger token list` lists the existing ones.
    """


class Token(BaseModel):
    """The entry of a token in the file."""

    # A misspelled restriction must not count as a missing one.
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * ID_BYTES}}}$")]
    name: Annotated[str, Field(pattern=_NAME)]
    """For people and logs; unique in its file."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The SHA-256 of the whole text of the token, in hexadecimal digits."""

    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    prefix: Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")] = ""
    """It is valid only for conversations whose id begins with this."""

    redact: bool = False
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[Scope]) -> list[Scope]:
        return [scope for scope in SCOPES if scope in scopes]

    def is_good_at(self, moment: datetime) -> bool:
        """Returns whether it has not expired."""
        return self.expires_at is None or moment < self.expires_at

    def belongs_to(self, text: str) -> bool:
        """Returns whether this is the token's text. The time that it takes depends on the text's length only."""
        return hmac.compare_digest(_hash(text), self.sha256)

    def caller(self) -> Caller:
        """Returns the caller with this token."""
        return Caller(self.name, self.scopes, self.prefix, self.redact, self.id)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: tuple[Token, ...] = ()


def path_of(settings: Settings) -> Path:
    """Returns the path of the tokens file for these settings, whether or not the file exists."""
    return settings.gateway_tokens_file or settings.data_dir / FILE


def id_in(text: str) -> str | None:
    """Returns the id in a token's text; None for text that is not a token."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else match["id"]


def load(path: Path) -> tuple[Token, ...]:
    """Returns the tokens of a file, in the order in which they were created.

    Raises `TokensFileError`, also for a missing file.
    """
    try:
        loaded = _File.model_validate_json(path.read_bytes()).tokens
    except OSError as error:
        raise TokensFileError(f"The tokens in {path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise TokensFileError(f"{path} is not a file of tokens: {_first(error)}.") from None
    _check_unique(path, loaded)
    return loaded


def create(
    path: Path,
    name: str,
    scopes: Iterable[Scope],
    *,
    now: datetime,
    prefix: str = "",
    redact: bool = False,
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Add a token to the file, which is created if it does not exist. Returns it with its text, which is stored
    nowhere.

    Raises `TokenRefusedError` for a name that is taken, ValueError for values that a token cannot have, and
    `TokensFileError`.
    """
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            "a name has 1 to 100 letters, digits and . _ @ -, and begins with a letter or a digit"
        )
    with _change(path) as tokens:
        if any(one.name == name for one in tokens):
            raise TokenRefusedError(f"A token with the name {name} exists already.")
        known = {one.id for one in tokens}
        id_ = next(new for new in iter(lambda: secrets.token_hex(ID_BYTES), "") if new not in known)
        text = f"fl_{id_}_{secrets.token_urlsafe(SECRET_BYTES)}"
        try:
            token = Token(
                id=id_,
                name=name,
                sha256=_hash(text),
                scopes=frozenset(scopes),
                prefix=prefix,
                redact=redact,
                created_at=now,
                expires_at=expires_at,
            )
        except ValidationError as error:
            raise ValueError(_first(error)) from None
        tokens.append(token)
    return token, text


def revoke(path: Path, which: str) -> Token:
    """Delete the token with this name or id. Returns it once running gateways refuse it.

    Raises `TokenRefusedError` if there is none, and `TokensFileError`.
    """
    with _change(path) as tokens:
        token = next((one for one in tokens if which in (one.name, one.id)), None)
        if token is None:
            raise TokenRefusedError(
                f"There is no token {which} in {path}. `frameledger token list` lists the existing ones."
            )
        tokens.remove(token)
    return token


@contextmanager
def _change(path: Path) -> Iterator[list[Token]]:
    """Yields the tokens for a change by one process at a time. Writes them unless an exception is raised."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise TokensFileError(f"The tokens cannot be stored in {path.parent}: {error.strerror}.") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = list(load(path)) if path.exists() else []
        yield tokens
        _write(path, tokens)
    finally:
        os.close(folder)
    time.sleep(CHECK_SECONDS)


def _write(path: Path, tokens: Sequence[Token]) -> None:
    """Replace the file atomically: a reader sees the old one or the new one."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    text = _File(tokens=tuple(tokens)).model_dump_json(indent=1) + "\n"
    try:
        # Private, because the file has the names and permissions of tokens.
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            _make_later(file.fileno(), path)
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise TokensFileError(f"The tokens in {path} cannot be written: {error.strerror}.") from error


def _make_later(unfinished: int, path: Path) -> None:
    """Set a file's time above that of the file that it replaces. A gateway detects a change by time, inode and size,
    which may all be equal if both files are written within a tick of the clock."""
    if path.exists():
        replaced, stat = path.stat().st_mtime_ns, os.fstat(unfinished)
        if stat.st_mtime_ns <= replaced:
            os.utime(unfinished, ns=(stat.st_atime_ns, replaced + 1))


def _check_unique(path: Path, tokens: Sequence[Token]) -> None:
    for what in ("id", "name"):
        values = [getattr(one, what) for one in tokens]
        if twice := {one for one in values if values.count(one) > 1}:
            raise TokensFileError(f"{path} has several tokens with the {what} {min(twice)}.")


def _first(error: ValidationError) -> str:
    """Returns the first validation error, without the value."""
    [first, *_] = error.errors(include_url=False, include_input=False)
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
