"""The scope that a request needs, and the conversation that its caller must be allowed to read, by method and path.

It applies before every route, so a new route is closed until it is listed here: an unlisted one exists only for a token
with the scope `admin` and without a prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from frameledger.record import MAX_KEY_BYTES
from frameledger.values import value
from frameledger_services.gateway.access.caller import Caller, Scope
from frameledger_services.gateway.openai_responses import response_ids

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing."""

PUBLIC = frozenset(
    ("/", "/work", "/livez", "/readyz", "/openapi.json", "/asyncapi.json", "/docs", "/session")
)
"""Paths that return nothing of a conversation."""

PUBLIC_FOLDERS = ("/problems/", "/schemas/", "/page/", "/c/")

CONTEXTS = "/v1/contexts"

LISTS = frozenset((CONTEXTS, "/v1/waiting", "/v1/ambiguous", "/v1/parked"))
"""Lists over conversations, with only those that the caller may see."""

COMPLETIONS = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MODELS = "/v1/models"
AG_UI = "/v1/ag-ui"

OPENAI_ELSEWHERE = frozenset(
    f"/v1/{name}"
    for name in (
        "assistants",
        "audio",
        "batches",
        "chat",
        "completions",
        "containers",
        "conversations",
        "embeddings",
        "evals",
        "files",
        "fine_tuning",
        "images",
        "moderations",
        "organization",
        "realtime",
        "threads",
        "uploads",
        "vector_stores",
        "videos",
    )
)
"""Parts of OpenAI's API that the gateway does not have. Its clients get that answer whatever their scopes are."""

OPENAI_CONVERSATIONS = "/v1/conversations"
_OPENAI_CONVERSATION = re.compile(rf"{OPENAI_CONVERSATIONS}(/[^/]+(/items(/[^/]+)?)?)?")
"""OpenAI's own paths of conversations. Any other path below that name is meant for the routes of `CONTEXTS`."""

OF_THE_PROCESS = frozenset(("/v1/workers", "/v1/tools", "/v1/lag", MODELS))
"""Lists that name no conversation."""

OF_OPERATORS = frozenset(("/v1/rejected",))
"""Lists over all conversations, whose scope is `admin`."""

NAMED_WITHIN = frozenset((COMPLETIONS, RESPONSES, AG_UI))
"""Routes whose conversation is named in the body or a header, so they check themselves whether the caller may see it.
They publish, and their responses have content."""


@value
class Need:
    """The permissions that a request needs."""

    scopes: tuple[Scope, ...]
    """The required scopes, all of them."""

    context_id: str | None = None
    """The conversation that its path names."""

    keeps_to_prefix: bool = True
    """Whether it returns nothing beyond the caller's prefix. Otherwise it does not exist for a caller with a prefix."""

    needs_token: bool = True
    """Whether it needs a token, with any scopes."""

    is_listed: bool = True
    """Whether its path is listed here. An unlisted path is most likely misspelled, so the response to a caller without
    the scope is the same as to one with it: it does not exist."""

    def exists_for(self, caller: Caller) -> bool:
        """Returns whether it exists for the caller. If not, the response is the one for an unknown path."""
        if self.context_id is not None:
            return caller.may_see(self.context_id)
        return self.keeps_to_prefix or not caller.prefix


MAX_KEPT = 2 * 3 * MAX_KEY_BYTES
"""Maximum length of a path whose need is cached: enough for the longest id of a conversation, with each byte
percent-encoded, and as much after it. Longer paths, which any client can send without a token, are not cached."""


def needed(method: str, path: str) -> Need:
    """Returns the permissions that a request needs. `path` is undecoded, as the routes match it."""
    return _kept(method, path) if len(path) <= MAX_KEPT else _needed(method, path)


@lru_cache(maxsize=1_024)
def _kept(method: str, path: str) -> Need:
    return _needed(method, path)


def _needed(method: str, path: str) -> Need:
    if path in PUBLIC or path.startswith(PUBLIC_FOLDERS):
        return Need((), needs_token=False)
    for folder in (CONTEXTS, AG_UI):
        if path.startswith(f"{folder}/"):
            return Need((_of_method(method),), _named_in(path, folder))
    if path.startswith(f"{RESPONSES}/"):
        response = response_ids.parse(_named_in(path, RESPONSES))
        scopes: tuple[Scope, ...] = ("read",) if method in SAFE else ("append", "read")
        return Need(scopes, None if response is None else response.context_id)
    if path in NAMED_WITHIN:
        return Need(("append", "read"))
    if is_openai_elsewhere(path) or is_misnamed(path):
        return Need(())
    if path in LISTS or is_of_the_process(path):
        return Need((_of_method(method),))
    return Need(("admin",), keeps_to_prefix=False, is_listed=path in OF_OPERATORS)


def is_of_the_process(path: str) -> bool:
    """Returns whether a path names no conversation."""
    return path in OF_THE_PROCESS or path.startswith(f"{MODELS}/")


def is_openai(path: str) -> bool:
    """Returns whether a path belongs to OpenAI's API, also if the gateway does not have it."""
    own = (COMPLETIONS, RESPONSES, MODELS)
    return path in own or path.startswith((f"{RESPONSES}/", f"{MODELS}/")) or is_openai_elsewhere(path)


def is_openai_elsewhere(path: str) -> bool:
    """Returns whether a path belongs to OpenAI's API and the gateway does not have it."""
    return path != COMPLETIONS and _top(path) in OPENAI_ELSEWHERE and not is_misnamed(path)


def is_misnamed(path: str) -> bool:
    """Returns whether a path is below OpenAI's name for conversations and is not one of its paths. It does not exist,
    whatever the caller's scopes are."""
    return _top(path) == OPENAI_CONVERSATIONS and _OPENAI_CONVERSATION.fullmatch(path) is None


def _named_in(path: str, folder: str) -> str:
    """Returns the segment after a folder, decoded as the routes decode it."""
    return unquote_to_bytes(path.removeprefix(f"{folder}/").partition("/")[0]).decode(errors="replace")


def _top(path: str) -> str:
    return "/".join(path.split("/", 3)[:3])


def _of_method(method: str) -> Scope:
    if method in SAFE:
        return "read"
    return "admin" if method == "DELETE" else "append"
