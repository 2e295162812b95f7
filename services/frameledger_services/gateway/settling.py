"""What a person does with a conversation: settle a call, erase all of it."""

from __future__ import annotations

import json
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger.frames import FunctionCallResultFrame
from frameledger_services.client import NotVisibleError, PublishedFrame
from frameledger_services.gateway import answers, body, contexts, parameters, preferences
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.answers import JSON
from frameledger_services.gateway.append import publishing, source_of
from frameledger_services.gateway.contexts import PATH
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.store import past, tool_calls
from frameledger_services.store.tool_calls import Settleable
from frameledger_services.telemetry import tracing
from frameledger_services.telemetry.message_spans import settling

Status = Literal["waiting", "ambiguous"]

WHY = parameters.text("why", "Why it is erased: it stays in the receipt.", most=1_000)
CALL = parameters.in_path(parameters.text("call", ""), "call", "The call's id.")

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
            parameters=[parameters.CONTEXT, CALL],
            body={"required": True, "content": {JSON: {"schema": RESULT}}},
            answers={201: {"description": "It counts.", "content": {JSON: {"schema": {"type": "object"}}}}},
            problems=(*problems, "not-found", "already-settled", "too-large", "unsupported-media-type"),
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
    status, found = await _settleable(parts, context_id, call, opened_version)
    frame = FunctionCallResultFrame(
        function_name=found.function_name,
        tool_call_id=call,
        result=result,
        settled_as="resolved" if status == "ambiguous" else None,
        opened_version=found.requested_version,
    )
    stored = await _published(parts, request, context_id, frame, found)
    if stored.outcome not in ("applied", "parked"):
        raise ProblemError(
            "already-settled", f"The call {call} was settled meanwhile.", context_id=context_id
        )
    answer = {
        "context_id": context_id,
        "tool_call_id": call,
        "settled": "answered" if status == "waiting" else "resolved",
        "version": stored.version,
        "outcome": stored.outcome,
    }
    return answers.json_answer(answer, status=201)


async def _published(
    parts: Parts, request: Request, context_id: str, frame: FunctionCallResultFrame, call: Settleable
) -> PublishedFrame:
    """Publish a call's result as a part of the call's trace. Returns it once it is stored. Raises the problem
    `not-visible-yet`."""
    of_call = tracing.of_stored(call.trace_id, call.cause)
    asked = request.headers.get("traceparent")
    with (
        publishing([None]),
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
        given = json.loads(await body.read_bytes(request, body.JSON_TYPES))
    except (ValueError, RecursionError) as error:
        raise ProblemError("bad-parameter", f"The body is no JSON: {error}.") from None
    if not isinstance(given, dict) or "result" not in given or given.keys() - {"result", "opened_version"}:
        raise ProblemError(
            "bad-parameter",
            'The body is {"result": ...}, what the model shall read; "opened_version" may be beside it.',
        )
    version = given.get("opened_version")
    if version is not None and not (type(version) is int and 0 <= version <= parameters.INT64_MAX):
        raise ProblemError("bad-parameter", "opened_version: a version of the conversation is wanted.")
    return given["result"], version


async def _settleable(
    parts: Parts, context_id: str, call: str, opened_version: int | None
) -> tuple[Status, Settleable]:
    """Returns how the call stands, and what is known of it. Raises the problems `already-settled` and `not-found`."""
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
    if known:
        raise ProblemError(
            "already-settled",
            f"The call {call} is {known[-1].status}: it waits for nobody.",
            context_id=context_id,
        )
    raise ProblemError("not-found", f"{context_id!r} has no call {call}.")
