"""Shared by the compatible APIs: the calls that a request abandons, the fields of frames that settle calls, and
publishing a frame and waiting until it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from frameledger.frames import AnyFrame
from frameledger_services.client import NotVisibleError, PublishedFrame
from frameledger_services.gateway.append import publishing, source_of
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError


class OpenCall(Protocol):
    """The fields of a waiting call that are read here."""

    @property
    def by_client(self) -> bool: ...

    @property
    def interrupted(self) -> bool: ...


C = TypeVar("C", bound=OpenCall)


def abandoned(calls: Iterable[C], is_answered: Callable[[C], bool], *, is_replaced: bool) -> list[C]:
    """Returns the calls of clients that are to be cancelled because a request leaves them unanswered: interrupted ones,
    and all of them if the request replaces the history, because their place is removed."""
    return [
        call
        for call in calls
        if call.by_client and not is_answered(call) and (call.interrupted or is_replaced)
    ]


def frame_fields(frame_id: str, function_name: str, tool_call_id: str, opened_version: int) -> dict[str, Any]:
    """Returns the fields of a frame that settles a call. `frame_id` is derived from the request, so a repeated request
    counts once."""
    return {
        "id": frame_id,
        "function_name": function_name,
        "tool_call_id": tool_call_id,
        "opened_version": opened_version,
    }


async def publish(
    dependencies: Dependencies,
    request: Request,
    context_id: str,
    frame: AnyFrame,
    expected_version: int | None,
) -> PublishedFrame:
    """Publish a frame for a request and return it once it is stored.

    Raises `ContextChangedError` if the conversation has changed since `expected_version`, and the problems
    `not-visible-yet`, `log-away`, `too-large` and `bad-parameter`.
    """
    try:
        with publishing([frame.id]):
            [stored] = await dependencies.client.publish(
                context_id,
                frame,
                source=source_of(request),
                traceparent=request.headers.get("traceparent"),
                expected_version=expected_version,
                wait=True,
                within=dependencies.settings.gateway_request_secs,
            )
    except NotVisibleError as error:
        raise ProblemError("not-visible-yet", str(error), context_id=context_id) from error
    return stored
