"""Details of one conversation besides its context and runs: history, calls, differences, and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.gateway import answers, conversations, parameters
from frameledger_services.gateway.contexts import VERSION
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, UnboundEndpoint, bound
from frameledger_services.store import conversation_state, history, past
from frameledger_services.store.past import PastCall, PastMessage, PastSetting

INT32_MAX = 2**31 - 1

ONE_ERA = parameters.integer(
    "era",
    "Only messages of this history: 1 is the first one, and each replacement of the history begins the next.",
    least=1,
    most=INT32_MAX,
)
CHANGED_AFTER = parameters.integer(
    "after",
    "Only messages that were added, changed or removed after this version, and settings that were set after it.",
)
FROM = parameters.required(parameters.integer("from", "The version to compare from."), 1)
TO = parameters.required(parameters.integer("to", "The version to compare to."), 2)
ERA = parameters.in_path(
    ONE_ERA, "era", "The history that has the message, as in `positions` and `history`.", 1
)
POSITION = parameters.in_path(
    parameters.integer("position", "", most=INT32_MAX),
    "position",
    "The position of the message in that history.",
    1,
)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking the stored frames against the stored hash chain."""

    context_id: str
    version: int
    intact: bool
    frame_count: int
    broken_at: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a run is open, or a call that the conversation waits for, and the version at which that was read."""

    context_id: str
    version: int
    goes_on: bool


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""

    def route(path: str, endpoint: UnboundEndpoint, summary: str, *problems: str, **also: Any) -> BaseRoute:
        also.setdefault("model", None)
        return DescribedRoute(
            "GET",
            PATH + path,
            bound(endpoint, dependencies),
            scope="read",
            summary=summary,
            parameters=[parameters.CONTEXT, *also.get("parameters", ())],
            answers={200: {"description": summary, "model": also["model"]}},
            problems=("bad-parameter", "no-such-context", "erased", *problems),
        )

    return [
        route(
            "/history",
            _history,
            "List all messages and settings that the conversation has had, with the versions of each.",
            parameters=[ONE_ERA, CHANGED_AFTER],
        ),
        route(
            "/diff",
            _diff,
            "Compare two versions of a conversation.",
            "no-such-version",
            parameters=[FROM, TO],
        ),
        route(
            "/messages/{era}.{position}/why",
            _why,
            "Explain a message: its frames, run and call, and the discarded words.",
            "not-found",
            "no-such-version",
            parameters=[ERA, POSITION, VERSION],
        ),
        route("/calls", _calls, "List all function calls of a conversation."),
        route(
            "/activity",
            _activity,
            "Read whether an answer, or the result of a call, is pending.",
            model=Activity,
        ),
        route("/verify", _verify, "Verify the hash chain of the stored frames.", model=Verification),
    ]


async def _history(dependencies: Dependencies, request: Request) -> Response:
    context_id, era = parameters.context_id(request), ONE_ERA.of(request)
    head = await conversations.head_of(dependencies, context_id)
    after = CHANGED_AFTER.of(request)
    rows = await dependencies.database.read(past.messages, context_id, era, after)
    eras = await dependencies.database.read(past.eras, context_id)
    settings = await dependencies.database.read(past.settings, context_id, after)
    about = {"context_id": context_id, "version": head.newest, "first": head.first, "eras": eras}
    return answers.stored_json(
        b'%s,"rows":[%s],"settings":[%s]}'
        % (
            answers.opened(about),
            b",".join(_message(one) for one in rows),
            b",".join(_setting(one) for one in settings),
        )
    )


async def _diff(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    a, b = FROM.of(request), TO.of(request)
    if a is None or b is None:
        raise ProblemError("bad-parameter", "from, to: two versions are expected.")
    for version in (a, b):
        await conversations.head_of(dependencies, context_id, version=version)
    difference = await dependencies.database.read(history.difference_text, context_id, a, b)
    if difference is None:
        raise ProblemError(
            "no-such-version", "The conversation does not have both versions.", context_id=context_id
        )
    text, eras = difference
    about = answers.opened({"context_id": context_id, "eras": eras})
    return answers.stored_json(about + b"," + text.encode().lstrip()[1:])


async def _why(dependencies: Dependencies, request: Request) -> Response:
    context_id, version = parameters.context_id(request), VERSION.of(request)
    era, position = ERA.in_path_of(request), POSITION.in_path_of(request)
    await conversations.head_of(dependencies, context_id, version=version)
    if version is None:
        version = await dependencies.database.read(history.last_of_era, context_id, era)
    elif await dependencies.database.read(past.era_at, context_id, version) != era:
        version = None
    explanation = None
    if version is not None:
        explanation = await dependencies.database.read(
            history.explanation_text, context_id, position, version
        )
    if explanation is None:
        raise ProblemError("not-found", f"No message of {context_id!r} has the place {era}.{position}.")
    return answers.stored_json(explanation.encode())


async def _activity(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    goes_on, version = await dependencies.database.read(conversation_state.goes_on, context_id)
    if not version:
        raise await conversations.missing(dependencies, context_id)
    return answers.json_answer(Activity(context_id, version, goes_on))


async def _calls(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    calls = await dependencies.database.read(past.calls, context_id)
    if not calls:
        await conversations.head_of(dependencies, context_id)
    listed = b",".join(_call(one) for one in calls)
    return answers.stored_json(b'%s,"calls":[%s]}' % (answers.opened({"context_id": context_id}), listed))


async def _verify(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    head = await conversations.head_of(dependencies, context_id)
    chain = await dependencies.database.read(past.chain, context_id)
    return answers.json_answer(
        Verification(context_id, head.newest, chain.intact, chain.frame_count, chain.broken_at, chain.problem)
    )


def _message(message: PastMessage) -> bytes:
    names = ("era", "position", "valid_from", "valid_to", "role", "run_id")
    return b'%s,"message":%s}' % (
        answers.opened({name: getattr(message, name) for name in names}),
        message.message.encode(),
    )


def _setting(setting: PastSetting) -> bytes:
    return b'%s,"value":%s}' % (
        answers.opened({"name": setting.name, "valid_from": setting.valid_from}),
        setting.value.encode(),
    )


def _call(call: PastCall) -> bytes:
    about = {name: getattr(call, name) for name in PastCall.__slots__ if name not in ("arguments", "result")}
    return b'%s,"arguments":%s,"result":%s}' % (
        answers.opened(about),
        call.arguments.encode(),
        (call.result or "null").encode(),
    )
