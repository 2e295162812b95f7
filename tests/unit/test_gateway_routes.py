"""Every route of the gateway, enumerated: none is reached without its scope, and none shows what is beyond a prefix."""

import asyncio
import re
import tracemalloc
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from starlette.routing import Route
from tests.support.gateway import AWAY, all_routes, app_of

from frameledger.record import MAX_KEY_BYTES
from frameledger_services.gateway.access import policy, read_log, tokens
from frameledger_services.gateway.access.caller import SCOPES
from frameledger_services.gateway.append import FRAMES
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.gateway.routes import DescribedRoute
from frameledger_services.settings import Settings

ROUTES = [
    pytest.param(method, route.path, route, id=f"{method} {route.path}") for method, route in all_routes()
]


def filled(path, context_id):
    """The path with this conversation, and with 1 for everything else."""
    return re.sub(r"\{.*?\}", "1", path.replace("{context_id}", context_id))


@pytest.fixture
def ask(tmp_path):
    """What the gateway answers to a token of these scopes and this prefix; to no token if there is no scope."""
    file = tmp_path / "tokens.json"
    settings = Settings(**AWAY, gateway_tokens_file=file, gateway_openai=True)
    tokens.create(file, "somebody", ("read",), now=datetime.now(UTC))

    def ask(method, path, scopes=(), prefix="", **more):
        async def asked():
            async with app_of(settings, text) as http:
                return await http.request(method, path, **more)

        text = None
        if scopes:
            text = tokens.create(file, "-".join(scopes), scopes, prefix=prefix, now=datetime.now(UTC))[1]
        return asyncio.run(asked())

    return ask


def word(answer):
    said = answer.json()
    if "error" in said:
        return {"invalid_api_key": "unauthorised"}.get(said["error"]["code"], said["error"]["code"])
    return said["type"].removeprefix("/problems/")


def test_there_are_routes_and_all_are_known_by_their_paths():
    assert len(ROUTES) > 8
    assert [route for _, _, route in (one.values for one in ROUTES) if not isinstance(route, Route)] == []


@pytest.mark.parametrize(("method", "path", "route"), ROUTES)
def test_what_a_route_says_that_it_needs_is_what_it_needs(method, path, route):
    needed = policy.needed(method, filled(path, "acme%2F1"))
    assert needed.is_listed
    if isinstance(route, DescribedRoute):
        assert route.operation["security"] == [{"token": list(needed.scopes)}]
    else:
        assert needed.scopes == ()
    assert ("{context_id}" in path) is (needed.context_id is not None)


@pytest.mark.regression("gateway 83")
@pytest.mark.parametrize(
    "looked_at",
    [
        lambda path: policy.needed("GET", path).context_id,
        lambda path: read_log._read_event("ci", None, policy.needed("GET", path).context_id, path, None),
    ],
    ids=["what it needs", "how it is logged"],
)
def test_of_a_path_that_is_too_long_for_any_conversation_nothing_is_kept(looked_at):
    tracemalloc.start()
    try:
        assert all(looked_at(f"/v1/contexts/{n}%F0%9F%98%80{'a' * 20_000}") for n in range(100))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100 * 20_000 / 4


def test_what_the_path_of_the_longest_id_needs_is_kept():
    id_ = "\N{GRINNING FACE}" * (MAX_KEY_BYTES // 4)
    path = f"/v1/contexts/{quote(id_)}/frames"
    assert policy.needed("GET", path) is policy.needed("GET", path)
    assert policy.needed("GET", path).context_id == id_


@pytest.mark.parametrize(("method", "path", "route"), ROUTES)
def test_a_route_is_reached_with_its_scope_alone(ask, method, path, route):
    path = filled(path, "acme%2F1")
    scopes = policy.needed(method, path).scopes
    if not scopes:
        assert ask(method, path).status_code != 403
        return
    if method != "HEAD":
        assert word(ask(method, path)) == "unauthorised"
    for needed in scopes:
        assert ask(method, path, tuple(one for one in SCOPES if one != needed)).status_code == 403


@pytest.mark.regression("gateway 54")
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize(
    ("method", "path", "route"),
    [one for one in ROUTES if one.values[0] not in policy.SAFE and isinstance(one.values[2], DescribedRoute)],
)
def test_nothing_is_changed_under_a_condition_that_is_not_looked_at(ask, method, path, route, name):
    address = filled(path, "acme%2F1")
    answer = ask(method, f"{address}?why=x", SCOPES, headers={name: '"3"'}, json=HARMLESS)
    if (path, name) == (FRAMES, "If-Match"):
        # The fold decides it, and the servers are away.
        assert answer.status_code == 503
        return
    assert answer.status_code == 400
    assert f"{name}: this precondition" in answer.text
    assert "400" in route.operation["responses"]


HARMLESS, ERASING = {"type": "LLMRunFrame"}, {"type": "LLMContextEraseFrame", "why": "asked for"}


@pytest.mark.regression("fault 57")
@pytest.mark.parametrize("body", [ERASING, [HARMLESS, ERASING], [HARMLESS, {**ERASING, "id": "one"}]])
def test_a_frame_that_erases_needs_the_scope_that_erasing_needs(ask, body):
    path = filled("/v1/contexts/{context_id}/frames", "acme%2F1")
    refused = ask("POST", path, ("append", "read"), json=body)
    assert (refused.status_code, word(refused)) == (403, "forbidden")
    assert "admin" in refused.json()["detail"]
    assert ask("POST", path, ("append", "admin"), json=body).status_code == 503
    assert ask("POST", path, ("append",), json=HARMLESS).status_code == 503


@pytest.mark.parametrize(
    ("method", "path", "route"), [one for one in ROUTES if "{context_id}" in one.values[1]]
)
@pytest.mark.parametrize("foreign", ["other%2F1", "acme", "acme%252F1", "%41cme%2F1"])
def test_a_conversation_beyond_the_prefix_is_nowhere_whatever_is_asked_of_it(
    ask, method, path, route, foreign
):
    # The servers are away, so whoever looks for the conversation is not answered 404.
    answer = ask(method, filled(path, foreign), SCOPES, "acme/")
    assert answer.status_code == 404
    if method != "HEAD":
        assert word(answer) == "no-such-context"


@pytest.mark.parametrize(
    ("method", "path", "route"), [one for one in ROUTES if "{context_id}" in one.values[1]]
)
def test_one_within_the_prefix_is_looked_for(ask, method, path, route):
    assert ask(method, filled(path, "acme%2F1"), SCOPES, "acme/").status_code in (400, 503)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/rejected"),
        ("POST", "/v1/nobody/listed/this"),
        *(
            one.values[:2]
            for one in ROUTES
            if "{context_id}" not in one.values[1]
            and policy.needed(*one.values[:2]).scopes
            and one.values[1] not in policy.LISTS | policy.NAMED_WITHIN
            and not policy.is_of_the_process(one.values[1])
        ),
    ],
)
def test_what_is_of_all_conversations_is_not_there_for_a_token_with_a_prefix(ask, method, path):
    assert ask(method, path, SCOPES, "acme/").status_code == 404


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/embeddings"), ("POST", "/v1/embeddings"), ("DELETE", "/v1/files/x")],
)
@pytest.mark.parametrize("prefix", ["", "acme/"])
def test_what_else_openai_has_is_nowhere_for_any_token_and_needs_one(ask, method, path, scope, prefix):
    assert ask(method, path).status_code == 401
    answer = ask(method, path, (scope,), prefix)
    assert (answer.status_code, word(answer)) == (404, "not_found")


SAID = [{"id": "m", "role": "user", "content": "Hello?"}]
NAMING = {
    policy.COMPLETIONS: lambda name: {"model": "m", "messages": SAID, "conversation": name},
    policy.RESPONSES: lambda name: {"model": "m", "input": "Hello?", "conversation": name},
    policy.AG_UI: lambda name: {
        "threadId": name,
        "runId": "r",
        "messages": SAID,
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    },
}
"""What a request says to each route whose conversation is not named by its path."""


def test_what_names_a_conversation_within_is_tried_too():
    assert NAMING.keys() == policy.NAMED_WITHIN


@pytest.mark.parametrize("path", sorted(NAMING))
def test_a_conversation_beyond_the_prefix_is_nowhere_wherever_it_is_named(ask, path):
    assert ask("POST", path, SCOPES, "acme/", json=NAMING[path]("other/1")).status_code == 404


@pytest.mark.parametrize("path", sorted(NAMING))
def test_one_within_the_prefix_is_looked_for_wherever_it_is_named(ask, path):
    assert ask("POST", path, SCOPES, "acme/", json=NAMING[path]("acme/1")).status_code == 503


RESPONSES = [("acme/1", 503), ("other/1", 404), ("acme", 404), ("Acme/1", 404)]


@pytest.mark.parametrize(("context_id", "status"), RESPONSES)
@pytest.mark.parametrize(("method", "more"), [("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel")])
def test_a_response_is_there_for_whoever_may_see_its_conversation(ask, method, more, context_id, status):
    answer = ask(method, f"{policy.RESPONSES}/{ResponseId(context_id, 3)}{more}", SCOPES, "acme/")
    assert answer.status_code == status
    assert word(answer) == {404: "no_such_context", 503: "database_away"}[status]


@pytest.mark.parametrize(("context_id", "status"), RESPONSES)
def test_nobody_continues_a_response_beyond_the_prefix(ask, context_id, status):
    body = {"input": "Hello?", "previous_response_id": str(ResponseId(context_id, 3))}
    answer = ask("POST", policy.RESPONSES, SCOPES, "acme/", json=body)
    assert answer.status_code == status
    assert word(answer) == {404: "previous_response_not_found", 503: "database_away"}[status]
