"""Routes for people: settle a call, and erase a conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid5

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger import strict_json
from frameledger.decode_error import DecodeError
from frameledger.frames import FunctionCallResultFrame
from frameledger.record import decode
from frameledger_services.client import NotVisibleError, PublishedFrame
from frameledger_services.gateway import answers, body, contexts, parameters, preferences
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.answers import JSON
from frameledger_services.gateway.append import KEYS, publishing, source_of
from frameledger_services.gateway.contexts import PATH
from frameledger_services.gateway.frames import PAGE_BYTES
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.store import past, tool_calls, wanted_frames
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.tool_calls import Settleable
from frameledger_services.store.wanted_frames import PagedFrame, Wanted
from frameledger_services.telemetry import tracing
from frameledger_services.telemetry.message_spans import settling

MOST_IGNORED = 5
"""How often one result may be ignored, and sent again."""

Status = Literal["waiting", "ambiguous"]

_HOW: Mapping[Status, str] = {"waiting": "answered", "ambiguous": "resolved"}
"""How a result settles a call."""

WHY = parameters.text("why", "Why it is erased: it stays in the receipt.", most=1_000)
CALL = parameters.in_path(parameters.text("call", ""), "call", "The call's id.")

KEY = parameters.Parameter(
    "Idempotency-Key",
    {"type": "string"},
    "Makes the id of the result's frame, instead of the result: one result is stored for each key.",
    str,
    "header",
)

SETTLED = (
    "The result is stored and settles the call. The same request again is answered the same. With the `outcome` "
    "`ignored`, `reason` says why the model does not read it: `place_replaced`, the history was replaced since the "
    "call; `context_full`, the conversation has no room for it."
)

RESULT: dict[str, Any] = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {"description": "What the model shall read."},
        "opened_version": {
            "type": "integer",
            "minimum": 0,
            "maximum": parameters.INT64_MAX,
            "description": "The `requested_version` of the call that is meant. A model may use "
            "an id again: so a result that comes late settles no later call of it.",
        },
    },
    "additionalProperties": False,
}


def routes(parts: Parts) -> list[BaseRoute]:
    """Returns the routes."""

    problems = ("bad-parameter", "no-such-context", "erased", "not-visible-yet", "log-away")
    return [
        DescribedRoute(
            "POST",
            PATH + "/calls/{call}/result",
            bound(_settle, parts),
            scope="append",
            summary="Answer a call that waits for a person or the client, or say what became of an ambiguous one.",
            parameters=[parameters.CONTEXT, CALL, KEY],
            body={"required": True, "content": {JSON: {"schema": RESULT}}},
            answers={201: {"description": SETTLED, "content": {JSON: {"schema": {"type": "object"}}}}},
            problems=(
                *problems,
                "not-found",
                "already-settled",
                "key-reused",
                "too-large",
                "unsupported-media-type",
            ),
        ),
        DescribedRoute(
            "DELETE",
            PATH,
            bound(_erase, parts),
            scope="admin",
            summary="Erase a conversation for good.",
            parameters=[parameters.CONTEXT, WHY],
            answers={200: {"description": "The receipt.", "content": {JSON: {"schema": {"type": "object"}}}}},
            problems=problems,
        ),
    ]


async def _settle(parts: Parts, request: Request) -> Response:
    context_id = parameters.context_id(request)
    call = CALL.in_path_of(request)
    result, opened_version = await _given(request)
    key = preferences.idempotency_key(request)
    found = await _settleable(parts, context_id, call, opened_version)
    if isinstance(found, past.PastCall):
        before = await _said_before(
            parts, _frame_ids(context_id, call, found.requested_version, key, result), context_id
        )
        said = _settled_by(before, key, result)
        if said is None:
            raise ProblemError(
                "already-settled",
                f"The call {call} is {found.status}: it does not wait for a result.",
                context_id=context_id,
            )
        how = "resolved" if found.resolved_version == said.version else "answered"
        return _answer(context_id, call, how, said)
    status, settleable = found
    ids = _frame_ids(context_id, call, settleable.requested_version, key, result)
    before = await _said_before(parts, ids, context_id)
    # It may be stored although the call reads as open: since that was read, or as a parked frame.
    if (said := _settled_by(before, key, result)) is not None:
        return _answer(context_id, call, _HOW[status], said)
    # Each id whose frame was ignored is used up.
    used = len(before)
    frame = FunctionCallResultFrame(
        id=ids[min(used, len(ids) - 1)],
        function_name=settleable.function_name,
        tool_call_id=call,
        result=result,
        settled_as="resolved" if status == "ambiguous" else None,
        opened_version=settleable.requested_version,
    )
    stored = await _published(parts, request, context_id, frame, settleable)
    if stored.reason == "id_reused":
        raise _key_reused()
    if stored.outcome == "erased":
        raise await contexts.missing(parts, context_id)
    if not _settles(stored.outcome, stored.reason):
        raise ProblemError(
            "already-settled",
            f"The result is stored as {stored.outcome} ({stored.reason}): it does not settle the call {call}.",
            context_id=context_id,
        )
    return _answer(context_id, call, _HOW[status], stored)


def _settles(outcome: str | None, reason: str | None) -> bool:
    return outcome in ("applied", "parked") or reason in tool_calls.SETTLES_ALL_THE_SAME


def _settled_by(before: Sequence[PagedFrame], key: str | None, result: Any) -> PagedFrame | None:
    """Returns which of this request's frames settles the call. Raises the problem `key-reused`."""
    said = next((one for one in before if _settles(one.outcome, one.reason)), None)
    if said is not None and key is not None and _result_of(said) != result:
        raise _key_reused()
    return said


def _result_of(said: PagedFrame) -> Any:
    frame = decode(said.payload or b"")
    return frame.result if isinstance(frame, FunctionCallResultFrame) else None


def _key_reused() -> ProblemError:
    return ProblemError("key-reused", "An earlier request with this Idempotency-Key had another result.")


def _answer(context_id: str, call: str, settled: str, stored: PublishedFrame | PagedFrame) -> Response:
    answer = {
        "context_id": context_id,
        "tool_call_id": call,
        "settled": settled,
        "version": stored.version,
        "outcome": stored.outcome,
        "reason": stored.reason,
    }
    return answers.json_answer(answer, status=201)


def _frame_ids(
    context_id: str, call: str, requested_version: int, key: str | None, result: Any
) -> Sequence[str]:
    """Returns the ids that the frame of this request may have: the same request has the same ones, so that it can be
    sent again."""
    what = json.dumps(result, sort_keys=True) if key is None else f"key {key}"
    digest = hashlib.sha256(what.encode()).hexdigest()
    name = f"{context_id}\nresult\n{call}\n{requested_version}\n{digest}"
    return [str(uuid5(KEYS, f"{name}\n{number}")) for number in range(MOST_IGNORED)]


async def _said_before(parts: Parts, ids: Sequence[str], context_id: str) -> Sequence[PagedFrame]:
    wanted = Wanted(ids=[frame_uuid(one) for one in ids])
    page = await parts.database.read(wanted_frames.page, context_id, wanted, len(ids), PAGE_BYTES)
    return page.frames


async def _published(
    parts: Parts, request: Request, context_id: str, frame: FunctionCallResultFrame, call: Settleable
) -> PublishedFrame:
    """Publish a call's result as a part of the call's trace. Returns it once it is stored. Raises the problem
    `not-visible-yet`."""
    of_call = tracing.of_stored(call.trace_id, call.cause)
    asked = request.headers.get("traceparent")
    with (
        publishing([frame.id]),
        settling(context_id, frame.tool_call_id, call.function_name, of_call, asked) as span,
    ):
        published = await parts.client.publish(
            context_id,
            frame,
            source=source_of(request),
            causation_id=call.cause,
            traceparent=span.traceparent,
            within=parts.settings.gateway_request_secs,
        )
    try:
        [stored] = await parts.client.until_stored(
            context_id,
            published,
            within=preferences.wait_seconds(request, parts.settings.gateway_request_secs),
        )
    except NotVisibleError as error:
        raise ProblemError("not-visible-yet", str(error), context_id=context_id) from error
    return stored


async def _erase(parts: Parts, request: Request) -> Response:
    context_id = parameters.context_id(request)
    why = WHY.of(request)
    if why is None:
        raise ProblemError("bad-parameter", "why: say why the conversation is erased.")
    await contexts.head_of(parts, context_id)
    with publishing([None]):
        try:
            receipt = await parts.client.erase(
                context_id,
                why=why,
                requested_by=caller.of(request.scope).name,
                within=parts.settings.gateway_request_secs,
            )
        except NotVisibleError as error:
            raise ProblemError("not-visible-yet", str(error), context_id=context_id) from error
        finally:
            parts.kept.drop(context_id)
    return answers.json_answer(receipt, headers={"Cache-Control": "no-store"})


async def _given(request: Request) -> tuple[Any, int | None]:
    """Returns the result, and the version that opened the call which is meant, if it is named."""
    try:
        given = strict_json.loads(await body.read_bytes(request, body.JSON_TYPES))
    except DecodeError as error:
        raise ProblemError("bad-parameter", f"The body is not valid JSON: {error}.") from None
    if not isinstance(given, dict) or "result" not in given or given.keys() - {"result", "opened_version"}:
        raise ProblemError(
            "bad-parameter",
            'The body is {"result": ...}, what the model shall read; "opened_version" may be beside it.',
        )
    version = given.get("opened_version")
    if version is not None and not (type(version) is int and 0 <= version <= parameters.INT64_MAX):
        raise ProblemError("bad-parameter", "opened_version must be a version of the conversation.")
    return given["result"], version


async def _settleable(
    parts: Parts, context_id: str, call: str, opened_version: int | None
) -> tuple[Status, Settleable] | past.PastCall:
    """Returns how the call stands, and what is known of it; or the call, if nothing settles it any more. Raises the
    problem `not-found`."""
    statuses: tuple[Status, ...] = ("waiting", "ambiguous")
    for status in statuses:
        if found := await parts.database.read(
            tool_calls.with_status, context_id, call, status, opened_version
        ):
            return status, found
    await contexts.head_of(parts, context_id)
    known = [
        one
        for one in await parts.database.read(past.calls, context_id)
        if one.tool_call_id == call and opened_version in (None, one.requested_version)
    ]
    if not known:
        raise ProblemError("not-found", f"{context_id!r} has no call {call}.")
    return known[-1]
