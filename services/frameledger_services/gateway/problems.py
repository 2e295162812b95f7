"""Problems: how a request is answered that is not done (RFC 9457). Their words are a closed list; each has a page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from frameledger.errors import RefusedError
from frameledger_services.gateway.openai import errors as openai_errors

MEDIA_TYPE = "application/problem+json"
JSON = "application/json"
PAGES = "/problems/"


class Kind(NamedTuple):
    """One kind of problem."""

    status: int
    title: str
    meaning: str
    remedy: str


_AGAIN = "Send the same request again, not before the seconds of `Retry-After`."

KINDS: Mapping[str, Kind] = {
    "bad-frame": Kind(
        400,
        "This is no frame",
        "The body is not one frame, a JSON array of frames, or NDJSON. `code` is the word that a dead letter would "
        "have, `frame` the number of the frame in the body, from 1. Nothing was published.",
        "Mend what `detail` names.",
    ),
    "bad-parameter": Kind(
        400,
        "A parameter is wrong",
        "A path segment, a query parameter or a header has a value that it cannot have.",
        "Mend what `detail` names; /openapi.json has every parameter.",
    ),
    "unauthorised": Kind(
        401,
        "Who asks is not known",
        "The request has no token, or one that is unknown, revoked or too old.",
        "Send `Authorization: Bearer` with a token of `frameledger token new`.",
    ),
    "forbidden": Kind(
        403,
        "This token may not do that",
        "The token is good, and lacks the scope of this route; or a page of another origin asks.",
        "Use a token with the scope that `detail` names.",
    ),
    "answer-refused": Kind(
        400,
        "The provider refuses this",
        "The provider would not answer this conversation as it is, or with these settings. Frames that were published "
        "stay.",
        "Mend what `detail` names: a message, a parameter, the length of the history.",
    ),
    "not-found": Kind(
        404,
        "There is nothing here",
        "No route, or no run, call, message or frame of that name.",
        "Check the address; /openapi.json has every route.",
    ),
    "no-such-context": Kind(
        404,
        "There is no such conversation",
        "No frame of this conversation is in the database, or the token is for others.",
        "Check the id. What was published just now may not be stored yet: append with `Prefer: wait`.",
    ),
    "no-such-model": Kind(
        404,
        "There is no such model",
        "No inference service that is alive answers for a model of this name.",
        "`GET /v1/models` lists the models; `frameledger` is whichever there is.",
    ),
    "no-such-version": Kind(
        404,
        "There is no such version",
        "The conversation has fewer frames than that; `newest` is how many.",
        "Ask for a version up to `newest`, or for none, which is the newest.",
    ),
    "no-such-form": Kind(
        404,
        "It has no such form",
        "A provider's API has no form for something in the context, or a run had no request that can be made again.",
        "Read it without `form`.",
    ),
    "method-not-allowed": Kind(
        405,
        "That cannot be done with this",
        "The address is right and has no such method; `Allow` has those that it has.",
        "Use one of them.",
    ),
    "already-settled": Kind(
        409,
        "The call has its result",
        "A call has one result, and this one had it before.",
        "Read it: `GET /v1/contexts/{id}/calls`.",
    ),
    "conversation-busy": Kind(
        409,
        "The conversation is busy",
        "It is being answered, is parked or only recorded, or somebody else has said something meanwhile. Nothing was "
        "said.",
        "Wait for the answer, or stop it; then send the request again.",
    ),
    "erased": Kind(
        410,
        "The conversation was erased",
        "Its frames are deleted for good; `receipt` says when, why and for whom.",
        "There is nothing to do. A frame that is published later begins a new conversation of that id.",
    ),
    "context-changed": Kind(
        412,
        "The conversation has changed",
        "Messages, tools or settings changed after the version of `If-Match`. The frame is stored as ignored, as the "
        "version `newest`.",
        "Read the context again, and say in a new frame what is to be said of it.",
    ),
    "too-large": Kind(
        413,
        "This is too large",
        "The body, a frame, or the number of frames in it is beyond a limit. Nothing was published.",
        "Send less at once; `detail` has the limit.",
    ),
    "unsupported-media-type": Kind(
        415,
        "The body is of another kind",
        "Frames are `application/json` or `application/x-ndjson`.",
        "Say in `Content-Type` which of the two it is.",
    ),
    "key-reused": Kind(
        422,
        "The key belongs to another request",
        "A request with this `Idempotency-Key`, or a frame with this id, came before with other content. What came "
        "first counts.",
        "Use a new key for a new request.",
    ),
    "too-many": Kind(429, "Too many requests", "The token's limit is reached.", _AGAIN),
    "internal-error": Kind(
        500, "This is a bug", "The gateway failed; its log has the error.", "Report it with `instance`."
    ),
    "answer-failed": Kind(
        502,
        "There is no answer",
        "The model's provider failed, or the worker that asked it. `code` says how.",
        "Send the same request again, unless `code` says that the provider refuses the key, the account or the model.",
    ),
    "no-answer": Kind(
        503,
        "Nobody answers",
        "No inference service began to answer within the time. The question is in the conversation.",
        "Look whether one is alive (`frameledger status`), and send the same request again.",
    ),
    "log-away": Kind(
        503,
        "The log does not answer",
        "Kafka did not acknowledge frames. `published` are the ids of those that are on the log, `unpublished` of "
        "those that may not be.",
        "Send the same request again: a frame that comes twice counts once.",
    ),
    "database-away": Kind(503, "The database does not answer", "PostgreSQL is away or too slow.", _AGAIN),
    "wrong-schema": Kind(
        503,
        "The database is of another release",
        "The tables do not have the shape that this gateway works with.",
        "Its operator runs `frameledger migrate`, or upgrades the gateway.",
    ),
    "not-visible-yet": Kind(
        503,
        "It is not stored yet",
        "What was asked for is on the log, and no projector has come so far within the time.",
        "Ask again later; nothing has to be published again.",
    ),
    "draining": Kind(503, "The gateway is stopping", "It takes no new requests.", _AGAIN),
}
"""Every problem, by its word."""


class ProblemError(RefusedError):
    """A request is answered by a problem instead of what it asked for.

    Remedy: What the page `/problems/` of its word says.
    """

    def __init__(
        self, word: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        """`word` is one of `KINDS`, `detail` a sentence about this request; `members` are added to the answer."""
        super().__init__(detail)
        self.word = word
        self.headers = headers
        self.members = members


def answer(request: Request, problem: ProblemError) -> Response:
    """Returns a problem as a response."""
    return response(request.url, problem)


def response(url: URL, problem: ProblemError) -> Response:
    """The same where there is only the address, as in ASGI middleware. On the paths of a foreign API it has that API's
    shape."""
    kind = KINDS[problem.word]
    is_openai = openai_errors.is_at(url.path)
    if is_openai:
        body = openai_errors.written(problem.word, kind.status, str(problem), problem.members)
    else:
        body = {
            "type": f"{PAGES}{problem.word}",
            "title": kind.title,
            "status": kind.status,
            "detail": str(problem),
            "instance": url.path,
            **problem.members,
        }
    media_type = JSON if is_openai else MEDIA_TYPE
    headers = {"Cache-Control": "no-store", **(problem.headers or {})}
    if kind.status in (429, 503):
        headers.setdefault("Retry-After", "1")
    return Response(
        json.dumps(body, default=str), status_code=kind.status, media_type=media_type, headers=headers
    )


async def _page(request: Request) -> Response:
    word = request.path_params["word"]
    kind = KINDS.get(word)
    if kind is None:
        raise ProblemError("not-found", f"There is no problem {word!r}; there are: {', '.join(KINDS)}.")
    title, meaning, remedy = (html.escape(text) for text in (kind.title, kind.meaning, kind.remedy))
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<h1>{title}</h1><p>Status {kind.status}, <code>{word}</code>. {meaning}</p><h2>What to do</h2>"
        f"<p>{remedy}</p></html>"
    )


ROUTES = [Route(PAGES + "{word}", _page, methods=["GET"])]
"""The pages that `type` leads to."""
