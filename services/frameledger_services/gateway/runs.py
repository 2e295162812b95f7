"""The runs of a conversation: the list, one run with its attempts, and the request that a run sent to its model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.gateway import answers, contexts, conversations, parameters
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, UnboundEndpoint, bound
from frameledger_services.inference import recorded_request
from frameledger_services.inference.recorded_request import NoRequestError
from frameledger_services.providers import plugins
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.plugins import NoSuchProviderError
from frameledger_services.store import history, past
from frameledger_services.store.history import RunLine

RUN = parameters.in_path(
    parameters.text("run_id", ""), "run_id", "The id of the run, or the beginning of it.", "8742ad2d"
)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a conversation, in the order of their requests."""

    context_id: str
    runs: list[RunLine]


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""

    def route(
        path: str, endpoint: UnboundEndpoint, summary: str, *problems: str, model: type | None = None
    ) -> BaseRoute:
        return DescribedRoute(
            "GET",
            f"{PATH}/runs{path}",
            bound(endpoint, dependencies),
            scope="read",
            summary=summary,
            parameters=[parameters.CONTEXT, *([RUN] if path else [])],
            answers={200: {"description": summary, "model": model}},
            problems=("bad-parameter", "no-such-context", "erased", *problems),
        )

    return [
        route("", _runs, "Every run of a conversation.", model=Runs),
        route("/{run_id}", _run, "One run: its attempts, its context and its outcome.", "not-found"),
        route(
            "/{run_id}/request",
            _run_request,
            "The request of a run's latest attempt, rebuilt from the log.",
            "not-found",
            "no-such-form",
        ),
    ]


async def _runs(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    runs = await dependencies.database.read(history.runs, context_id)
    if not runs:
        await conversations.head_of(dependencies, context_id)
    return answers.json_answer(Runs(context_id, runs))


async def _run(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    run_id = await _whole_run_id(dependencies, context_id, RUN.in_path_of(request))
    run = await dependencies.database.read(past.run, context_id, run_id)
    if run is None:
        raise ProblemError("not-found", f"{context_id!r} has no run {run_id}.")
    return answers.stored_json(run.encode())


async def _run_request(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    run_id = await _whole_run_id(dependencies, context_id, RUN.in_path_of(request))
    try:
        recorded = await dependencies.database.read(recorded_request.recorded_request, context_id, run_id)
        # In a thread, as `contexts` does.
        rebuilt = await asyncio.to_thread(
            recorded_request.rebuild,
            recorded,
            lambda provider: plugins.create(
                provider, plugins.without_request_settings(dependencies.settings)
            ),
        )
    except (NoRequestError, NoSuchProviderError, ProviderError) as error:
        raise contexts.no_such_form(request, context_id, error) from error
    about = {
        "context_id": context_id,
        "run_id": run_id,
        "provider": rebuilt.provider,
        "model": rebuilt.model,
        "sha256": rebuilt.sha256,
        "matches_sha256": rebuilt.sha256 == recorded.start.request_sha256,
    }
    return answers.stored_json(b'%s,"request":%s}' % (answers.opened(about), rebuilt.content))


async def _whole_run_id(dependencies: Dependencies, context_id: str, beginning: str) -> str:
    """Returns the id of the only run whose id begins with this text. Raises the problem `not-found` for none or
    several."""
    run_ids = await dependencies.database.read(history.runs_named, context_id, beginning)
    if not run_ids:
        await conversations.head_of(dependencies, context_id)
        raise ProblemError("not-found", f"{context_id!r} has no run {beginning}.")
    if beginning not in run_ids and len(run_ids) > 1:
        raise ProblemError("not-found", f"More than one run of {context_id!r} begins with {beginning}.")
    return beginning if beginning in run_ids else run_ids[0]
