"""Lists over all conversations that a caller may read: conversations, and lists for operators."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger.surrogates import has_half
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.gateway import answers, parameters
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.access.caller import Scope
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, UnboundEndpoint, bound
from frameledger_services.store import (
    dead_letters,
    listing,
    offers,
    parked,
    partition_progress,
    serving,
    tool_calls,
)
from frameledger_services.store.dead_letters import DeadLetter
from frameledger_services.store.listing import ListedContext, Selection, Status
from frameledger_services.store.parked import Parked
from frameledger_services.store.partition_progress import PartitionProgress
from frameledger_services.store.serving import LiveWorker, OfferedFunction
from frameledger_services.store.tool_calls import UnsettledCall

PREFIX = parameters.text("prefix", "Only conversations whose id starts with this text.")


def _searches(count: int) -> str:
    return f"A page searches {count:,} conversations, so it may be empty although `Link` has a next one."


TEXT = parameters.text(
    "q",
    "Only conversations with this text in their id or in a message, ignoring case. "
    f"{_searches(listing.SEARCHED)}",
    most=200,
)
STATUS = parameters.word(
    "status",
    f"Only conversations with this status. {_searches(listing.SEARCHED_BY_STATUS)}",
    *get_args(Status),
)
MODEL = parameters.text(
    "model", f"Only conversations with a run of this model. {_searches(listing.SEARCHED)}"
)
SINCE = parameters.time("since", "Only conversations that began at this time or later.")
UNTIL = parameters.time("until", "Only conversations that began before this time.")
EXPERIMENTS = parameters.flag("experiments", "`true`: include experiments, such as reruns. Default: `false`.")
ORDER = parameters.word(
    "order",
    "`started`, the default: newest first. `active`: the newest 1,000, last active first, without a next page.",
    "started",
    "active",
)
LIMIT = parameters.integer("limit", "How many at most. Default: 50.", least=1, most=200)
CURSOR = parameters.text("cursor", "The next page: the cursor in `Link` of the page before it.", most=2_000)


@dataclass(frozen=True, slots=True)
class ContextList:
    """A page of conversations; `Link` leads to the next one."""

    contexts: list[ListedContext]


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls, the oldest first, a thousand at most."""

    calls: list[UnsettledCall]


@dataclass(frozen=True, slots=True)
class WorkerList:
    """Live workers, by service."""

    workers: list[LiveWorker]


@dataclass(frozen=True, slots=True)
class Tool(OfferedFunction):
    """A function that live workers of a service serve."""

    schema: dict[str, Any] | None
    """The schema that models receive, in OpenAI's form; None if it has none."""


@dataclass(frozen=True, slots=True)
class FunctionList:
    """Functions that live workers serve, by name."""

    tools: list[Tool]


@dataclass(frozen=True, slots=True)
class Lag:
    """The progress of each partition."""

    topic: str
    partitions: list[PartitionProgress]


@dataclass(frozen=True, slots=True)
class ParkedList:
    """Conversations whose frames are stored and not folded, in the order in which they were parked."""

    parked: list[Parked]


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""

    def route(
        path: str,
        endpoint: UnboundEndpoint,
        summary: str,
        model: type | None,
        *,
        scope: Scope = "read",
        **also: Any,
    ) -> BaseRoute:
        return DescribedRoute(
            "GET",
            f"/v1/{path}",
            bound(endpoint, dependencies),
            scope=scope,
            summary=summary,
            answers={200: {"description": summary, "model": model}},
            problems=("bad-parameter",) if also else (),
            **also,
        )

    return [
        route(
            "contexts",
            _contexts,
            "Conversations, the newest first. `Link` leads to the next page.",
            ContextList,
            parameters=[PREFIX, TEXT, STATUS, MODEL, SINCE, UNTIL, EXPERIMENTS, ORDER, LIMIT, CURSOR],
        ),
        route(
            "waiting",
            _waiting,
            "Calls that wait for a person or, with `by_client`, for the client.",
            CallList,
        ),
        route(
            "ambiguous", _ambiguous, "Ambiguous calls: it is unknown whether they were executed.", CallList
        ),
        route("workers", _workers, "Live workers, by service.", WorkerList),
        route("tools", _tools, "Functions that live workers serve.", FunctionList),
        route("lag", _lag, "The progress of each partition of the log.", Lag),
        route("parked", _parked, "Conversations that are parked.", ParkedList),
        route(
            "rejected",
            _rejected,
            "Dead letters, the newest first.",
            None,
            scope="admin",
            parameters=[LIMIT],
        ),
    ]


async def _contexts(dependencies: Dependencies, request: Request) -> Response:
    selection = Selection(
        prefix=_narrower(request, PREFIX.of(request) or ""),
        text=TEXT.of(request),
        status=cast(Status | None, STATUS.of(request)),
        model=MODEL.of(request),
        since=SINCE.of(request),
        until=UNTIL.of(request),
        experiments=EXPERIMENTS.of(request) or False,
    )
    written = CURSOR.of(request)
    found = await dependencies.database.read(
        listing.page,
        selection,
        LIMIT.of(request) or 50,
        behind=None if written is None else _behind(written),
        last_active=ORDER.of(request) == "active",
    )
    headers = {} if found.last is None else answers.next_page(request, cursor=answers.cursor(*found.last))
    return answers.json_answer(ContextList(found.contexts), headers=headers)


async def _calls(dependencies: Dependencies, request: Request, status: str) -> Response:
    prefix = caller.of(request.scope).prefix
    calls = await dependencies.database.read(tool_calls.unsettled, None, status=status, prefix=prefix)
    return answers.json_answer(CallList(calls))


async def _waiting(dependencies: Dependencies, request: Request) -> Response:
    return await _calls(dependencies, request, "waiting")


async def _ambiguous(dependencies: Dependencies, request: Request) -> Response:
    return await _calls(dependencies, request, "ambiguous")


async def _workers(dependencies: Dependencies, _: Request) -> Response:
    return answers.json_answer(WorkerList(await dependencies.database.read(serving.workers)))


async def _tools(dependencies: Dependencies, _: Request) -> Response:
    functions = await dependencies.database.read(serving.functions)
    schemas = await dependencies.database.read(offers.tools_on_offer)
    return answers.json_answer(
        FunctionList([Tool(**asdict(one), schema=schemas.get(one.function_name)) for one in functions])
    )


async def _lag(dependencies: Dependencies, _: Request) -> Response:
    topic = TopicNames(dependencies.settings.topic_prefix).frames
    return answers.json_answer(
        Lag(topic, await dependencies.database.read(partition_progress.progress, topic))
    )


async def _parked(dependencies: Dependencies, request: Request) -> Response:
    token_caller = caller.of(request.scope)
    conversations = await dependencies.database.read(parked.conversations)
    return answers.json_answer(
        ParkedList([one for one in conversations if token_caller.may_see(one.context_id)])
    )


async def _rejected(dependencies: Dependencies, request: Request) -> Response:
    topic = TopicNames(dependencies.settings.topic_prefix).frames
    letters = await dependencies.database.read(dead_letters.newest, topic, LIMIT.of(request) or 50)
    return answers.json_answer({"rejected": [_letter(one) for one in letters]})


def _letter(letter: DeadLetter) -> dict[str, Any]:
    headers = letter.record_headers
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "generation": letter.generation,
        "offset": letter.offset,
        "logged_at": letter.logged_at,
        "recorded_at": letter.recorded_at,
        "retried_at": letter.retried_at,
        "code": letter.code,
        "error": letter.error,
        "context_id": letter.context_id,
        "key": _bytes(letter.key),
        "value": _bytes(letter.value),
        "headers": None if headers is None else [[name, _bytes(value)] for name, value in headers],
    }


def _bytes(value: bytes | None) -> Any:
    """Returns a string if the value is UTF-8, else an object with the bytes."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _narrower(request: Request, prefix: str) -> str:
    """Returns the longer of the requested prefix and that of the caller's token. Raises `forbidden` if they exclude
    each other."""
    own = caller.of(request.scope).prefix
    if prefix.startswith(own):
        return prefix
    if own.startswith(prefix):
        return own
    raise ProblemError("forbidden", f"This token is for conversations whose ids begin with {own!r}.")


def _behind(cursor: str) -> tuple[datetime, str]:
    match answers.keys_of(cursor, 2):
        case [str(started_at), str(context_id)] if not has_half(context_id):
            with suppress(ValueError, OverflowError):
                return datetime.fromisoformat(started_at).astimezone(UTC), parameters.read_text(context_id)
    raise ProblemError("bad-parameter", "cursor: it is not the cursor of a page.")
