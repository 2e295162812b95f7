"""`GET /v1/contexts/{id}/stream`: a conversation's frames as server-sent events, from a version on and while they are
stored."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.client import NoSuchContextError
from frameledger_services.gateway import parameters, problems
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.event_stream import EventStream
from frameledger_services.gateway.live.follower import Chunk, Follower
from frameledger_services.gateway.media_types import EVENT_STREAM
from frameledger_services.gateway.parameters import INT64_MAX, Parameter
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.store.following import TYPES_SEPARATOR

FIRST_SECONDS = 5.0
"""Maximum wait of a new client for a database that does not respond."""

_VERSION = parameters.integer("version", "")

NEWEST = "now"


def _read_after(text: str) -> int | None:
    return None if text == NEWEST else _VERSION.read(text)


AFTER: Parameter[int | None] = Parameter(
    "after",
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": INT64_MAX}, {"enum": [NEWEST]}]},
    f"Begin after this version; `{NEWEST}`: with frames that are stored from now on. Default: 0, with the first frame.",
    _read_after,
)
LAST = Parameter(
    "Last-Event-ID",
    _VERSION.schema,
    "The `id` of the last event that was received: the stream continues after it, whatever `after` is. "
    "Browsers send it when they reconnect.",
    _VERSION.read,
    "header",
)
WAIT = parameters.word(
    "wait",
    "`1`: never end the stream, and wait for a conversation that does not exist yet, or was erased.",
    "1",
)
TYPES = parameters.text(
    "types",
    "Only frames of these types, separated by commas, such as `LLMTextFrame,InterruptionFrame`.",
    most=2_000,
)


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the route."""

    return [
        DescribedRoute(
            "GET",
            "/v1/contexts/{context_id}/stream",
            bound(_stream, dependencies),
            scope="read",
            summary="Follow the frames of a conversation as they are stored, as server-sent events.",
            answers={
                200: {
                    "description": "Events `frame`, `head` after the newest frame, `reset` if the client has more "
                    "frames than exist, `gone` if the conversation was erased. Their `id` is the version up to "
                    "which the client has everything.",
                    "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
                },
                204: {"description": "The client has everything, and the conversation ended or was erased."},
            },
            problems=("bad-parameter", "no-such-context"),
            parameters=[parameters.CONTEXT, AFTER, LAST, TYPES, WAIT],
        )
    ]


async def _stream(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    last, types = LAST.of(request), TYPES.of(request)
    if last is not None:
        after: int | None = last
    else:
        after = AFTER.of(request) if AFTER.name in request.query_params else 0
    frame_types = None if types is None else [one.strip() for one in types.split(TYPES_SEPARATOR)]
    follower = dependencies.hub.follow(context_id, after, frame_types)
    try:
        answer = await _answer(
            follower, after, is_resumed=last is not None, is_patient=WAIT.of(request) is not None
        )
    except BaseException:
        follower.close()
        raise
    if not isinstance(answer, EventStream):
        follower.close()
    return answer


async def _answer(follower: Follower, after: int | None, *, is_resumed: bool, is_patient: bool) -> Response:
    first = await follower.next(FIRST_SECONDS)
    if follower.is_closed:
        raise problems.draining()
    if first is None:
        if not is_resumed:
            raise ProblemError("database-away", "PostgreSQL does not respond.")
        # A browser does not reconnect after an error, so a client that reconnects waits for the database.
    elif not (first.exists or first.erased_version is not None or is_patient):
        raise NoSuchContextError(follower.cursor.context_id)
    elif _is_over(first, after) and not is_patient:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    return EventStream(follower, first, is_patient=is_patient)


def _is_over(first: Chunk, after: int | None) -> bool:
    """Returns whether there is nothing to send and nothing to wait for."""
    has_nothing_new = after is None or first.version == after
    return has_nothing_new and (first.ended or not first.exists)
