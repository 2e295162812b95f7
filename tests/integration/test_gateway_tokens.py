"""What a token with a prefix, and a redacting one, can read of recorded conversations, on every route."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import psycopg
import pytest
from pydantic import SecretStr
from tests.support.batches import Log, project
from tests.support.databases import made
from tests.support.gateway import all_routes, with_app

from frameledger import derived
from frameledger_services.gateway.access import policy, tokens
from frameledger_services.gateway.access.caller import SCOPES
from frameledger_services.inference.preparation import service_config
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings

OWN, FOREIGN = "acme/day", "other/day"
SECRET = "Zanzibar"

ANSWERED = {
    "provider": "openai",
    "model": "echo",
    "context_version": 2,
    "worker": "w",
    "request_sha256": "0" * 64,
}
CALL = {"function_name": "ask", "tool_call_id": "w-1", "arguments": {"where": SECRET}}


def said(context_id):
    """Returns the frames of a conversation in which every field that can contain text contains `SECRET`."""
    run = {"run_id": derived.run_id(context_id, 2)}
    return [
        {
            "type": "LLMContextFrame",
            "context": {
                "messages": [{"role": "system", "content": f"Speak of {SECRET}."}],
                "tools": [
                    {"type": "function", "function": {"name": "ask", "description": SECRET, "parameters": {}}}
                ],
                "settings": {"extra": {"note": SECRET}},
            },
        },
        {
            "type": "LLMMessagesAppendFrame",
            "messages": [{"role": "user", "content": SECRET}],
            "run_llm": True,
        },
        {"type": "LLMFullResponseStartFrame", **run, **ANSWERED},
        {"type": "LLMThoughtStartFrame", **run},
        {"type": "LLMThoughtTextFrame", **run, "text": SECRET},
        {"type": "LLMThoughtEndFrame", **run, "signature": SECRET},
        {
            "type": "LLMTextFrame",
            **run,
            "text": f"To {SECRET}.",
            "metadata": {"note": SECRET},
            "mine": SECRET,
        },
        {"type": "FunctionCallsStartedFrame", **run, "function_calls": [CALL]},
        {"type": "LLMFullResponseEndFrame", **run, "usage": {"input_tokens": 71}},
        {"type": "FunctionCallInProgressFrame", **CALL, "waiting": {"for": "a person"}},
        {"type": "FunctionCallsStartedFrame", "function_calls": [{**CALL, "tool_call_id": "a-1"}]},
        {"type": "FunctionCallInProgressFrame", **CALL, "tool_call_id": "a-1"},
        {
            "type": "FunctionCallResultFrame",
            **CALL,
            "tool_call_id": "a-1",
            "result": {"found": SECRET},
            "settled_as": "ambiguous",
        },
        {"type": "ErrorFrame", "message": SECRET},
        {"type": "InterruptionFrame", "heard_text": SECRET},
    ]


@pytest.fixture(scope="module")
def filled(database_server, migrated_template) -> Iterator[Settings]:
    """A database with equal conversations of two tenants, and a parked conversation of each."""
    log = Log()
    for context_id in (OWN, FOREIGN, "acme/parked", "other/parked"):
        for frame in said(context_id)[: None if context_id in (OWN, FOREIGN) else 2]:
            log.add(context_id, json.dumps(frame).encode())
        log.add(context_id, SECRET.encode())
    with made(database_server, template=migrated_template) as (_, address):
        project(address, log.records, sizes=(500,))
        with psycopg.connect(address) as connection:
            connection.execute(
                "UPDATE contexts SET parked_version = 2, parked_at = now(), parked_error = %s"
                " WHERE context_id LIKE '%%/parked'",
                (SECRET,),
            )
            # The worker's row has the configuration from which a request is rebuilt.
            model = plugins.create("openai", plugins.without_request_settings(Settings()))
            connection.execute(
                "INSERT INTO workers (worker_id, lease_secs, slots, pid, service, kind, host, offers) "
                "VALUES ('w', 5, 1, 1, 'inference', 'inference', 'here', %s)",
                (json.dumps(service_config(model)),),
            )
        yield Settings(database_url=SecretStr(address), kafka_bootstrap_servers="127.0.0.1:1")


def asked(filled, tmp_path, paths, **rights):
    """Returns the responses to requests with a token with these rights."""
    file = tmp_path / "tokens.json"
    settings = filled.model_copy(update={"gateway_tokens_file": file, "gateway_burst": 1_000_000})
    now = datetime.now(UTC)
    token = tokens.create(file, "one", rights.pop("scopes", SCOPES), now=now, **rights)[1]

    async def ask(http):
        return {path: await http.get(path) for path in paths}

    try:
        return with_app(settings, ask, token)
    finally:
        tokens.revoke(file, "one")


def reading(settings, context_id):
    """Returns the paths of everything that can be read, of this conversation and of all."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        [(era, position)] = connection.execute(
            "SELECT era, position FROM messages WHERE context_id = %s AND role = 'assistant' LIMIT 1",
            (context_id,),
        ).fetchall()
    filled_in = {
        "context_id": quote(context_id, safe=""),
        "run_id": derived.run_id(context_id, 2),
        "era": era,
        "position": position,
        "version": "2",
    }
    paths = [
        route.path.format(**filled_in)
        for method, route in all_routes()
        if method == "GET"
        and policy.needed("GET", route.path).scopes
        and not route.path.endswith("/stream")
        and not route.path.startswith((policy.AG_UI, policy.MODELS, policy.RESPONSES))
    ]
    one = f"/v1/contexts/{filled_in['context_id']}"
    with_parameters = {f"{one}/diff": "?from=1&to=8"}
    return [path + with_parameters.get(path, "") for path in paths] + [
        f"{one}?version=3",
        f"{one}/frames/2?raw=1",
        f"{one}?form=openai",
        "/v1/contexts?order=active&experiments=true",
    ]


def test_lists_show_a_token_the_conversations_of_its_prefix_alone(filled, tmp_path):
    lists = [route.path for method, route in all_routes() if method == "GET" and route.path in policy.LISTS]
    assert {*lists} == policy.LISTS
    paths = [*lists, "/v1/contexts?order=active", "/v1/contexts?prefix=a", "/v1/contexts?q=zanzibar"]
    everything = asked(filled, tmp_path, paths)
    own = asked(filled, tmp_path, paths, prefix="acme/")
    for path in paths:
        [(_, all_of_them)] = everything[path].json().items()
        [(_, found)] = own[path].json().items()
        expected = [one for one in all_of_them if one["context_id"].startswith("acme/")]
        assert found == expected != []
        assert "other/" not in own[path].text
    assert (
        asked(filled, tmp_path, ["/v1/contexts?prefix=other/"], prefix="acme/").popitem()[1].status_code
        == 403
    )


def test_what_is_of_another_prefix_is_404_on_every_route_that_reads(filled, tmp_path):
    paths = [path for path in reading(filled, FOREIGN) if "/contexts/" in path]
    assert {answer.status_code for answer in asked(filled, tmp_path, paths).values()} == {200}
    for path, answer in asked(filled, tmp_path, paths, prefix="acme/").items():
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/no-such-context"), path
        assert SECRET not in answer.text


def test_a_token_without_words_reads_everything_but_words(filled, tmp_path):
    paths = reading(filled, OWN)
    with_words = asked(filled, tmp_path, paths)
    without = asked(filled, tmp_path, paths, redact=True)
    speaking = {path for path, answer in with_words.items() if SECRET in answer.text}
    assert len(speaking) > 10
    for path, answer in with_words.items():
        assert answer.status_code == without[path].status_code == 200, (path, answer.text)
        assert SECRET not in without[path].text, path
        assert path not in speaking or '"redacted":true' in without[path].text, path


def test_what_is_left_without_words_says_when_how_much_and_by_whom(filled, tmp_path):
    one = f"/v1/contexts/{quote(OWN, safe='')}"
    [answer] = asked(filled, tmp_path, [f"{one}/frames?limit=1000"], redact=True).values()
    found, frames = answer.json()["frames"], said(OWN)
    assert [frame["version"] for frame in found] == [*range(1, len(frames) + 1)]
    assert [frame["frame"]["type"] for frame in found] == [frame["type"] for frame in frames]
    assert all(frame["logged_at"] and frame["outcome"] for frame in found)
    assert found[4]["frame"]["text"] == {"redacted": True, "bytes": len(SECRET)}
    [answer] = asked(filled, tmp_path, ["/v1/contexts"], redact=True).values()
    listed = {row["context_id"]: row for row in answer.json()["contexts"]}
    assert listed[OWN]["message_count"] > 3
    assert listed[OWN]["status"] == "calling"
