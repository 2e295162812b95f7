"""Problem responses (RFC 9457): a closed list of kinds, each with a page that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from frameledger.errors import RefusedError
from frameledger_services.gateway import text_page
from frameledger_services.gateway.access import policy
from frameledger_services.gateway.media_types import JSON, PROBLEM_JSON
from frameledger_services.gateway.openai import errors as openai_errors
from frameledger_services.gateway.text_page import prose

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
        "Invalid frame",
        "The body is not one frame, a JSON array of frames, or NDJSON. `code` is the error code that a dead letter "
        "would have, `frame` the number of the frame in the body, starting at 1. Nothing was published.",
        "Correct what `detail` names.",
    ),
    "bad-parameter": Kind(
        400,
        "Invalid parameter",
        "A path segment, a query parameter, a header or a field of the body has an invalid value.",
        "Correct what `detail` names; /openapi.json describes every parameter.",
    ),
    "unauthorised": Kind(
        401,
        "Authentication required",
        "The request has no token, or one that is unknown, revoked or expired.",
        "Send `Authorization: Bearer` with a token of `frameledger token new`.",
    ),
    "forbidden": Kind(
        403,
        "Not permitted",
        "The token is valid but lacks the scope of this route, or the request comes from a page of another origin.",
        "Use a token with the scope that `detail` names.",
    ),
    "answer-refused": Kind(
        400,
        "The provider rejected the request",
        "The provider does not answer this conversation as it is, or with these settings. Frames that were published "
        "remain.",
        "Correct what `detail` names: a message, a parameter, the length of the history.",
    ),
    "not-found": Kind(
        404,
        "Not found",
        "There is no such route, or no run, call, message or frame with this name.",
        "Check the address; /openapi.json lists every route.",
    ),
    "no-such-context": Kind(
        404,
        "Conversation not found",
        "The database has no frame of this conversation, or the token does not cover it.",
        "Check the id. A frame that was published a moment ago may not be stored yet: append with `Prefer: wait`.",
    ),
    "no-such-model": Kind(
        404,
        "Model not found",
        "No running inference service offers a model with this name.",
        "`GET /v1/models` lists the models; `frameledger` selects any of them.",
    ),
    "no-such-response": Kind(
        404,
        "Response not found",
        "No response was asked for in this conversation at this version, or the token does not cover it.",
        "Send the `id` of a response unchanged.",
    ),
    "no-such-version": Kind(
        404,
        "Version not found",
        "The conversation has fewer frames; `newest` is its newest version.",
        "Request a version up to `newest`, or omit the version for the newest one.",
    ),
    "no-such-form": Kind(
        404,
        "No such representation",
        "This provider's API cannot express part of the context, or the run has no request that can be rebuilt.",
        "Read it without `form`.",
    ),
    "method-not-allowed": Kind(
        405,
        "Method not allowed",
        "The route exists but does not support this method; `Allow` lists the methods that it supports.",
        "Use one of them.",
    ),
    "too-slow": Kind(
        408,
        "Request too slow",
        "The body did not arrive in time: within 30 seconds, plus one for each 1,000 bytes. Nothing was published.",
        "Send the request again; in smaller parts if the network is slow.",
    ),
    "already-settled": Kind(
        409,
        "Call already settled",
        "A call has only one result, and this call already has another one.",
        "Read the result: `GET /v1/contexts/{id}/calls`.",
    ),
    "conversation-busy": Kind(
        409,
        "Conversation busy",
        "A run is answering the conversation, the conversation is parked or only recorded, or another client has just "
        "published to it. The question was not published.",
        "Wait for the answer, or stop it; then send the request again.",
    ),
    "erased": Kind(
        410,
        "Conversation erased",
        "Its frames are deleted permanently; `receipt` has the time, the reason and the requester.",
        "Nothing. A frame that is published later starts a new conversation with this id.",
    ),
    "context-changed": Kind(
        412,
        "Conversation changed",
        "Messages, tools or settings changed after the version of `If-Match`. The frame is stored with the outcome "
        "`ignored`, as version `newest`.",
        "Read the context again and publish a new frame.",
    ),
    "too-large": Kind(
        413,
        "Too large",
        "The body, a frame, or the number of frames exceeds a limit. Nothing was published.",
        "Send less in one request; `detail` has the limit.",
    ),
    "unsupported-media-type": Kind(
        415,
        "Unsupported media type",
        "Frames are `application/json` or `application/x-ndjson`, other bodies `application/json`. None is compressed.",
        "Set `Content-Type` to one of them, and send no `Content-Encoding`.",
    ),
    "key-reused": Kind(
        422,
        "Idempotency key reused",
        "An earlier request with this `Idempotency-Key`, or a frame with this id, has other content. The earlier one "
        "counts.",
        "Use a new key for a new request.",
    ),
    "too-many": Kind(
        429, "Too many requests", "The limit of the token, or of streams of this gateway, is reached.", _AGAIN
    ),
    "client-gone": Kind(
        499,
        "Client disconnected",
        "The client closed its connection before its response began. Nobody reads this response: it is for metrics and "
        "proxies.",
        "Nothing, if the client no longer wanted the response; otherwise increase its timeout.",
    ),
    "internal-error": Kind(
        500,
        "Internal error",
        "The gateway failed because of a bug; its log has the error.",
        "Report it with `instance`.",
    ),
    "answer-failed": Kind(
        502,
        "The model failed to answer",
        "The model's provider failed, or the worker that called it. `code` is the error code.",
        "Send the same request again, unless `code` means that the provider rejects the key, the account or the model.",
    ),
    "no-answer": Kind(
        503,
        "No inference service responded",
        "No inference service started to answer in time. The question is in the conversation.",
        "Check that one is running (`frameledger status`), and send the same request again.",
    ),
    "log-away": Kind(
        503,
        "Kafka unavailable",
        "Kafka did not acknowledge frames. `published` are the ids of acknowledged frames, `unpublished` of those that "
        "may not be on the log.",
        "Send the same request again: a frame that is published twice counts once.",
    ),
    "database-away": Kind(503, "Database unavailable", "PostgreSQL is down or too slow.", _AGAIN),
    "wrong-schema": Kind(
        503,
        "Database schema mismatch",
        "The tables do not have the schema of this release of the gateway.",
        "The operator runs `frameledger migrate`, or upgrades the gateway.",
    ),
    "not-visible-yet": Kind(
        503,
        "Not stored yet",
        "The frames are on the log, but no projector has stored them in time.",
        "Check again later. There is no need to send anything again; the same result of a call may be sent again.",
    ),
    "draining": Kind(503, "Gateway stopping", "It accepts no new requests.", _AGAIN),
}
"""Every problem, by its word."""


class ProblemError(RefusedError):
    """The request fails with a problem response.

    Remedy: See the page `/problems/` of its kind.
    """

    def __init__(
        self, word: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        """`word` is a key of `KINDS`, `detail` a sentence about this request. `members` are added to the response."""
        super().__init__(detail)
        self.word = word
        self.headers = headers
        self.members = members


def draining(headers: Mapping[str, str] | None = None) -> ProblemError:
    """Returns the problem that the gateway is stopping."""
    return ProblemError("draining", "The gateway is stopping.", headers=headers)


def answer(request: Request, problem: ProblemError) -> Response:
    """Returns a problem as a response."""
    return response(request.url, problem)


def response(url: URL, problem: ProblemError) -> Response:
    """Returns a problem as a response, given only the address, for ASGI middleware. On the paths of the OpenAI API it
    has that API's error format."""
    kind = KINDS[problem.word]
    is_openai = policy.is_openai(url.path)
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
    media_type = JSON if is_openai else PROBLEM_JSON
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
    about = f"<p>Status {kind.status}, <code>{word}</code>. {prose(kind.meaning)}</p>"
    return HTMLResponse(text_page.page(kind.title, f"{about}<h2>What to do</h2><p>{prose(kind.remedy)}</p>"))


ROUTES = [Route(PAGES + "{word}", _page, methods=["GET"])]
"""The pages to which the `type` of a problem refers."""
