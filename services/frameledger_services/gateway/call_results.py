"""`POST /v1/contexts/{id}/calls/{call}/result`: a result from outside settles a call that is waiting or ambiguous.

The same request may be sent again: the id of its frame is derived from the call and the result, or from the
`Idempotency-Key`, so that one result is stored for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal, get_args
from uuid import uuid5

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger import strict_json
from frameledger.decode_error import DecodeError
from frameledger.frames import FunctionCallResultFrame
from frameledger.record import decode
from frameledger_services.client import PublishedFrame
from frameledger_services.gateway import answers, body, conversations, parameters, preferences
from frameledger_services.gateway.client_tools import is_same
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.frames import PAGE_BYTES
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.publishing import KEYS, publishing, source_of
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.store import past, tool_calls, wanted_frames
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.tool_calls import Settleable, SettleableStatus
from frameledger_services.store.wanted_frames import PagedFrame, Wanted
from frameledger_services.telemetry import tracing
from frameledger_services.telemetry.message_spans import settling

MAX_IGNORED = 5
"""How often a result may be ignored and published again."""

CALL = parameters.in_path(
    parameters.text("call", ""), "call", "The id of the call (`tool_call_id`).", "call_7"
)

KEY = parameters.header(
    "Idempotency-Key",
    "1 to 255 characters: one result is stored for each key. Without it, the same result can be sent again, too.",
)

WAIT = parameters.header(
    "Prefer",
    "How long to wait until the result is stored: `wait=10`, at most 10 seconds, and no more than the gateway's limit. "
    "If it is not stored by then, the answer is `not-visible-yet`, and the same request can be sent again. Default: "
    "`wait=5`, also with `respond-async`: there is no answer before the result is stored.",
)

SETTLED = (
    "The result is stored and settles the call. Repeating the request gets the same response. With the `outcome` "
    "`ignored`, `reason` says why the model does not read it: `place_replaced`, the history was replaced since the "
    "call; `context_full`, the conversation has no room for it."
)

RESULT: dict[str, Any] = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {"description": "The result, any JSON value: the model reads it."},
        "opened_version": {
            "type": "integer",
            "minimum": 0,
            "maximum": parameters.INT64_MAX,
            "description": "The `requested_version` of the call. A model may reuse an id: with this "
            "field, a late result settles no later call with the same id.",
        },
    },
    "additionalProperties": False,
}


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the route."""
    return [
        DescribedRoute(
            "POST",
            PATH + "/calls/{call}/result",
            bound(_settle, dependencies),
            scope="append",
            summary="Answer a call that waits for a person or the client, or resolve an ambiguous one.",
            parameters=[parameters.CONTEXT, CALL, KEY, WAIT, parameters.TRACE],
            body={
                "required": True,
                "content": {JSON: {"schema": RESULT, "example": {"result": {"approved": True}}}},
            },
            answers={201: {"description": SETTLED, "content": {JSON: {"schema": {"type": "object"}}}}},
            problems=(
                "bad-parameter",
                "no-such-context",
                "erased",
                "not-visible-yet",
                "log-away",
                "not-found",
                "already-settled",
                "key-reused",
                "too-large",
                "unsupported-media-type",
            ),
        )
    ]


async def _settle(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    call_id = CALL.in_path_of(request)
    result, opened_version = await _read_body(request)
    key = preferences.idempotency_key(request)
    call = await _find_call(dependencies, context_id, call_id, opened_version)
    ids = _frame_ids(context_id, call_id, call.requested_version, key, result)
    earlier = await _earlier_frames(dependencies, ids, context_id)
    # It may be stored although the call was read as open: after that read, or in a parked conversation.
    if (settled := _settled_by(earlier, key, result)) is not None:
        return _answer(context_id, call_id, _how(call, settled), settled)
    if not isinstance(call, Settleable):
        raise ProblemError(
            "already-settled",
            f"The call {call_id} is {call.status}: it does not wait for a result.",
            context_id=context_id,
        )
    # An id is used up once its frame was ignored.
    frame = call.settled_with(result, ids[min(len(earlier), len(ids) - 1)])
    stored = await _publish(dependencies, request, context_id, frame, call)
    if stored.reason == "id_reused":
        raise _key_reused()
    if stored.outcome == "erased":
        raise await conversations.missing(dependencies, context_id)
    if not _settles(stored.outcome, stored.reason):
        raise ProblemError(
            "already-settled",
            f"The result is stored as {stored.outcome} ({stored.reason}): it does not settle the call {call_id}.",
            context_id=context_id,
        )
    return _answer(context_id, call_id, _how(call, stored), stored)


def _how(
    call: Settleable | past.PastCall, settled: PublishedFrame | PagedFrame
) -> Literal["answered", "resolved"]:
    """Returns how this frame settles the call: `resolved` if the call was ambiguous before it."""
    if isinstance(call, past.PastCall):
        return "resolved" if call.resolved_version == settled.version else "answered"
    return "resolved" if call.status == "ambiguous" else "answered"


def _settles(outcome: str | None, reason: str | None) -> bool:
    return outcome in ("applied", "parked") or reason in tool_calls.SETTLES_ALL_THE_SAME


def _settled_by(earlier: Sequence[PagedFrame], key: str | None, result: Any) -> PagedFrame | None:
    """Returns the frame of this request that settles the call, if one does. Raises the problem `key-reused`."""
    settled = next((one for one in earlier if _settles(one.outcome, one.reason)), None)
    if settled is not None and key is not None and not is_same(_result_of(settled), result):
        raise _key_reused()
    return settled


def _result_of(stored: PagedFrame) -> Any:
    frame = decode(stored.payload or b"")
    return frame.result if isinstance(frame, FunctionCallResultFrame) else None


def _key_reused() -> ProblemError:
    return ProblemError("key-reused", "An earlier request with this Idempotency-Key had another result.")


def _answer(context_id: str, call_id: str, how: str, stored: PublishedFrame | PagedFrame) -> Response:
    answer = {
        "context_id": context_id,
        "tool_call_id": call_id,
        "settled": how,
        "version": stored.version,
        "outcome": stored.outcome,
        "reason": stored.reason,
    }
    return answers.json_answer(answer, status=201)


def _frame_ids(
    context_id: str, call_id: str, requested_version: int, key: str | None, result: Any
) -> Sequence[str]:
    """Returns the possible ids of this request's frame. A repeated request has the same ones."""
    what = json.dumps(result, sort_keys=True) if key is None else f"key {key}"
    digest = hashlib.sha256(what.encode()).hexdigest()
    name = f"{context_id}\nresult\n{call_id}\n{requested_version}\n{digest}"
    return [str(uuid5(KEYS, f"{name}\n{number}")) for number in range(MAX_IGNORED)]


async def _earlier_frames(
    dependencies: Dependencies, ids: Sequence[str], context_id: str
) -> Sequence[PagedFrame]:
    selection = Wanted(ids=[frame_uuid(one) for one in ids])
    page = await dependencies.database.read(wanted_frames.page, context_id, selection, len(ids), PAGE_BYTES)
    return page.frames


async def _publish(
    dependencies: Dependencies,
    request: Request,
    context_id: str,
    frame: FunctionCallResultFrame,
    call: Settleable,
) -> PublishedFrame:
    """Publish a call's result as part of the call's trace. Returns it once it is stored. Raises the problem
    `not-visible-yet`."""
    trace_of_call = tracing.of_stored(call.trace_id, call.cause)
    trace_of_request = request.headers.get("traceparent")
    with publishing(context_id, [frame.id]):
        with settling(
            context_id, frame.tool_call_id, call.function_name, trace_of_call, trace_of_request
        ) as span:
            published = await dependencies.client.publish(
                context_id,
                frame,
                source=source_of(request),
                causation_id=call.cause,
                traceparent=span.traceparent,
                within=dependencies.settings.gateway_request_secs,
            )
        [stored] = await dependencies.client.until_stored(
            context_id,
            published,
            within=preferences.wait_seconds(
                request, dependencies.settings.gateway_request_secs, can_be_async=False
            ),
        )
    return stored


async def _read_body(request: Request) -> tuple[Any, int | None]:
    """Returns the result, and the version that opened its call, if the body names it."""
    try:
        parsed = strict_json.loads(await body.read_bytes(request, body.JSON_TYPES))
    except DecodeError as error:
        raise ProblemError("bad-parameter", f"The body is not valid JSON: {error}.") from None
    if not isinstance(parsed, dict) or "result" not in parsed or parsed.keys() - {"result", "opened_version"}:
        raise ProblemError(
            "bad-parameter",
            'The body is {"result": ...}, the value for the model; "opened_version" is optional.',
        )
    version = parsed.get("opened_version")
    if version is not None and not (type(version) is int and 0 <= version <= parameters.INT64_MAX):
        raise ProblemError("bad-parameter", "opened_version must be a version of the conversation.")
    return parsed["result"], version


async def _find_call(
    dependencies: Dependencies, context_id: str, call_id: str, opened_version: int | None
) -> Settleable | past.PastCall:
    """Returns the call, a past one if it can no longer be settled. Raises the problem `not-found`."""
    for status in get_args(SettleableStatus):
        if call := await dependencies.database.read(
            tool_calls.with_status, context_id, call_id, status, opened_version
        ):
            return call
    await conversations.head_of(dependencies, context_id)
    past_calls = [
        call
        for call in await dependencies.database.read(past.calls, context_id)
        if call.tool_call_id == call_id and opened_version in (None, call.requested_version)
    ]
    if not past_calls:
        raise ProblemError("not-found", f"{context_id!r} has no call {call_id}.")
    return past_calls[-1]
