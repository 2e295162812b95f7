"""`GET /v1/contexts/{id}/frames`: the stored frames, a page of them, all as NDJSON, or one byte for byte."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.gateway import answers, conversations, parameters, preferences
from frameledger_services.gateway.answers import REVALIDATED
from frameledger_services.gateway.append import FRAMES
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.frame_json import written
from frameledger_services.gateway.line_stream import LineStream
from frameledger_services.gateway.media_types import JSON, NDJSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.store import wanted_frames
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.wanted_frames import Wanted

AT_ONCE = 500
PIECE_BYTES = 1 << 20
"""Maximum number of frames in one read for NDJSON, and their approximate size: a slow client keeps this much in
memory."""

PAGE_BYTES = 4 << 20
"""A page ends early once its frames have about this many bytes. `Link` leads to the next page."""

MAX_IDS = 500

VERSION = parameters.in_path(
    parameters.integer("version", ""), "version", "The version of the frame, from 1.", 1
)

AFTER = parameters.integer("after", "Only frames after this version, from the first of them on.")
BEFORE = parameters.integer(
    "before", "Only frames before this version; without `after`, the last `limit` of them."
)
LIMIT = parameters.integer("limit", "How many frames a page has at most. Default: 100.", least=1, most=1_000)
TYPE = parameters.text("type", "Only frames of this type, such as `LLMTextFrame`.")
OUTCOME = parameters.word(
    "outcome", "Only frames with this outcome.", "applied", "ignored", "unknown", "parked"
)
RUN = parameters.text("run_id", "Only frames that name this run.")
ID = parameters.repeated(parameters.text("id", "Only the frames with these ids: `id=a&id=b`."), MAX_IDS)
FORMAT = parameters.word(
    "format",
    "`ndjson`: all frames as a file, one on each line, as with `Accept: application/x-ndjson`.",
    "ndjson",
)
RAW = parameters.word(
    "raw", "`1`: only the value of the record, byte for byte, without version and outcome.", "1"
)


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""

    problems = ("bad-parameter", "no-such-context", "erased")
    return [
        DescribedRoute(
            "GET",
            FRAMES,
            bound(_frames, dependencies),
            scope="read",
            summary="The frames of a conversation: a page, or all of them as NDJSON.",
            parameters=[parameters.CONTEXT, AFTER, BEFORE, LIMIT, TYPE, OUTCOME, RUN, ID, FORMAT],
            answers={
                200: {
                    "description": "The frames in the order of their versions. `Link` leads to the next page.",
                    "headers": {"Link": {"schema": {"type": "string"}}},
                    "content": {
                        JSON: {"schema": {"$ref": "#/components/schemas/FramePage"}},
                        NDJSON: {"schema": {"type": "string"}},
                    },
                }
            },
            problems=problems,
        ),
        DescribedRoute(
            "GET",
            FRAMES + "/{version}",
            bound(_frame, dependencies),
            scope="read",
            summary="Read one frame.",
            parameters=[parameters.CONTEXT, VERSION, RAW],
            answers={
                200: {
                    "description": "The frame, or with `raw` the value of its record.",
                    "content": {
                        JSON: {
                            "schema": {
                                "anyOf": [
                                    {"$ref": "#/components/schemas/StoredFrame"},
                                    {"type": "object"},
                                ]
                            }
                        }
                    },
                }
            },
            problems=(*problems, "no-such-version"),
        ),
    ]


async def _frames(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    wanted, newest = _selection(request)
    is_file = FORMAT.of(request) is not None
    if is_file or preferences.prefers(request.headers, NDJSON):
        await conversations.head_of(dependencies, context_id)
        dependencies.check_not_stopping()
        headers = {**REVALIDATED, **(answers.as_file(f"{context_id}.jsonl") if is_file else {})}
        return LineStream(_all(dependencies, context_id, wanted), headers)
    limit = LIMIT.of(request) or 100
    page = await dependencies.database.read(
        wanted_frames.page, context_id, wanted, limit, PAGE_BYTES, newest=newest
    )
    frames = page.frames
    if not frames:
        await conversations.head_of(dependencies, context_id)
    headers = dict(REVALIDATED)
    if not page.is_all:
        # A page from the end is followed by the page before it.
        headers |= (
            answers.next_page(request, before=frames[0].version)
            if newest
            else answers.next_page(request, after=frames[-1].version)
        )
    listed = b",".join(written(one) for one in frames)
    about = answers.opened({"context_id": context_id})
    return Response(b'%s,"frames":[%s]}' % (about, listed), media_type=JSON, headers=headers)


async def _frame(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    version = VERSION.in_path_of(request)
    if RAW.of(request) is not None:
        value = await dependencies.database.read(wanted_frames.payload, context_id, version)
        if value is not None:
            return Response(value, media_type=JSON, headers=REVALIDATED)
    else:
        page = await dependencies.database.read(
            wanted_frames.page, context_id, Wanted(after=version - 1), 1, PAGE_BYTES
        )
        if page.frames and page.frames[0].version == version:
            return Response(written(page.frames[0]), media_type=JSON, headers=REVALIDATED)
    newest = (await conversations.head_of(dependencies, context_id)).newest
    raise ProblemError(
        "no-such-version",
        f"The context {context_id!r} has no frame of version {version}.",
        context_id=context_id,
        newest=newest,
    )


async def _all(dependencies: Dependencies, context_id: str, wanted: Wanted) -> AsyncIterator[bytes]:
    """Yields each frame on a line. The next frames are read when the client has taken these.

    Raises the problem `draining` when the gateway stops: a response that simply ended would be taken for complete.
    """
    after, is_all = wanted.after, False
    while not is_all:
        dependencies.check_not_stopping()
        page = await dependencies.database.read(
            wanted_frames.page,
            context_id,
            replace(wanted, after=after),
            AT_ONCE,
            PIECE_BYTES,
        )
        is_all = page.is_all
        if page.frames:
            yield b"".join(written(one) + b"\n" for one in page.frames)
            after = page.frames[-1].version


def _selection(request: Request) -> tuple[Wanted, bool]:
    """Returns the requested frames, and whether the page is the last one of them."""
    after, before = AFTER.of(request), BEFORE.of(request)
    ids: Sequence[str] = request.query_params.getlist(ID.name)
    if len(ids) > MAX_IDS:
        raise ProblemError("bad-parameter", f"id: {MAX_IDS} at most.")
    try:
        uuids = [frame_uuid(ID.read(one)) for one in ids]
    except ValueError as error:
        raise ProblemError("bad-parameter", f"id: {error}") from None
    return (
        Wanted(
            after=after or 0,
            before=before,
            type=TYPE.of(request),
            outcome=OUTCOME.of(request),
            run_id=RUN.of(request),
            ids=uuids or None,
        ),
        before is not None and after is None,
    )
