"""The tokens of a running gateway: the file is read again when it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from frameledger_services import logs
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.tokens import Token, TokensFileError

_log = logs.get_logger("gateway")

_UNKNOWN_TOKEN = Token(
    id="0" * 10,
    name="none",
    sha256="0" * 64,
    scopes=frozenset(("read",)),
    created_at=datetime.min.replace(tzinfo=UTC),
)
"""Compared with a token whose id is unknown, so that this takes as long as for a known one."""


UNREAD: tuple[int, ...] = ()
"""The state of a file that exists and could not be read."""


def _now() -> datetime:
    return datetime.now(UTC)


class LiveTokens:
    """The tokens of a file. Each query checks whether the file is unchanged, which costs microseconds, unless that was
    done within `tokens.CHECK_SECONDS`; a command that changes the file waits as long.

    While the file cannot be read, no token is good.
    """

    def __init__(
        self,
        path: Path,
        *,
        required: bool,
        now: Callable[[], datetime] = _now,
        check_seconds: float = tokens.CHECK_SECONDS,
    ) -> None:
        """`required`: tokens are needed even if there is no such file. Otherwise they are needed from the first time
        that there is one: deleting the file opens nothing."""
        self._path = path
        self._required = required
        self._now = now
        self._check_seconds = check_seconds
        self._next_check = 0.0
        """When to check the file again, by the monotonic clock."""

        self._file_state: tuple[int, ...] | None = None
        self._by_id: dict[str, Token] = {}
        self._failure: tuple[object, str] | None = None
        """Which file could not be read, and why, as last logged."""

    def are_required(self) -> bool:
        """Returns whether a caller needs a token."""
        if not self._required:
            self._refresh()
        return self._required

    def of_text(self, text: str) -> Token | None:
        """Returns the token with this text; None for one that is unknown, revoked or expired."""
        token = self._good(tokens.id_in(text))
        matches = (token or _UNKNOWN_TOKEN).belongs_to(text)
        return token if matches else None

    def of_id(self, id_: str) -> Token | None:
        """Returns the token with this id; None for one that is unknown, revoked or expired."""
        return self._good(id_)

    def _good(self, id_: str | None) -> Token | None:
        self._refresh()
        token = self._by_id.get(id_ or "")
        return token if token is not None and token.is_good_at(self._now()) else None

    def _refresh(self) -> None:
        moment = time.monotonic()
        if moment < self._next_check:
            return
        self._next_check = moment + self._check_seconds
        if self._file_state is None and not os.access(self._path, os.F_OK):
            # There is still no file. `stat` raises an exception then, which takes twice the time.
            return
        try:
            # `Path.stat` takes twice the time.
            stat = os.stat(self._path)
        except OSError:
            # This includes a file that cannot be reached; `_required` is not changed.
            file_state = None
        else:
            file_state = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if file_state == self._file_state:
            return
        self._file_state = file_state
        self._by_id = {}
        if file_state is None:
            self._warn(None, f"There is no file {self._path}.")
            return
        self._required = True
        try:
            self._by_id = {token.id: token for token in tokens.load(self._path)}
        except TokensFileError as error:
            self._warn(file_state, str(error))
            # The obstacle may disappear without a change of the file, so reading is tried again.
            self._file_state, self._next_check = UNREAD, 0.0
        else:
            self._failure = None

    def _warn(self, file_state: object, reason: str) -> None:
        """Log, once, why no token is good."""
        if self._failure != (file_state, reason):
            self._failure = (file_state, reason)
            _log.warning("gateway.tokens_unreadable", reason=reason)
