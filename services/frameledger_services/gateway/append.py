"""`POST /v1/contexts/{id}/frames`: publishes frames unchanged and waits until they are stored.

A repeated request changes nothing: a frame counts once by its id, and `Idempotency-Key` derives ids for frames without
one, by their places in the request. A batch keeps its order but is not atomic: it is several records.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote_to_bytes
from uuid import uuid5

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger.decode_error import DecodeError
from frameledger.decoding import MAX_VALUE_BYTES
from frameledger.frames import AnyFrame, LLMContextEraseFrame, encode_frame
from frameledger_services.client import EncodedFrame, NotVisibleError, PublishedFrame
from frameledger_services.event_log.frame_defaults import with_defaults
from frameledger_services.gateway import answers, body, outcomes, parameters, preferences
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import JSON, NDJSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.publishing import KEYS, publishing, source_of
from frameledger_services.gateway.routes import DescribedRoute, bound

FRAMES = f"{PATH}/frames"

ADDED_BYTES = 256
"""An upper bound of the bytes of an added id and time."""


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the route."""

    return [
        DescribedRoute(
            "POST",
            FRAMES,
            bound(_append, dependencies),
            scope="append",
            summary="Append frames to a conversation: one, a JSON array, or NDJSON. The first frame creates it. "
            "An `LLMContextEraseFrame` needs the scope `admin` too.",
            parameters=[parameters.CONTEXT, *HEADERS],
            body={
                "required": True,
                "content": {
                    JSON: {"schema": _BODY, "example": EXAMPLE},
                    NDJSON: {"schema": {"type": "string"}},
                },
            },
            answers={
                201: outcomes.APPENDED
                | {"headers": {name: {"schema": {"type": "string"}} for name in ("ETag", "Location")}},
                202: outcomes.ACCEPTED,
            },
            problems=(
                "bad-frame",
                "bad-parameter",
                "no-such-context",
                "context-changed",
                "too-large",
                "unsupported-media-type",
                "key-reused",
                "log-away",
            ),
        )
    ]


async def _append(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    expected = preferences.expected_version(request)
    most = dependencies.settings.gateway_request_secs
    wait = preferences.wait_seconds(request, most)
    if expected is not None:
        wait = wait or preferences.WAIT_SECONDS
    key = preferences.idempotency_key(request)
    sent = await body.read(request)
    _check_rights(request, sent)
    frames = [
        _frame(value, frame, context_id, key, number, expected) for number, (value, frame) in enumerate(sent)
    ]
    published = await _published(dependencies, request, context_id, frames, expected)
    completed = expected is not None or any(frame.id is None for _, frame in sent)
    if wait == 0:
        return outcomes.accepted(request, context_id, published, completed=completed)
    try:
        # Sent even if the token has been revoked since: it has only the outcomes of frames that the token could
        # publish.
        stored = await dependencies.client.until_stored(context_id, published, within=wait)
    except NotVisibleError as error:
        return outcomes.accepted(request, context_id, published, str(error), completed=completed)
    return _created(request, context_id, stored, expected, completed=completed)


EXAMPLE = {
    "type": "LLMMessagesAppendFrame",
    "messages": [{"role": "user", "content": "Is there a night train?"}],
    "run_llm": True,
}

_BODY = {
    "description": "A frame, or an array of them: an object with a `type`, whose fields are in "
    "its schema. With an `id` it counts once, however often it is sent. In NDJSON each line is a frame.",
    "oneOf": [
        {"$ref": "#/components/schemas/Frame"},
        {
            "type": "array",
            "items": {"$ref": "#/components/schemas/Frame"},
            "minItems": 1,
            "maxItems": body.MAX_FRAMES,
        },
    ],
}

CAUSE = parameters.Parameter(
    "Frameledger-Causation-Id",
    {"type": "string", "minLength": 1, "maxLength": 255},
    "The id of the frame of this conversation that caused these frames, percent-encoded; stored as `causation_id`.",
    lambda written: parameters.read_text(unquote_to_bytes(written).decode()),
    "header",
)

HEADERS = (
    outcomes.PREFER,
    CAUSE,
    parameters.header(
        "If-Match",
        'A version in quotes, such as `"41"`, or the `ETag` of a context. With one frame: it is applied only if '
        "messages, tools and settings have not changed since; otherwise 412. "
        '`"0"`: only if the conversation has nothing yet.',
    ),
    parameters.header(
        "Idempotency-Key",
        "1 to 255 characters. Frames without an `id` get one that follows from the key and their place, so that "
        "sending the same request again stores nothing twice; another frame at the same place is 422.",
    ),
    parameters.TRACE,
)


def _check_rights(request: Request, sent: Sequence[tuple[bytes, AnyFrame]]) -> None:
    """Raise `forbidden` if one of the frames erases the conversation and the token lacks the scope `admin`, which
    `DELETE` needs too."""
    if "admin" in caller.of(request.scope).scopes:
        return
    for number, (_, frame) in enumerate(sent, 1):
        if isinstance(frame, LLMContextEraseFrame):
            sentence = f"Frame {number} erases the conversation, which needs a token with the scope admin."
            raise ProblemError("forbidden", sentence)


def _frame(
    value: bytes, frame: AnyFrame, context_id: str, key: str | None, number: int, expected: int | None
) -> EncodedFrame | AnyFrame:
    """Returns the frame unchanged if it has an id, and otherwise with one; with a key the same frame gets the same
    bytes. Raises `too-large` if it becomes too long, which it may because numbers are written again: 1e9 as
    1000000000.0."""
    if frame.id is not None:
        return EncodedFrame(frame, value)
    if len(value) > MAX_VALUE_BYTES - ADDED_BYTES:
        raise ProblemError(
            "too-large",
            f"A frame without an id may have {MAX_VALUE_BYTES - ADDED_BYTES} bytes, because an id is added.",
            code="too_large",
            frame=number + 1,
        )
    if key is None:
        frame = with_defaults(frame)
    else:
        frame = frame.model_copy(update={"id": str(uuid5(KEYS, f"{context_id}\n{key}\n{number}"))})
    if expected is not None:
        # The client serialises it, with that version.
        return frame
    try:
        return EncodedFrame.of(encode_frame(frame))
    except DecodeError as error:
        raise body.refused(error, number + 1) from None


async def _published(
    dependencies: Dependencies,
    request: Request,
    context_id: str,
    frames: Sequence[EncodedFrame | AnyFrame],
    expected: int | None,
) -> tuple[PublishedFrame, ...]:
    ids = [(one.frame if isinstance(one, EncodedFrame) else one).id for one in frames]
    # A frame that the client serialises expects a version, and is the only one.
    with publishing(context_id, ids, frame=1):
        return await dependencies.client.publish(
            context_id,
            *frames,
            source=source_of(request),
            traceparent=request.headers.get("traceparent"),
            expected_version=expected,
            causation_id=CAUSE.of(request),
            within=dependencies.settings.gateway_request_secs,
        )


def _created(
    request: Request,
    context_id: str,
    stored: Sequence[PublishedFrame],
    expected: int | None,
    *,
    completed: bool,
) -> Response:
    answer = outcomes.appended(context_id, stored, completed=completed)
    newest, frames = answer["version"], answer["frames"]
    if any(one.outcome == "rejected" and one.reason == "id_reused" for one in stored):
        raise ProblemError(
            "key-reused",
            "A frame with this id is stored with other content.",
            context_id=context_id,
            frames=frames,
        )
    if expected is not None and stored[0].reason == "context_changed":
        raise ProblemError(
            "context-changed",
            f"The conversation has changed since version {expected}.",
            context_id=context_id,
            newest=newest,
            frames=frames,
        )
    headers = {
        "Location": request.url.path.removesuffix("/frames"),
        **preferences.applied(request, is_stored=True),
    }
    if newest is not None:
        headers["ETag"] = answers.etag(newest)
    return answers.json_answer(answer, status=201, headers=headers)
