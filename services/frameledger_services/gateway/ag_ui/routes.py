"""`POST /v1/ag-ui` runs a conversation for a front end, and `GET /v1/ag-ui/{id}` reconnects to its run.

Without the setting `gateway_ag_ui` they answer 404, which names the setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger.record import MAX_KEY_BYTES
from frameledger_services.client import NoSuchContextError
from frameledger_services.gateway import body, client_tools, conversations, parameters
from frameledger_services.gateway.access import caller, policy, read_log
from frameledger_services.gateway.ag_ui import run_input
from frameledger_services.gateway.ag_ui.asking import Question
from frameledger_services.gateway.ag_ui.following import FollowedRun
from frameledger_services.gateway.ag_ui.presence import Presence
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.gateway.ag_ui.run_input import RunInput
from frameledger_services.gateway.ag_ui.run_stream import RunStream
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live import streams
from frameledger_services.gateway.media_types import EVENT_STREAM, JSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.publishing import source_of
from frameledger_services.gateway.routes import DescribedRoute
from frameledger_services.settings import PREFIX
from frameledger_services.store import client_requests, conversation_state
from frameledger_services.store.client_requests import AskedRun

LAST = replace(
    streams.LAST,
    description="The `id` of the last event that was received: 204 if the run has ended and nothing came after it. "
    "Otherwise its events are sent from the beginning.",
)

EXAMPLE = {
    "threadId": "desk-7",
    "runId": "run-1",
    "messages": [{"id": "m-1", "role": "user", "content": "Is there a night train?"}],
}


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""
    runs = ClientRuns(dependencies)
    problems = ("bad-parameter", "no-such-context", "not-found")
    return [
        DescribedRoute(
            "POST",
            policy.AG_UI,
            runs.run,
            scope=("append", "read"),
            summary="AG-UI 1.0: send messages to a conversation, and follow the run that answers.",
            parameters=[parameters.TRACE],
            body={
                "required": True,
                "content": {
                    JSON: {"schema": {"$ref": "#/components/schemas/RunAgentInput"}, "example": EXAMPLE}
                },
            },
            answers={200: _EVENTS},
            problems=(
                *problems,
                "bad-frame",
                "conversation-busy",
                "too-large",
                "unsupported-media-type",
                "key-reused",
                "not-visible-yet",
                "log-away",
            ),
        ),
        DescribedRoute(
            "GET",
            policy.AG_UI + "/{context_id}",
            runs.reconnect,
            scope="read",
            summary="AG-UI 1.0: reconnect to the latest run of a conversation: its events from the beginning on.",
            parameters=[parameters.CONTEXT, LAST],
            answers={
                200: _EVENTS,
                204: {"description": "The run has ended, and the client has all of its events."},
            },
            problems=(*problems, "erased"),
        ),
    ]


class ClientRuns:
    """The runs of this process's clients."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._presence = Presence(dependencies, dependencies.marks)

    async def run(self, request: Request) -> Response:
        """Answer a client that runs a conversation."""
        _check(self._dependencies, request)
        # In a thread: the body may have megabytes, and the schemas of its functions may take seconds to check.
        run_request = await asyncio.to_thread(run_input.read, await body.read_bytes(request, body.JSON_TYPES))
        _check_thread(request, run_request.thread_id)
        tools = await asyncio.to_thread(client_functions, run_request) if run_request.tools else ()
        # Checked before anything is published: without a free slot for a follower the run could not be sent.
        self._dependencies.hub.check_room()
        presence, thread_id, run_id = self._presence, run_request.thread_id, run_request.run_id
        await presence.requests_run(thread_id, run_id)
        with presence.held(thread_id, run_id):
            while_waiting = partial(presence.waits_for_run, thread_id, run_id, source_of(request))
            frames = RequestFrames(run_request, tools)
            asked_run = await Question(self._dependencies, request, run_request, frames, while_waiting).ask()
            read_log.note(request.scope, thread_id, asked_run.version)
            names = [one.name for one in run_request.tools or ()]
            return await self._stream(request, thread_id, asked_run, run_request.parent_run_id, names)

    async def reconnect(self, request: Request) -> Response:
        """Answer a client that reconnects to its run."""
        _check(self._dependencies, request)
        context_id, last = parameters.context_id(request), LAST.of(request)
        last_run = await self._dependencies.database.read(client_requests.last_asked_run, context_id)
        if last_run is None:
            raise await conversations.missing(self._dependencies, context_id)
        with self._presence.held(context_id, last_run.run_id):
            goes_on, version = await self._dependencies.database.read(conversation_state.goes_on, context_id)
            if last == version and not goes_on:
                return Response(status_code=204, headers={"Cache-Control": "no-store"})
            return await self._stream(request, context_id, last_run, None)

    async def _stream(
        self,
        request: Request,
        thread_id: str,
        asked_run: AskedRun,
        parent: str | None,
        tools: Collection[str] = (),
    ) -> Response:
        followed = FollowedRun(self._dependencies, thread_id, asked_run, parent, tools)
        try:
            begin = await followed.begin()
        except BaseException:
            followed.close()
            raise
        self._presence.followed(thread_id, asked_run.run_id)
        source = source_of_stop(request, asked_run)
        ended = partial(self._presence.ended, thread_id, asked_run.run_id, source)
        return RunStream(followed, begin.written(), ended)


_EVENTS: dict[str, Any] = {
    "description": "Events of the protocol: RUN_STARTED, MESSAGES_SNAPSHOT, the run's own events, RUN_FINISHED or "
    "RUN_ERROR. Their `id` is the version.",
    "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
}


def source_of_stop(request: Request, asked_run: AskedRun) -> str | None:
    """Returns the source of the interruption that is published if this client leaves the run, or None if it may not
    stop the run."""
    may_stop = asked_run.by_client and "append" in caller.of(request.scope).scopes
    return source_of(request) if may_stop else None


def client_functions(run_request: RunInput) -> Sequence[dict[str, Any]]:
    """Returns the client's own functions in the form of the log. Raises `bad-parameter`."""
    return client_tools.stored_definitions(
        client_tools.Definition(one.name, one.description, one.parameters) for one in run_request.tools or ()
    )


def _check(dependencies: Dependencies, request: Request) -> None:
    if not dependencies.settings.gateway_ag_ui:
        raise ProblemError(
            "not-found", f"AG-UI is disabled; the setting {PREFIX}GATEWAY_AG_UI=true enables it."
        )
    if caller.of(request.scope).redact:
        raise ProblemError("forbidden", "A redacting token may not use AG-UI, which returns text.")


def _check_thread(request: Request, thread_id: str) -> None:
    if len(thread_id.encode(errors="backslashreplace")) > MAX_KEY_BYTES:
        raise ProblemError(
            "bad-parameter", f"RunAgentInput: threadId: a conversation's id has 1 to {MAX_KEY_BYTES} bytes."
        )
    if not caller.of(request.scope).may_see(thread_id):
        raise NoSuchContextError(thread_id)
