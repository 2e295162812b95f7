"""Which requests the gateway accepts, with which token, and what it logs of them."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.guarded_gateway import (
    ALL,
    Gateway,
    guarded_gateway,  # noqa: F401  # a fixture
    said,
)

from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.security import TokensNeededError, live_tokens
from frameledger_services.gateway.access.tokens import TokensFileError
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.settings import Settings

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


@pytest.mark.regression("gateway 102")
@pytest.mark.parametrize("path", ["/v1/anything/new", "/v1/context/a", "/metrics", "/problemsx"])
def test_what_is_not_listed_is_nowhere_without_the_scope_that_it_would_need(gateway, path):
    others = gateway.token("others", ("read", "append"))
    assert gateway.ask(path).status_code == 401
    refused = gateway.ask(path, token=others)
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/not-found")
    assert "scope" not in refused.json()["detail"]
    assert gateway.ask(path, token=gateway.admin).status_code == 200
    assert [name for _, _, name in gateway.reached] == ["admin"]


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


def test_a_gateway_that_began_with_tokens_stays_closed_though_their_file_is_deleted(gateway):
    gateway.file.unlink()
    assert said(gateway.ask("/v1/contexts")) == (401, "unauthorised")
    assert said(gateway.ask("/v1/contexts", token=gateway.admin)) == (401, "unauthorised")
    assert gateway.reached == []


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
