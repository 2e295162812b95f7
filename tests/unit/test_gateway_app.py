"""The gateway's app without servers: problems, their pages, paths."""

import asyncio
import base64
import json
import re

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.gateway import served

from frameledger.frames import FRAME_TYPES, InterruptionFrame
from frameledger_services.client import (
    BrokerError,
    Client,
    DatabaseUnavailableError,
    FramesUnacknowledgedError,
    NoSuchContextError,
    NoSuchVersionError,
    SchemaError,
)
from frameledger_services.gateway import answers, contexts, frames
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.hub import Hub
from frameledger_services.gateway.outages import EVERY_SECONDS, Outages
from frameledger_services.gateway.problems import KINDS, ProblemError
from frameledger_services.gateway.service import _Server
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections
from frameledger_services.store.context_json import ContextHead


def ask(address: str, *routes: Route, method: str = "GET", content: bytes | None = None) -> httpx.Response:
    async def asked() -> httpx.Response:
        settings = Settings()
        async with Client(settings) as client:
            dependencies = Dependencies(
                settings, client, Connections(settings), Hub(settings), asyncio.Event()
            )
            transport = httpx.ASGITransport(served(dependencies, routes), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                headers = {"Content-Type": "application/json"}
                return await http.request(method, address, content=content, headers=headers)

    return asyncio.run(asked())


@pytest.mark.parametrize("word", KINDS)
def test_every_problem_has_a_page_to_which_its_type_leads(word: str) -> None:
    async def fail(_: Request) -> Response:
        raise ProblemError(word, "As told.", newest=7)

    answer = ask("/fail", Route("/fail", fail))
    assert answer.status_code == KINDS[word].status
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in answer.headers) == (answer.status_code in (429, 503))
    problem = answer.json()
    assert problem == {
        "type": f"/problems/{word}",
        "title": KINDS[word].title,
        "status": KINDS[word].status,
        "detail": "As told.",
        "instance": "/fail",
        "newest": 7,
    }
    page = ask(problem["type"])
    assert page.status_code == 200
    assert KINDS[word].title in page.text


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (NoSuchContextError("a"), "no-such-context"),
        (NoSuchVersionError("a", 3, 2), "no-such-version"),
        (DatabaseUnavailableError("away"), "database-away"),
        (SchemaError(None, "of another release"), "wrong-schema"),
        (BrokerError("away"), "log-away"),
        pytest.param(
            FramesUnacknowledgedError("away", [InterruptionFrame(id="i1")]),
            "log-away",
            marks=pytest.mark.regression("fault 66"),
        ),
        (ValueError("a bug"), "internal-error"),
    ],
)
def test_an_error_is_answered_by_its_problem(error: Exception, word: str) -> None:
    async def fail(_: Request) -> Response:
        raise error

    answer = ask("/fail", Route("/fail", fail))
    assert answer.json()["type"] == f"/problems/{word}"


def cursor(written: bytes) -> str:
    return f"/v1/contexts?cursor={base64.urlsafe_b64encode(written).decode().rstrip('=')}"


@pytest.mark.regression("gateway 1")
@pytest.mark.parametrize(
    ("address", "content", "word"),
    [
        (cursor(b"[" * 1_400), None, "bad-parameter"),
        (cursor(b'["2026-11-01T00:00:00Z",["a"]]'), None, "bad-parameter"),
        (cursor(b'["2026-11-01T00:00:00Z",{"a":1}]'), None, "bad-parameter"),
        (cursor(b'["2026-11-01T00:00:00Z","\\ud800"]'), None, "bad-parameter"),
        ("/v1/contexts/a/frames", b"[" * 100_000, "bad-frame"),
        ("/v1/contexts/a/frames", b'[{"a":' * 50_000, "bad-frame"),
        ("/v1/contexts/a/frames", b"[" * 100_000 + b"]" * 100_000, "bad-frame"),
        (
            "/v1/contexts/a/frames/outcomes",
            b'{"frames":[{"id":"\\ud800","place":"llm.frames:1:0:0"}]}',
            "bad-parameter",
        ),
        ("/session", b"[" * 4_000, "bad-parameter"),
    ],
)
def test_what_cannot_be_meant_is_refused(address: str, content: bytes | None, word: str) -> None:
    answer = ask(address, method="GET" if content is None else "POST", content=content)
    assert answer.json()["type"] == f"/problems/{word}"


@pytest.mark.parametrize(
    ("address", "method", "word"),
    [
        ("/elsewhere", "GET", "not-found"),
        ("/problems/none", "GET", "not-found"),
        ("/livez/", "GET", "not-found"),
        ("/livez", "DELETE", "method-not-allowed"),
    ],
)
def test_what_no_route_has_is_a_problem_too(address: str, method: str, word: str) -> None:
    answer = ask(address, method=method)
    assert answer.json()["type"] == f"/problems/{word}"
    if answer.status_code == 405:
        assert "GET" in answer.headers["allow"]


def test_a_method_that_a_path_does_not_have_is_answered_by_all_that_it_has() -> None:
    for path, methods in (
        ("/v1/contexts/a/frames", "GET, POST"),
        ("/v1/contexts/a", "DELETE, GET, HEAD"),
    ):
        assert ask(path, method="PUT").headers["allow"] == methods


def test_an_outage_is_logged_at_once_and_then_every_few_seconds_with_how_many_it_met(caplog) -> None:
    now = [100.0]
    outages = Outages(now=lambda: now[0])
    for word in ("database-away", "log-away", "no-such-context"):
        for _ in range(3):
            outages.note(word, "refused")
    now[0] += EVERY_SECONDS
    outages.note("database-away", "refused")
    assert [record.frameledger for record in caplog.records] == [
        {"event": "gateway.database_away", "reason": "refused", "requests": 1},
        {"event": "gateway.log_away", "reason": "refused", "requests": 1},
        {"event": "gateway.database_away", "reason": "refused", "requests": 3},
    ]


def test_however_a_request_meets_an_outage_it_is_logged(caplog) -> None:
    async def refused(_: Request) -> Response:
        raise ProblemError("log-away", "as a route says")

    async def fails(_: Request) -> Response:
        raise DatabaseUnavailableError("as it is raised")

    routes = (Route("/refused", refused), Route("/fails", fails))
    for path in ("/refused", "/fails"):
        assert ask(path, *routes).status_code == 503
    assert [(one["event"], one["reason"]) for one in (record.frameledger for record in caplog.records)] == [
        ("gateway.log_away", "as a route says"),
        ("gateway.database_away", "as it is raised"),
    ]


@pytest.mark.regression("gateway 7")
def test_a_connection_is_kept_for_longer_than_a_load_balancer_keeps_it() -> None:
    async def none(*_: object) -> None: ...

    assert _Server(Settings(), none).config.timeout_keep_alive > 60


def test_a_path_is_matched_as_it_was_sent() -> None:
    async def echo(request: Request) -> Response:
        return JSONResponse(request.path_params["id"])

    route = Route("/echo/{id}", echo)
    assert json.loads(ask("/echo/acme%2Fcall-1", route).text) == "acme%2Fcall-1"
    assert ask("/echo/acme/call-1", route).status_code == 404


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("call-1.jsonl", "filename=\"call-1.jsonl\"; filename*=UTF-8''call-1.jsonl"),
        ('a/\r\n"ü', "filename=\"a_____\"; filename*=UTF-8''a%2F%0D%0A%22%C3%BC"),
    ],
)
def test_a_file_has_the_name_of_its_conversation_whatever_that_is(name: str, header: str) -> None:
    assert answers.as_file(name) == {"Content-Disposition": f"attachment; {header}"}


@pytest.mark.regression("fault 68")
def test_the_tag_of_an_older_version_is_another_one_whenever_there_is_a_newer_one():
    tags = [contexts.tag(ContextHead(5, newest, 0, 1, 7)) for newest in (5, 6, 300)]
    assert tags == ['"5.1.parked7"', '"5.n6.1.parked7"', '"5.n300.1.parked7"']


def test_what_stands_in_a_path_of_the_document_is_a_parameter_of_it():
    for path, operations in ask("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            described = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert described == set(re.findall(r"\{(.*?)\}", path)), path


@pytest.mark.regression("gateway 106")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("form", ["", "&form=openai"])
def test_a_context_is_not_asked_for_at_two_moments(method, form):
    answer = ask(f"/v1/contexts/a?version=1&at=2026-05-01T12:00:00Z{form}", method=method)
    assert answer.status_code == 400
    if method == "GET":
        assert (answer.json()["param"], answer.json()["detail"]) == ("at", "at: not together with version.")


@pytest.mark.regression("gateway 107")
def test_a_client_made_from_the_document_can_ask_for_several_frames():
    parameters = ask("/openapi.json").json()["paths"]["/v1/contexts/{context_id}/frames"]["get"]["parameters"]
    [schema] = [one["schema"] for one in parameters if one["name"] == "id"]
    # In a query an array is one parameter for each of its values, unless the document says otherwise.
    assert (schema["type"], schema["items"]["type"], schema["maxItems"]) == (
        "array",
        "string",
        frames.MAX_IDS,
    )


def parts_of(value, place=""):
    """Yields every object of a document, with its place."""
    if isinstance(value, dict):
        yield place, value
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in named:
        yield from parts_of(part, f"{place}/{name}")


@pytest.mark.regression("gateway 119")
def test_a_client_made_from_the_document_has_every_body():
    """Generators leave out what has no schema, and routes with arrays that do not say of what they are, or with
    enumerations of true and false."""
    parts = dict(parts_of(ask("/openapi.json").json()))
    media_types = [
        one for place, part in parts.items() if place.endswith("/content") for one in part.values()
    ]
    assert media_types
    assert all("schema" in one for one in media_types)
    arrays = {place: one for place, one in parts.items() if "array" in one.get("type", ())}
    assert "/components/schemas/ResponseRequest/properties/input" in arrays
    assert [place for place, one in arrays.items() if "items" not in one] == []
    enumerations = {place: one["enum"] for place, one in parts.items() if isinstance(one.get("enum"), list)}
    assert enumerations
    assert [place for place, values in enumerations.items() if True in values or False in values] == []


@pytest.mark.regression("gateway 100")
def test_of_each_body_the_document_says_how_it_may_be_refused():
    for path, operations in ask("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            if "requestBody" in operation:
                assert {"400", "408", "413", "415"} <= operation["responses"].keys(), path


@pytest.mark.regression("gateway 105")
@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("get", "/v1/contexts/{context_id}", {"If-None-Match"}),
        ("head", "/v1/contexts/{context_id}", {"If-None-Match"}),
        (
            "post",
            "/v1/contexts/{context_id}/frames",
            {"Prefer", "If-Match", "Idempotency-Key", "Frameledger-Causation-Id", "traceparent"},
        ),
        ("post", "/v1/contexts/{context_id}/frames/outcomes", {"Prefer"}),
        (
            "post",
            "/v1/contexts/{context_id}/calls/{call}/result",
            {"Prefer", "Idempotency-Key", "traceparent"},
        ),
        ("get", "/v1/contexts/{context_id}/stream", {"Last-Event-ID"}),
        ("post", "/v1/chat/completions", {"Frameledger-Context", "Idempotency-Key", "traceparent"}),
        ("post", "/v1/responses", {"Frameledger-Context", "Idempotency-Key", "traceparent"}),
        ("post", "/v1/ag-ui", {"traceparent"}),
        ("get", "/v1/ag-ui/{context_id}", {"Last-Event-ID"}),
    ],
)
def test_the_document_has_the_headers_that_a_route_reads(method, path, headers):
    parameters = ask("/openapi.json").json()["paths"][path][method]["parameters"]
    assert {one["name"] for one in parameters if one["in"] == "header"} == headers


def test_every_type_of_frame_has_a_schema_which_the_document_leads_to():
    document = ask("/openapi.json").json()
    frame = document["components"]["schemas"]["Frame"]
    listed = ask(frame["externalDocs"]["url"]).json()["schemas"]
    assert {path.removeprefix("/schemas/").partition(".")[0] for path in listed} == set(FRAME_TYPES)
    assert frame["properties"]["type"]["examples"] == list(FRAME_TYPES)
    for path in listed:
        answer = ask(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/schema+json")
        own = answer.json()["properties"]
        assert own["type"]["const"] == path.removeprefix("/schemas/").partition(".")[0]
        # What the document says of every frame is said of this one.
        assert frame["properties"].keys() <= own.keys()
    assert ask("/schemas/README.md").status_code == 404
