"""What is known of one conversation beside its context: its past, its runs and calls, what differs, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.gateway import answers, contexts, parameters
from frameledger_services.gateway.answers import JSON, REVALIDATED
from frameledger_services.gateway.contexts import PATH, VERSION
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute
from frameledger_services.inference import recorded_request
from frameledger_services.inference.recorded_request import NoRequestError
from frameledger_services.providers import plugins
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.plugins import NoSuchProviderError
from frameledger_services.store import conversations, past
from frameledger_services.store import history as stored_history
from frameledger_services.store.history import RunLine
from frameledger_services.store.past import Call, PastMessage, PastSetting

INT32_MAX = 2**31 - 1

ONE_ERA = parameters.integer("era", "Only this history.", least=1, most=INT32_MAX)
CHANGED_AFTER = parameters.integer("after", "Only messages that came, changed or went behind this version.")
FROM = parameters.integer("from", "From this version.")
TO = parameters.integer("to", "To this one.")
ERA = parameters.in_path(ONE_ERA, "era", "The history that the message is of.")
POSITION = parameters.in_path(
    parameters.integer("position", "", most=INT32_MAX), "position", "Its position there."
)
RUN = parameters.in_path(parameters.text("run_id", ""), "run_id", "The run, or the beginning of its id.")


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a conversation, in the order in which they were asked for."""

    context_id: str
    runs: list[RunLine]


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the stored frames make the stored hash chain."""

    context_id: str
    version: int
    intact: bool
    frame_count: int
    broken_at: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a run is open, or a call that the conversation waits for; and the version at which."""

    context_id: str
    version: int
    goes_on: bool


def routes(parts: Parts) -> list[BaseRoute]:
    """Returns the routes."""

    async def history(request: Request) -> Response:
        context_id, era = parameters.context_id(request), ONE_ERA.of(request)
        head = await contexts.head_of(parts, context_id)
        rows = await parts.database.read(past.messages, context_id, era, CHANGED_AFTER.of(request))
        eras = await parts.database.read(past.eras, context_id)
        settings = await parts.database.read(past.settings, context_id)
        about = {"context_id": context_id, "version": head.newest, "first": head.first, "eras": eras}
        return _json(
            b'%s,"rows":[%s],"settings":[%s]}'
            % (
                _open(about),
                b",".join(_message(one) for one in rows),
                b",".join(_setting(one) for one in settings),
            )
        )

    async def diff(request: Request) -> Response:
        context_id = parameters.context_id(request)
        a, b = FROM.of(request), TO.of(request)
        if a is None or b is None:
            raise ProblemError("bad-parameter", "from, to: two versions are wanted.")
        for version in (a, b):
            await contexts.head_of(parts, context_id, version=version)
        found = await parts.database.read(stored_history.difference_text, context_id, a, b)
        if found is None:
            raise ProblemError("no-such-version", "One of them is not there.", context_id=context_id)
        text, eras = found
        return _json(_open({"context_id": context_id, "eras": eras}) + b"," + text.encode().lstrip()[1:])

    async def why(request: Request) -> Response:
        context_id, version = parameters.context_id(request), VERSION.of(request)
        era, position = ERA.in_path_of(request), POSITION.in_path_of(request)
        await contexts.head_of(parts, context_id, version=version)
        if version is None:
            version = await parts.database.read(stored_history.last_of_era, context_id, era)
        elif await parts.database.read(past.era_at, context_id, version) != era:
            version = None
        found = None
        if version is not None:
            found = await parts.database.read(stored_history.explanation_text, context_id, position, version)
        if found is None:
            raise ProblemError("not-found", f"No message of {context_id!r} has the place {era}.{position}.")
        return _json(found.encode())

    async def activity(request: Request) -> Response:
        context_id = parameters.context_id(request)
        goes_on, version = await parts.database.read(conversations.goes_on, context_id)
        if not version:
            raise await contexts.missing(parts, context_id)
        return answers.json_answer(Activity(context_id, version, goes_on))

    async def runs(request: Request) -> Response:
        context_id = parameters.context_id(request)
        found = await parts.database.read(stored_history.runs, context_id)
        if not found:
            await contexts.head_of(parts, context_id)
        return answers.json_answer(Runs(context_id, found))

    async def run(request: Request) -> Response:
        context_id = parameters.context_id(request)
        run_id = await _whole_run_id(parts, context_id, RUN.in_path_of(request))
        found = await parts.database.read(past.run, context_id, run_id)
        if found is None:
            raise ProblemError("not-found", f"{context_id!r} has no run {run_id}.")
        return _json(found.encode())

    async def run_request(request: Request) -> Response:
        context_id = parameters.context_id(request)
        run_id = await _whole_run_id(parts, context_id, RUN.in_path_of(request))
        try:
            asked = await parts.database.read(recorded_request.recorded_request, context_id, run_id)
            made = recorded_request.rebuild(
                asked, lambda provider: plugins.create(provider, plugins.unspoken(parts.settings))
            )
        except (NoRequestError, NoSuchProviderError, ProviderError) as error:
            raise ProblemError("no-such-form", str(error), context_id=context_id) from error
        about = {
            "context_id": context_id,
            "run_id": run_id,
            "provider": made.provider,
            "model": made.model,
            "sha256": made.sha256,
            "matches_sha256": made.sha256 == asked.start.request_sha256,
        }
        return _json(b'%s,"request":%s}' % (_open(about), made.content))

    async def calls(request: Request) -> Response:
        context_id = parameters.context_id(request)
        found = await parts.database.read(past.calls, context_id)
        if not found:
            await contexts.head_of(parts, context_id)
        listed = b",".join(_call(one) for one in found)
        return _json(b'%s,"calls":[%s]}' % (_open({"context_id": context_id}), listed))

    async def verify(request: Request) -> Response:
        context_id = parameters.context_id(request)
        head = await contexts.head_of(parts, context_id)
        found = await parts.database.read(past.chain, context_id)
        return answers.json_answer(
            Verification(
                context_id, head.newest, found.intact, found.frame_count, found.broken_at, found.problem
            )
        )

    def route(path: str, endpoint: Any, summary: str, *problems: str, **also: Any) -> BaseRoute:
        also.setdefault("model", None)
        return DescribedRoute(
            "GET",
            PATH + path,
            endpoint,
            scope="read",
            summary=summary,
            parameters=[parameters.CONTEXT, *also.get("parameters", ())],
            answers={200: {"description": summary, "model": also["model"]}},
            problems=("bad-parameter", "no-such-context", "erased", *problems),
        )

    return [
        route(
            "/history",
            history,
            "All that its messages and settings ever were.",
            parameters=[ONE_ERA, CHANGED_AFTER],
        ),
        route("/diff", diff, "What differs between two versions.", "no-such-version", parameters=[FROM, TO]),
        route(
            "/messages/{era}.{position}/why",
            why,
            "Where a message comes from, and what was thrown away.",
            "not-found",
            "no-such-version",
            parameters=[ERA, POSITION, VERSION],
        ),
        route("/runs", runs, "Every run of a conversation.", model=Runs),
        route(
            "/runs/{run_id}",
            run,
            "One run: its attempts, what it saw, and what became of it.",
            "not-found",
            parameters=[RUN],
        ),
        route(
            "/runs/{run_id}/request",
            run_request,
            "The request of a run's latest attempt, made again from the log.",
            "not-found",
            "no-such-form",
            parameters=[RUN],
        ),
        route("/calls", calls, "Every call of a function."),
        route("/activity", activity, "Whether an answer is awaited, or a call's result.", model=Activity),
        route("/verify", verify, "Whether its stored frames make its hash chain.", model=Verification),
    ]


async def _whole_run_id(parts: Parts, context_id: str, beginning: str) -> str:
    """Returns the id of the one run that begins so. Raises the problem `not-found` if there is none or more."""
    found = await parts.database.read(stored_history.runs_named, context_id, beginning)
    if not found:
        await contexts.head_of(parts, context_id)
        raise ProblemError("not-found", f"{context_id!r} has no run {beginning}.")
    if beginning not in found and len(found) > 1:
        raise ProblemError("not-found", f"More than one run of {context_id!r} begins with {beginning}.")
    return beginning if beginning in found else found[0]


def _open(about: dict[str, Any]) -> bytes:
    """A JSON object without its end, to which text is added as it is."""
    return answers.json_bytes(about)[:-1]


def _json(body: bytes) -> Response:
    return Response(body, media_type=JSON, headers=REVALIDATED)


def _message(one: PastMessage) -> bytes:
    names = ("era", "position", "valid_from", "valid_to", "role", "run_id")
    return b'%s,"message":%s}' % (_open({name: getattr(one, name) for name in names}), one.message.encode())


def _setting(one: PastSetting) -> bytes:
    return b'%s,"value":%s}' % (_open({"name": one.name, "valid_from": one.valid_from}), one.value.encode())


def _call(one: Call) -> bytes:
    about = {name: getattr(one, name) for name in Call.__slots__ if name not in ("arguments", "result")}
    return b'%s,"arguments":%s,"result":%s}' % (
        _open(about),
        one.arguments.encode(),
        (one.result or "null").encode(),
    )
