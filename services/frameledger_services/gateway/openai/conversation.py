"""Finds the conversation of a request: named in its body, in our header, in a front end's header, or a new one.

Front ends name their chat in all of its requests, including those that are not part of the dialogue: for the chat's
title, its tags, a search query. The only sign of such a request is that it has nothing in common with the chat. So a
request that names its chat by a front end's header, and has no user message in common with the stored conversation, is
an *aside*: a separate conversation, whose id is derived from the chat's id and the request's first words. The chat is
not changed. A user who edits the first message of a chat gets an aside too, and continues there.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote
from uuid import UUID, uuid5

from starlette.requests import Request

from frameledger.record import MAX_KEY_BYTES, is_context_id
from frameledger_services.client import NoSuchContextError
from frameledger_services.gateway import parameters, preferences
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.openai import history
from frameledger_services.gateway.openai.seen_messages import text_of
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.publishing import KEYS
from frameledger_services.settings_types import names_in

HEADER = "Frameledger-Context"

_PRINTABLE = "".join(chr(number) for number in range(0x21, 0x7F) if chr(number) != "%")

_TASK = re.compile(r"\s*### Task:", re.IGNORECASE)
"""How Open WebUI's own requests begin (its prompt templates in `config.py`). One may be sent before the first request
of the chat."""


@dataclass(frozen=True, slots=True)
class Named:
    """A conversation, and what named it."""

    context_id: str
    by: Literal["client", "front end", "nobody"]


def named(request: Request, in_body: str | None, chat_id_headers: str) -> Named:
    """Returns the conversation of a request. If none is named, its id is new, or derived from the request's
    `Idempotency-Key`, and begins with the prefix of its token; so does the id of a front end's chat.

    Raises `bad-parameter` for an invalid id, and `NoSuchContextError` for a conversation that the caller may not see.
    """
    token_caller = caller.of(request.scope)
    context_id = of_header(request) if in_body is None else in_body
    if context_id is not None:
        _check(context_id)
        if not token_caller.may_see(context_id):
            raise NoSuchContextError(context_id)
        return Named(context_id, "client")
    for name in names_in(chat_id_headers):
        if chat := request.headers.get(name, "").strip():
            context_id = chat if token_caller.may_see(chat) else token_caller.prefix + chat
            _check(context_id)
            return Named(context_id, "front end")
    key = preferences.idempotency_key(request)
    unique = uuid7() if key is None else uuid5(KEYS, f"{token_caller.token_id}\nconversation\n{key}")
    return Named(f"{token_caller.prefix}chat-{unique}", "nobody")


def of_header(request: Request) -> str | None:
    """Returns the conversation that our header names, or None without the header. Raises `bad-parameter` for an invalid
    id."""
    written = request.headers.get(HEADER)
    if written is None:
        return None
    try:
        return parameters.read_id(written.strip())
    except ValueError as error:
        raise ProblemError(
            "bad-parameter", f"{HEADER}: {error}", param="conversation", code="invalid_value"
        ) from None


def in_header(context_id: str) -> dict[str, str]:
    """Returns the header that names a conversation. The id is percent-encoded as in a path: all but printable ASCII,
    and % itself."""
    return {HEADER: quote(context_id, safe=_PRINTABLE)}


def is_task(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a request looks like one that a front end sends for its own purposes."""
    without_instructions = [one for one in messages if one.get("role") not in history.INSTRUCTIONS]
    return len(without_instructions) == 1 and _TASK.match(text_of(without_instructions[0])) is not None


def aside(chat: Named, messages: Sequence[Mapping[str, Any]]) -> Named:
    """Returns the conversation of a request that has nothing in common with the chat that it names."""
    first = next((one for one in messages if one.get("role") == "user"), messages[0])
    digest = hashlib.sha256(" ".join(text_of(first).split()).encode(errors="backslashreplace"))
    context_id = f"{chat.context_id}~{digest.hexdigest()[:12]}"
    _check(context_id)
    return Named(context_id, chat.by)


def uuid7() -> UUID:
    """Returns a random id that sorts by its time (RFC 9562)."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10))
    number = number & ~(0xF << 76) | 7 << 76
    return UUID(int=number & ~(0b11 << 62) | 0b10 << 62)


def _check(context_id: str) -> None:
    if not is_context_id(context_id):
        raise ProblemError(
            "bad-parameter",
            f"A conversation's id has 1 to {MAX_KEY_BYTES} bytes without NUL.",
            param="conversation",
            code="invalid_value",
        )
