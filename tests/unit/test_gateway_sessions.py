"""Sessions of the page in a browser: a cookie for a token, and what a page of another origin may do with it."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest
from starlette.responses import Response
from tests.support.guarded_gateway import (
    BUGS,
    HOME,
    Gateway,
    guarded_gateway,  # noqa: F401  # a fixture
    said,
)

from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.live_tokens import LiveTokens
from frameledger_services.gateway.access.response_headers import HEADERS
from frameledger_services.gateway.access.sessions import SECONDS, Sessions
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_sources import load


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


@pytest.mark.regression("fault 70")
def test_on_https_a_cookie_that_another_host_may_have_set_is_no_session(tmp_path):
    gateway = Gateway(tmp_path, host="https://ledger.example")
    name, _, signed = cookie_of(begun(gateway, gateway.admin))["Cookie"].partition("=")
    theirs = f"{name.removeprefix('__Host-')}={signed}"
    for path in ("/session", "/v1/contexts"):
        assert said(gateway.ask(path, headers={"Cookie": theirs})) == (401, "unauthorised")
    assert gateway.ask("/v1/contexts", headers={"Cookie": f"{theirs}; {name}={signed}"}).status_code == 200


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


@pytest.mark.regression("gateway 57")
def test_a_body_that_ends_early_begins_no_session_and_is_no_bug(gateway):
    received = [{"type": "http.disconnect"}, {"type": "http.request", "body": b'{"tok', "more_body": True}]
    sent = []

    async def receive():
        return received.pop()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/session",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
    }
    asyncio.run(gateway.app(scope, receive, send))
    assert sent[0]["status"] == 400
    assert BUGS == []


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
    assert other.token_of(headers, is_https=False).name == "admin"
    assert Sessions(Settings(), one.live).token_of(headers, is_https=False) is None


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
    assert answer.headers["access-control-allow-headers"] == "authorization"
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


@pytest.mark.regression("gateway 52")
@pytest.mark.parametrize(
    "names",
    [
        "authorization,content-type,user-agent,x-stainless-lang,x-stainless-retry-count",
        "authorization,openai-beta,openai-organization,openai-project",
        "x-stainless-custom-poll-interval,x-stainless-poll-helper,x-stainless-of-the-next-release",
        "cache-control,frameledger-context,idempotency-key,if-match,last-event-id,prefer",
    ],
)
def test_a_listed_origin_may_send_what_clients_send_of_themselves(tmp_path, names):
    """Firefox and Safari ask for `User-Agent` too, which OpenAI's client for JavaScript sets."""
    origin = "https://app.example"
    gateway = Gateway(tmp_path, gateway_cors_origins=origin)
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": names}
    answer = gateway.ask("/v1/chat/completions", "OPTIONS", headers={"Origin": origin, **preflight})
    assert answer.status_code == 200
    accepted = answer.headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
    assert {*names.split(",")} <= {*accepted}
    other = {"Origin": "https://attacker.example", **preflight}
    assert gateway.ask("/v1/chat/completions", "OPTIONS", headers=other).status_code == 400


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
