"""Which requests the gateway accepts, and what a browser may send for other sites, with an app that answers
everything."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from frameledger_services.gateway import problems
from frameledger_services.gateway.access import caller, rate_limit, tokens
from frameledger_services.gateway.access import sessions as page_sessions
from frameledger_services.gateway.access.live_tokens import LiveTokens
from frameledger_services.gateway.access.rate_limit import Buckets
from frameledger_services.gateway.access.response_headers import HEADERS
from frameledger_services.gateway.access.security import TokensNeededError, live_tokens, secured
from frameledger_services.gateway.access.sessions import SECONDS, Sessions
from frameledger_services.gateway.access.tokens import TokensFileError
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_sources import load

HOME = "http://127.0.0.1:18080"
ALL = ("read", "append", "admin")


class Gateway:
    """A gateway whose app answers every request with who asks; or with pieces that a test lets come, `/stream`."""

    def __init__(self, folder, *, open_to_all=False, host=HOME, **settings):
        self.file = folder / "tokens.json"
        self.settings = Settings(
            gateway_tokens_file=None if open_to_all else self.file, data_dir=folder, **settings
        )
        if not open_to_all:
            self.admin = self.token("admin", ALL)
        self.host = host
        self.live = live_tokens(self.settings)
        self.sessions = Sessions(self.settings, self.live)
        self.reached = []
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        every = Route(
            "/{path:path}", self._answer, methods=["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
        )
        self.app = secured(
            Starlette(routes=[*page_sessions.routes(self.sessions), every], exception_handlers=HANDLERS),
            self.settings,
            self.sessions,
        )

    def token(self, name, scopes=("read",), **more):
        return tokens.create(self.file, name, scopes, now=datetime.now(UTC), **more)[1]

    async def _answer(self, request: Request) -> Response:
        asking = caller.of(request.scope)
        self.reached.append((request.method, request.url.path, asking.name))
        if request.url.path.endswith("/stream"):
            return StreamingResponse(self._stream(), media_type="text/event-stream")
        return JSONResponse(asking.name, headers={"ETag": '"41"'})

    async def _stream(self):
        while True:
            yield await self.pieces.get()

    def ask(self, path, method="GET", *, token=None, **more):
        return self.ask_all([(path, method, token, more)])[0]

    def ask_all(self, asked):
        """The answers to several requests of one browser, one after another."""

        async def all_of_them():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=self.host) as http:
                return [
                    await http.request(method, path, **with_token(token, more))
                    for path, method, token, more in asked
                ]

        return asyncio.run(all_of_them())


def with_token(token, more):
    headers = httpx.Headers(more.get("headers"))
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return {**more, "headers": headers}


def said(answer):
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


async def _problem(request, error):
    return problems.answer(request, error)


async def _bug(_, error):
    BUGS.append(error)
    return Response(status_code=500)


BUGS: list[Exception] = []
HANDLERS = {problems.ProblemError: _problem, Exception: _bug}


@pytest.fixture
def gateway(tmp_path):
    return Gateway(tmp_path)


# Tokens and scopes


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer x", "Basic eDp5", "Bearer fl_0000000000_" + "a" * 43, "bearer\x7f"],
    ids=str,
)
def test_who_shows_no_good_token_reaches_nothing(gateway, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = gateway.ask("/v1/contexts", headers=headers)
    assert said(answer) == (401, "unauthorised")
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert gateway.reached == []


def test_a_token_is_known_by_its_name_until_it_is_revoked_or_expires(gateway):
    token = gateway.token("ci")
    assert gateway.ask("/v1/contexts", token=token).json() == "ci"
    assert gateway.ask("/v1/contexts", headers={"Authorization": f"bearer  {token} "}).json() == "ci"
    tokens.revoke(gateway.file, "ci")
    assert said(gateway.ask("/v1/contexts", token=token)) == (401, "unauthorised")
    old = gateway.token("old", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert said(gateway.ask("/v1/contexts", token=old)) == (401, "unauthorised")


def test_a_token_in_the_address_is_none(gateway):
    for name in ("token", "access_token", "authorization"):
        assert said(gateway.ask(f"/v1/contexts?{name}={gateway.admin}")) == (401, "unauthorised")


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/openapi.json", "/asyncapi.json", "/docs", "/problems/erased"]
)
def test_what_says_nothing_of_conversations_is_for_everybody(gateway, path):
    assert gateway.ask(path).json() == "nobody"
    assert gateway.ask(path, token=gateway.admin).json() == "admin"


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/contexts", "read"),
        ("GET", "/v1/contexts/a", "read"),
        ("GET", "/v1/contexts/a/stream/x", "read"),
        ("GET", "/v1/waiting", "read"),
        ("GET", "/v1/lag", "read"),
        ("POST", "/v1/contexts/a/frames", "append"),
        ("POST", "/v1/contexts/a/calls/c/result", "append"),
        ("PUT", "/v1/contexts/a", "append"),
        ("DELETE", "/v1/contexts/a", "admin"),
        ("GET", "/v1/rejected", "admin"),
        ("GET", "/v1/parked", "read"),
        ("GET", "/v1/anything/new", "admin"),
        ("GET", "/metrics", "admin"),
        ("GET", "/problemsx", "admin"),
    ],
)
def test_a_request_needs_its_scope_and_no_other(gateway, method, path, scope):
    good = gateway.token("good", (scope,))
    bad = gateway.token("bad", tuple(one for one in ALL if one != scope))
    refused = gateway.ask(path, method, token=bad)
    assert refused.status_code == 403
    assert f"the scope {scope}" in refused.json()["detail"]
    assert gateway.ask(path, method, token=good).status_code == 200
    assert [name for _, _, name in gateway.reached] == ["good"]


# Prefix


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("/v1/contexts/acme%2F1", True),
        ("/v1/contexts/acme%2F1/frames/3?raw", True),
        ("/v1/contexts/%61cme%2F1/frames", True),
        ("/v1/contexts/acme%2F", True),
        ("/v1/contexts", True),
        ("/v1/waiting", True),
        ("/v1/lag", True),
        ("/v1/contexts/acme", False),
        ("/v1/contexts/acme%252F1", False),
        ("/v1/contexts/other%2F1/frames", False),
        ("/v1/contexts/Acme%2F1", False),
        ("/v1/contexts/%2E%2E%2Facme%2F1", False),
        ("/v1/contexts/", False),
        ("/v1/rejected", False),
        ("/v1/parked", True),
        ("/v1/anything/new", False),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_beyond_the_prefix_of_a_token_there_is_nothing(gateway, method, path, is_there):
    token = gateway.token("acme", ALL, prefix="acme/")
    answer = gateway.ask(path, method, token=token)
    assert answer.status_code == (200 if is_there else 404)
    assert bool(gateway.reached) is is_there
    assert gateway.ask(path, method, token=gateway.admin).status_code == 200


def test_a_conversation_of_others_is_said_to_be_nowhere(gateway):
    token = gateway.token("acme", prefix="acme/")
    assert gateway.ask("/v1/contexts/other%2F%C3%BC", token=token).json() == {
        "type": "/problems/no-such-context",
        "title": "Conversation not found",
        "status": 404,
        "detail": "There is no context 'other/ü' in the database.",
        "instance": "/v1/contexts/other/ü",
        "context_id": "other/ü",
    }


# Without tokens


def test_without_tokens_this_machine_may_do_everything(tmp_path):
    gateway = Gateway(tmp_path, open_to_all=True)
    assert gateway.ask("/v1/rejected").json() == "loopback"
    assert gateway.ask("/v1/contexts/a", "DELETE").json() == "loopback"
    # OpenAI's clients send a key whether one is needed or not.
    assert gateway.ask("/v1/contexts", token="sk-any").json() == "loopback"
    assert gateway.ask("/session").json()["needs_token"] is False
    assert gateway.ask("/session", "POST", json={"token": ""}).json()["needs_token"] is False


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("LOCALHOST:18080", True),
        ("127.0.0.1:18080", True),
        ("[::1]:18080", True),
        ("127.1.2.3", True),
        ("attacker.example", False),
        ("localhost.attacker.example:18080", False),
        ("127.0.0.1.attacker.example", False),
        ("10.0.0.1:18080", False),
        ("[::]", False),
        ("", False),
        ("[", False),
        ("attacker@localhost", False),
    ],
)
def test_without_tokens_a_name_that_leads_here_is_refused(tmp_path, host, is_here):
    gateway = Gateway(tmp_path, open_to_all=True)
    for path in ("/v1/contexts", "/livez"):
        answer = gateway.ask(path, headers={"Host": host})
        assert answer.status_code == (200 if is_here else 403)
    assert bool(gateway.reached) is is_here


def test_with_tokens_any_name_is_answered(gateway):
    assert (
        gateway.ask("/v1/contexts", token=gateway.admin, headers={"Host": "ledger.example"}).status_code
        == 200
    )


def test_the_first_token_closes_a_gateway_that_runs(tmp_path):
    gateway = Gateway(tmp_path, open_to_all=True)
    assert gateway.ask("/v1/contexts").status_code == 200
    token = tokens.create(tmp_path / tokens.FILE, "ci", ("read",), now=datetime.now(UTC))[1]
    assert said(gateway.ask("/v1/contexts")) == (401, "unauthorised")
    assert gateway.ask("/v1/contexts", token=token).json() == "ci"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "ledger.example", ""])
def test_beyond_this_machine_it_does_not_listen_without_tokens(tmp_path, host):
    settings = Settings(gateway_host=host, data_dir=tmp_path)
    with pytest.raises(TokensNeededError, match="frameledger token new"):
        live_tokens(settings)
    tokens.create(tokens.path_of(settings), "ci", ("read",), now=datetime.now(UTC))
    assert live_tokens(settings).are_required()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_on_this_machine_it_does(tmp_path, host):
    assert not live_tokens(Settings(gateway_host=host, data_dir=tmp_path)).are_required()


def test_a_file_that_a_setting_names_has_to_be_there(tmp_path):
    with pytest.raises(TokensFileError, match="No such file"):
        live_tokens(Settings(gateway_tokens_file=tmp_path / "none.json"))


# Sessions


def begun(gateway, token, **more):
    return gateway.ask("/session", "POST", json={"token": token}, **more)


def cookie_of(answer):
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_a_session_says_where_traces_are_if_the_settings_do(tmp_path):
    gateway = Gateway(tmp_path, open_to_all=True)
    assert "trace_url" not in gateway.ask("/session").json()
    address = "https://jaeger.example/trace/{trace_id}"
    gateway = Gateway(tmp_path, open_to_all=True, trace_url=address)
    assert gateway.ask("/session").json()["trace_url"] == address


def test_a_session_stands_for_its_token(gateway):
    token = gateway.token("auditor", prefix="acme/", redact=True)
    answer = begun(gateway, token)
    about = {"name": "auditor", "scopes": ["read"], "prefix": "acme/", "redact": True, "needs_token": True}
    assert answer.json() == about
    cookie = answer.headers["set-cookie"]
    assert token not in cookie
    parts = [part.strip() for part in cookie.split(";")]
    assert parts[0].startswith("frameledger-session=")
    assert {*parts[1:]} == {"HttpOnly", "Max-Age=43200", "Path=/", "SameSite=strict"}
    assert gateway.ask("/v1/lag", headers=cookie_of(answer)).json() == "auditor"
    assert gateway.ask("/session", headers=cookie_of(answer)).json() == about
    assert said(gateway.ask("/session")) == (401, "unauthorised")
    assert said(gateway.ask("/v1/contexts/a", "DELETE", headers=cookie_of(answer))) == (403, "forbidden")


def test_on_https_the_cookie_is_bound_to_its_host(tmp_path):
    gateway = Gateway(tmp_path, host="https://ledger.example")
    answer = begun(gateway, gateway.admin)
    parts = {part.strip() for part in answer.headers["set-cookie"].split(";")}
    assert "Secure" in parts
    assert any(part.startswith("__Host-frameledger-session=") for part in parts)
    assert gateway.ask("/v1/contexts", headers=cookie_of(answer)).json() == "admin"


def test_a_session_is_dead_when_its_token_is(gateway):
    answer = begun(gateway, gateway.token("ci"))
    tokens.revoke(gateway.file, "ci")
    assert said(gateway.ask("/v1/contexts", headers=cookie_of(answer))) == (401, "unauthorised")


def test_a_session_ends_after_twelve_hours(gateway, monkeypatch):
    headers = cookie_of(begun(gateway, gateway.admin))
    now = datetime.now(UTC).timestamp()
    at = [now + SECONDS - 60]
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: at[0])
    assert gateway.ask("/v1/contexts", headers=headers).status_code == 200
    at[0] = now + SECONDS + 60
    assert gateway.ask("/v1/contexts", headers=headers).status_code == 401


def test_a_session_ends_when_its_page_ends_it(gateway):
    answer = gateway.ask("/session", "DELETE", headers=cookie_of(begun(gateway, gateway.admin)))
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b'{"token": "fl_0000000000_x"}', (401, "unauthorised")),
        (b'{"token": 1}', (400, "bad-parameter")),
        (b"[]", (400, "bad-parameter")),
        (b"\xff", (400, "bad-parameter")),
        (b"x" * 5_000, (413, "too-large")),
    ],
    ids=range(5),
)
def test_what_is_no_token_begins_no_session(gateway, body, refused):
    answer = gateway.ask("/session", "POST", content=body)
    assert said(answer) == refused
    assert "set-cookie" not in answer.headers


def test_a_cookie_that_was_changed_is_none(gateway):
    other = Sessions(Settings(), gateway.live)
    forged = Response()
    token = gateway.live.of_text(gateway.admin)
    other.begin(forged, token, is_https=False)
    real = cookie_of(begun(gateway, gateway.admin))["Cookie"]
    for cookie in (
        forged.headers["set-cookie"].partition(";")[0],
        real[:-1],
        f"frameledger-session={token.id}",
    ):
        assert gateway.ask("/v1/contexts", headers={"Cookie": cookie}).status_code == 401


def test_gateways_with_one_key_share_their_sessions(tmp_path):
    one = Gateway(tmp_path, gateway_session_key="k" * 32)
    other = Sessions(one.settings, LiveTokens(one.file, required=True))
    headers = httpx.Headers(cookie_of(begun(one, one.admin)))
    assert other.token_of(headers).name == "admin"
    assert Sessions(Settings(), one.live).token_of(headers) is None


def test_a_token_that_is_wrong_is_not_helped_by_a_good_cookie(gateway):
    headers = cookie_of(begun(gateway, gateway.admin))
    assert gateway.ask("/v1/contexts", token="fl_x", headers=headers).status_code == 401


# Other origins


BROWSERS = [
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Sec-Fetch-Site": "none"}, True),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Origin": HOME}, False),
    ({"Origin": HOME}, True),
    ({"Origin": "http://127.0.0.1:3000"}, False),
    ({"Origin": "https://attacker.example"}, False),
    ({"Origin": "null"}, False),
    ({"Origin": "http://["}, False),
    ({}, True),
]


@pytest.mark.parametrize(("sent", "is_ours"), BROWSERS, ids=str)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_page_of_another_origin_changes_nothing_with_a_cookie(gateway, method, sent, is_ours):
    cookie = cookie_of(begun(gateway, gateway.admin))
    answer = gateway.ask("/v1/contexts/a", method, headers={**cookie, **sent})
    assert answer.status_code == (200 if is_ours else 403)
    assert gateway.ask("/v1/contexts/a", "GET", headers={**cookie, **sent}).status_code == 200
    assert gateway.ask("/v1/contexts/a", method, token=gateway.admin, headers=sent).status_code == 200


@pytest.mark.parametrize(("sent", "is_ours"), BROWSERS, ids=str)
def test_nor_where_there_are_no_tokens_nor_does_it_begin_a_session(tmp_path, sent, is_ours):
    gateway = Gateway(tmp_path, open_to_all=True)
    for path in ("/v1/contexts/a/frames", "/session"):
        answer = gateway.ask(path, "POST", headers=sent, content=b'{"token": ""}')
        assert answer.status_code == (200 if is_ours else 403)


def test_no_other_origin_may_read_unless_it_is_listed(tmp_path):
    sent = {"Origin": "https://app.example"}
    preflight = {
        **sent,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    closed = Gateway(tmp_path)
    for answer in (
        closed.ask("/v1/contexts", token=closed.admin, headers=sent),
        closed.ask("/v1/contexts", "OPTIONS", headers=preflight),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]

    (tmp_path / "listed").mkdir()
    listed = Gateway(tmp_path / "listed", gateway_cors_origins="https://app.example, https://other.example")
    answer = listed.ask("/v1/contexts", "OPTIONS", headers=preflight)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    accepted = set(answer.headers["access-control-allow-headers"].split(", "))
    assert {"Authorization", "Frameledger-Causation-Id"} <= accepted
    answer = listed.ask("/v1/contexts", token=listed.admin, headers=sent)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    assert {"ETag", "Link", "Location", "Preference-Applied", "X-Should-Retry"} <= exposed
    assert "access-control-allow-credentials" not in answer.headers
    # A refusal can be read too, so that a page can say what is wrong.
    assert (
        listed.ask("/v1/contexts", headers=sent).headers["access-control-allow-origin"]
        == "https://app.example"
    )
    stranger = listed.ask("/v1/contexts", token=listed.admin, headers={"Origin": "https://attacker.example"})
    assert "access-control-allow-origin" not in stranger.headers


@pytest.mark.parametrize(
    "wrong", ["*", "https://*.example", "app.example", "https://a.example/", "https://a.example b"]
)
def test_an_origin_is_named_whole(wrong):
    with pytest.raises(SettingsError, match="GATEWAY_CORS_ORIGINS"):
        load({"FRAMELEDGER_GATEWAY_CORS_ORIGINS": wrong}, look_for_running=False)


def test_every_answer_says_what_a_browser_may_do_with_it(gateway):
    answers = [
        gateway.ask("/v1/contexts", token=gateway.admin),
        gateway.ask("/v1/contexts"),
        gateway.ask("/problems/erased"),
        gateway.ask("/session", "POST", headers={"Sec-Fetch-Site": "cross-site"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 401, 200, 403]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}


# Limits


def test_a_bucket_gives_its_burst_and_then_its_rate():
    now = [100.0]
    buckets = Buckets(50, 200, now=lambda: now[0])
    assert [buckets.take("a") for _ in range(200)] == [0.0] * 200
    assert buckets.take("a") == pytest.approx(0.02)
    assert buckets.take("b") == 0.0
    now[0] += 0.02
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0
    now[0] += 1
    assert [buckets.take("a") > 0 for _ in range(51)] == [False] * 50 + [True]
    now[0] += 3_600
    assert [buckets.take("a") > 0 for _ in range(201)] == [False] * 200 + [True]


def test_a_token_beyond_its_rate_is_told_when_to_come_again(tmp_path):
    gateway = Gateway(tmp_path, gateway_requests_per_sec=0.001, gateway_burst=2)
    answers = gateway.ask_all([("/v1/contexts", "GET", gateway.admin, {})] * 3)
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert said(answers[-1]) == (429, "too-many")
    assert 990 < int(answers[-1].headers["retry-after"]) <= 1000
    assert gateway.ask("/v1/contexts", token=gateway.token("other")).status_code == 200
    assert gateway.ask("/livez").status_code == 200


def test_without_tokens_there_is_no_limit(tmp_path):
    gateway = Gateway(tmp_path, open_to_all=True, gateway_requests_per_sec=0.001, gateway_burst=1)
    answers = gateway.ask_all([("/v1/contexts", "GET", None, {})] * 3)
    assert [answer.status_code for answer in answers] == [200] * 3


# Streams: an ASGI call each, since httpx takes an answer only when it is whole.


class Stream:
    """A request for a stream that goes on in a task."""

    def __init__(self, gateway, token, path="/v1/contexts/a/stream"):
        self.sent: asyncio.Queue[dict] = asyncio.Queue()
        self._gone = asyncio.Event()
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "http",
            "server": ("127.0.0.1", 18080),
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())],
        }
        self.task = asyncio.create_task(gateway.app(scope, self._receive, self.sent.put))

    async def _receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def status(self):
        return (await self.sent.get())["status"]

    async def leave(self):
        self._gone.set()
        await self.task


def test_a_token_has_so_many_streams_at_once(tmp_path):
    gateway = Gateway(tmp_path, gateway_streams_per_token=2)
    other = gateway.token("other")

    async def streams():
        one, two = Stream(gateway, gateway.admin), Stream(gateway, gateway.admin)
        assert [await one.status(), await two.status()] == [200, 200]
        third = Stream(gateway, gateway.admin)
        assert await third.status() == 429
        others = Stream(gateway, other)
        assert await others.status() == 200
        await one.leave()
        fourth = Stream(gateway, gateway.admin)
        assert await fourth.status() == 200
        for left in (two, third, others, fourth):
            await left.leave()

    asyncio.run(streams())


@pytest.mark.parametrize(
    ("method", "path", "query", "accept", "counts"),
    [
        ("GET", "/v1/contexts/a/stream", b"", b"", True),
        ("GET", "/v1/contexts/a/frames", b"", b"application/x-ndjson", True),
        ("GET", "/v1/contexts/a/frames", b"format=ndjson", b"*/*", True),
        ("GET", "/v1/contexts/a/frames", b"limit=7", b"*/*", False),
        ("POST", "/v1/contexts/a/frames", b"", b"application/x-ndjson", False),
        ("GET", "/v1/contexts/a", b"", b"application/json", False),
        ("GET", "/v1/responses/resp_a", b"stream=true", b"*/*", True),
        ("GET", "/v1/responses/resp_a", b"str%65am=%74rue", b"*/*", True),
        ("GET", "/v1/responses/resp_a", b"stream=false", b"*/*", False),
    ],
)
@pytest.mark.regression("gateway 14")
def test_an_answer_of_any_length_counts_as_a_stream(method, path, query, accept, counts):
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(b"accept", accept)],
    }
    assert rate_limit._is_stream(scope) == counts


def test_a_stream_ends_at_its_next_piece_once_its_token_is_revoked(gateway):
    token = gateway.token("ci")

    async def stream():
        one = Stream(gateway, token)
        assert await one.status() == 200
        await gateway.pieces.put(b": 1\n\n")
        assert (await one.sent.get())["body"] == b": 1\n\n"
        tokens.revoke(gateway.file, "ci")
        await gateway.pieces.put(b"data: of others\n\n")
        last = await one.sent.get()
        assert (last["body"], last["more_body"]) == (b"", False)
        await one.task
        assert one.sent.empty()

    asyncio.run(stream())
    assert BUGS == []


# The log


def test_each_read_of_content_is_logged_with_who_and_what_and_without_a_word(gateway, caplog):
    token = gateway.token("auditor")
    trace = "0af7651916cd43dd8448eb211c80319c"
    sent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    with caplog.at_level("INFO", "frameledger"):
        gateway.ask("/v1/contexts/acme%2F1?version=41&q=pin", token=token, headers=sent)
        gateway.ask("/v1/contexts?prefix=acme/", token=token)
        for path, method in (
            ("/livez", "GET"),
            ("/v1/contexts/a", "HEAD"),
            ("/v1/contexts/a/frames", "POST"),
        ):
            gateway.ask(path, method, token=token)
        gateway.ask("/v1/contexts/a")
    found = [record.frameledger for record in caplog.records]
    assert found == [
        {
            "event": "gateway.read",
            "token": "auditor",
            "token_id": tokens.id_in(token),
            "context_id": "acme/1",
            "path": "/v1/contexts/acme%2F1",
            "part": {"version": "41"},
            "version": '"41"',
            "trace_id": trace,
        },
        {
            "event": "gateway.read",
            "token": "auditor",
            "token_id": tokens.id_in(token),
            "context_id": None,
            "path": "/v1/contexts",
            "part": {"prefix": "acme/"},
            "version": '"41"',
            "trace_id": None,
        },
    ]
    assert json.dumps(found).count("pin") == 0


@pytest.mark.regression("gateway 15")
def test_a_response_is_logged_with_its_conversation_however_its_id_is_written(gateway, caplog):
    token = gateway.token("auditor")
    response_id = str(ResponseId("acme/1", 3))
    with caplog.at_level("INFO", "frameledger"):
        for written in (response_id, response_id.replace("_", "%5F", 1)):
            gateway.ask(f"/v1/responses/{written}", token=token)
    assert [record.frameledger["context_id"] for record in caplog.records] == ["acme/1", "acme/1"]


@pytest.mark.regression("gateway 25")
@pytest.mark.parametrize(
    "name", ["Authorization", "Host", "If-Match", "Idempotency-Key", "Frameledger-Context"]
)
def test_a_header_that_counts_once_is_not_sent_twice(gateway, name):
    sent = [(name, f"Bearer {gateway.admin}"), (name, "other")]
    headers = sent if name == "Authorization" else [*sent, ("Authorization", f"Bearer {gateway.admin}")]
    answer = gateway.ask("/v1/contexts", headers=headers)
    assert said(answer) == (400, "bad-parameter")
    assert name in answer.json()["detail"]
