"""OpenAI's routes without servers: permissions, the choice of the conversation, and errors in OpenAI's format."""

import asyncio
from datetime import UTC, datetime

import pytest
from starlette.requests import Request
from tests.support.gateway import AWAY, app_of

from frameledger_services.client import NoSuchContextError
from frameledger_services.gateway import append, call_results, parameters
from frameledger_services.gateway.access import caller, tokens
from frameledger_services.gateway.access.caller import Caller
from frameledger_services.gateway.live import hub
from frameledger_services.gateway.openai import conversation
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_sources import load

COMPLETIONS = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def ask(tmp_path):
    """What the gateway answers to a token with these rights; its servers are away."""

    def ask(
        path=COMPLETIONS,
        scopes=("read", "append"),
        *,
        on=True,
        headers=None,
        token=None,
        settings=None,
        **more,
    ):
        file = tmp_path / "tokens.json"

        async def asked():
            text = token
            if scopes and text is None:
                rights = {name: more.pop(name) for name in ("prefix", "redact") if name in more}
                text = tokens.create(file, "one", scopes, now=datetime.now(UTC), **rights)[1]
            given = {**AWAY, "gateway_tokens_file": file, "gateway_openai": on, **(settings or {})}
            async with app_of(Settings(**given), text) as http:
                if path != COMPLETIONS:
                    return await http.get(path)
                return await http.post(path, headers=headers, **{"json": ASK, **more})

        return asyncio.run(asked())

    tokens.create(tmp_path / "tokens.json", "somebody", ("read",), now=datetime.now(UTC))
    return ask


def test_without_room_for_a_follower_nothing_is_asked(ask, monkeypatch):
    monkeypatch.setattr(hub, "MAX_FOLLOWERS", 0)
    assert error(ask()) == (429, "rate_limit_error", "rate_limit_exceeded")


@pytest.mark.parametrize(
    "path", ["/v1/responses/x/input_items", "/v1/embeddings", "/v1/chat/completions/", "/v1/audio/speech"]
)
def test_what_else_openai_has_is_not_here_and_says_so(ask, path):
    answer = ask(path)
    assert error(answer) == (404, "invalid_request_error", "not_found")
    assert "chat completions and responses" in answer.json()["error"]["message"]


@pytest.mark.parametrize("items", ["", "/conv_1", "/conv_1/items", "/acme%2Fconv_1/items/msg_1"])
def test_openais_paths_of_conversations_say_where_conversations_are(ask, items):
    answer = ask(f"/v1/conversations{items}", scopes=("read",))
    assert error(answer) == (404, "invalid_request_error", "not_found")
    assert "/v1/contexts" in answer.json()["error"]["message"]


@pytest.mark.regression("gateway 10")
@pytest.mark.parametrize("rest", ["/frames", "/stream", "/calls/c1/result", "/items/msg_1/why", "/"])
@pytest.mark.parametrize("on", [True, False])
def test_a_path_of_ours_below_openais_name_for_conversations_is_a_problem_of_ours(ask, rest, on):
    answer = ask(f"/v1/conversations/acme%2F7{rest}", scopes=("read",), prefix="acme/", on=on)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (404, "/problems/not-found")
    assert "/v1/contexts/{id}" in problem["detail"]


def error(answer):
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert said.keys() == {"error"}
    assert said["error"].keys() == {"message", "type", "param", "code"}
    return answer.status_code, said["error"]["type"], said["error"]["code"]


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/responses/x", "/v1/models", "/v1/models/meta%2Fowl"])
def test_without_the_setting_nothing_is_there_and_the_answer_names_it(ask, path):
    answer = ask(path, on=False)
    assert error(answer) == (404, "invalid_request_error", "not_found")
    assert "FRAMELEDGER_GATEWAY_OPENAI=true" in answer.json()["error"]["message"]


def test_whoever_answers_the_error_has_openais_shape(ask):
    assert error(ask(scopes=())) == (401, "authentication_error", "invalid_api_key")
    assert error(ask(token="fl_0000000000_" + "a" * 43)) == (401, "authentication_error", "invalid_api_key")
    assert error(ask(headers={"Origin": "https://elsewhere"}, token="none"))[0] == 401
    assert error(ask(content=b"{", headers={"Content-Type": "application/json"}, json=None))[1:] == (
        "invalid_request_error",
        "invalid_value",
    )


@pytest.mark.parametrize("scope", ["read", "append", "admin"])
def test_an_answer_needs_both_to_read_and_to_append(ask, scope):
    answer = ask(scopes=(scope,))
    assert error(answer) == (403, "permission_error", "forbidden")


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/responses/x"])
def test_a_token_that_is_shown_no_words_cannot_be_answered(ask, path):
    answer = ask(path, redact=True)
    assert error(answer) == (403, "permission_error", "forbidden")
    assert "redacting" in answer.json()["error"]["message"]


def test_a_conversation_beyond_the_prefix_is_not_there(ask):
    answer = ask(prefix="acme/", headers={"Frameledger-Context": "other/1"})
    assert error(answer) == (404, "invalid_request_error", "no_such_context")


def test_what_is_beyond_a_limit_is_429(ask):
    answer = ask(
        settings={"gateway_burst": 1, "gateway_requests_per_sec": 0.001, "gateway_streams_per_token": 1}
    )
    assert answer.status_code == 503
    # The only request was taken by the one before, of a token of the same gateway: it is another one each time.
    assert error(answer) == (503, "server_error", "database_away")
    assert answer.headers["retry-after"] == "1"


def test_a_body_that_is_no_json_is_415(ask):
    assert error(ask(json=None, content=b"hi", headers={"Content-Type": "text/plain"}))[0] == 415


def request(headers=None, prefix="", token_id=None):
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    scope = {"type": "http", "headers": raw, "method": "POST", "path": COMPLETIONS, "query_string": b""}
    caller.set_caller(scope, Caller("one", frozenset(("read", "append")), prefix, token_id=token_id))
    return Request(scope)


CHATS = "X-OpenWebUI-Chat-Id, X-Chat"


@pytest.mark.parametrize(
    ("in_body", "headers", "prefix", "expected"),
    [
        ("a", {"Frameledger-Context": "b", "X-Chat": "c"}, "", Named("a", "client")),
        (None, {"Frameledger-Context": "acme%2Fb c%25 %C3%A4"}, "acme/", Named("acme/b c% ä", "client")),
        (None, {"x-openwebui-chat-id": "c", "X-Chat": "d"}, "", Named("c", "front end")),
        (None, {"X-OpenWebUI-Chat-Id": " ", "X-Chat": "d"}, "", Named("d", "front end")),
        (None, {"X-Chat": "c"}, "acme/", Named("acme/c", "front end")),
        (None, {"X-Chat": "acme/c"}, "acme/", Named("acme/c", "front end")),
    ],
)
def test_a_conversation_is_named_by_the_body_then_by_headers(in_body, headers, prefix, expected):
    assert conversation.named(request(headers, prefix), in_body, CHATS) == expected


def test_without_a_name_it_is_a_new_one_within_the_prefix():
    first, second = (conversation.named(request(prefix="acme/"), None, CHATS) for _ in range(2))
    assert first.by == "nobody"
    assert first.context_id.startswith("acme/chat-")
    assert first != second
    # They sort by their time.
    ids = [conversation.uuid7() for _ in range(100)]
    assert all(one.version == 7 for one in ids)
    assert [one.int >> 80 for one in ids] == sorted(one.int >> 80 for one in ids)


def test_a_key_names_the_same_new_conversation_for_the_same_token():
    keyed = [
        conversation.named(request({"Idempotency-Key": key}, token_id=token), None, "").context_id
        for key, token in (("k", "t"), ("k", "t"), ("k", "u"), ("l", "t"))
    ]
    assert keyed[0] == keyed[1]
    assert len({*keyed}) == 3


@pytest.mark.parametrize("context_id", ["", "a\x00", "a" * 256, "\ud83d"], ids=ascii)
def test_what_is_no_id_is_refused(context_id):
    with pytest.raises(ProblemError, match="1 to 255 bytes"):
        conversation.named(request(), context_id, CHATS)


@pytest.mark.regression("gateway 88")
@pytest.mark.parametrize("written", ["%FF", "%C3", "%ED%A0%80", "a%FF"])
def test_a_header_that_is_no_id_is_refused_as_in_a_path(written):
    with pytest.raises(ProblemError, match="a conversation's id is UTF-8") as in_header:
        conversation.named(request({"Frameledger-Context": written}), None, CHATS)
    with pytest.raises(ProblemError, match="a conversation's id is UTF-8") as in_path:
        parameters.context_id_of(written, request().scope)
    assert in_header.value.word == in_path.value.word == "bad-parameter"


@pytest.mark.regression("gateway 88")
def test_a_cause_that_is_no_text_is_refused():
    assert append.CAUSE.of(request({"Frameledger-Causation-Id": "caf%C3%A9"})) == "café"
    with pytest.raises(ProblemError, match="Frameledger-Causation-Id"):
        append.CAUSE.of(request({"Frameledger-Causation-Id": "caf%E9"}))


@pytest.mark.regression("gateway 118")
def test_what_is_no_utf_8_is_told_as_that():
    with pytest.raises(
        ProblemError, match=r"^Frameledger-Causation-Id: percent-encoded UTF-8 is expected\.$"
    ):
        append.CAUSE.of(request({"Frameledger-Causation-Id": "caf%E9"}))
    asked = request()
    asked.scope["path_params"] = {"call": "caf%E9"}
    with pytest.raises(ProblemError, match=r"^call: percent-encoded UTF-8 is expected\.$"):
        call_results.CALL.in_path_of(asked)


def test_a_conversation_that_the_caller_may_not_see_is_not_there():
    with pytest.raises(NoSuchContextError):
        conversation.named(request(prefix="acme/"), "other/1", CHATS)


@pytest.mark.parametrize("context_id", ["a", "acme/1 b", "100%", "ä", "a+b"])
def test_a_header_names_what_it_was_made_of(context_id):
    headers = conversation.in_header(context_id)
    assert headers["Frameledger-Context"].isascii()
    assert conversation.named(request(headers), None, "").context_id == context_id


def test_an_aside_has_an_id_that_follows_from_its_first_words():
    chat = Named("c", "front end")
    title = [{"role": "system", "content": "S"}, {"role": "user", "content": "### Task:\n\nA title."}]
    same = [{"role": "user", "content": [{"type": "text", "text": "### Task: A title."}]}]
    assert conversation.aside(chat, title) == conversation.aside(chat, same)
    assert conversation.aside(chat, title).context_id.startswith("c~")
    assert conversation.aside(chat, title) != conversation.aside(chat, ASK["messages"])
    assert conversation.is_task(title)
    assert not conversation.is_task(ASK["messages"])
    assert not conversation.is_task([*title, {"role": "assistant", "content": "A title"}])


def test_names_of_headers_are_checked():
    assert load({"FRAMELEDGER_GATEWAY_CHAT_ID_HEADERS": "X-Chat, X-Other"}).settings.gateway_chat_id_headers
    with pytest.raises(SettingsError, match="not a header name"):
        load({"FRAMELEDGER_GATEWAY_CHAT_ID_HEADERS": "X Chat"})
