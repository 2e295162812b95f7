"""Everything that HTTP shows of recorded conversations is what the tables have, at every version."""

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import httpx
import psycopg
import pytest
from openapi_spec_validator import validate
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.support.batches import HISTORIES, Log, folded, project, value_of
from tests.support.databases import made
from tests.support.gateway import with_app
from tests.support.tiers import long

from frameledger.record import decode
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.parameters import INT64_MAX
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings

NAMES = [path.stem for path in HISTORIES]


@pytest.fixture(scope="module")
def filled(database_server, migrated_template) -> Iterator[Settings]:
    """A database with all histories, one under an id that has to be escaped, a dead letter, and one that is erased."""
    log = Log()
    for path in HISTORIES:
        for line in path.read_bytes().splitlines():
            log.add(path.stem, line)
    hello = '{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"Grüezi"}]}'
    log.add("acme/ü?%25", hello.encode())
    log.add("acme/bad", b"no frame")
    log.add("acme/gone", b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"secret"}]}')
    log.add("acme/gone", b'{"type":"LLMContextEraseFrame","id":"e","why":"asked for","requested_by":"Eve"}')
    with made(database_server, template=migrated_template) as (_, address):
        project(address, log.records, sizes=(500,))
        # With the rights that a gateway needs, and no more.
        yield Settings(database_url=SecretStr(make_conninfo(address, options="-crole=frameledger_reader")))


@pytest.fixture
def connection(filled) -> Iterator[psycopg.Connection]:
    with psycopg.connect(filled.database_url.get_secret_value()) as connected:
        yield connected


def path_of(context_id: str, rest: str = "") -> str:
    return f"/v1/contexts/{quote(context_id, safe='')}{rest}"


async def good(http: httpx.AsyncClient, path: str, **parameters):
    answer = await http.get(path, params=parameters)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


async def refused(http: httpx.AsyncClient, path: str, **parameters) -> str:
    answer = await http.get(path, params=parameters)
    assert answer.status_code >= 400, (path, answer.text)
    return str(answer.json()["type"]).removeprefix("/problems/")


@pytest.mark.parametrize("histories", [HISTORIES[::3], long(HISTORIES)], ids=["some", "all"])
def test_every_version_of_every_history_is_what_its_frames_fold_to(filled, histories):
    async def ask(http):
        for path in histories:
            contexts, _ = folded(path)
            for version in {*range(0, len(contexts), 9), len(contexts) - 1}:
                found = await good(http, path_of(path.stem), version=version)
                assert {name: found[name] for name in contexts[version]} == contexts[version]
                assert len(found["positions"]) == len(found["messages"])

    with_app(filled, ask)


def test_an_id_may_have_any_letters(filled):
    async def ask(http):
        found = await good(http, path_of("acme/ü?%25"))
        assert found["context_id"] == "acme/ü?%25"
        assert found["messages"][0]["content"] == "Grüezi"
        for wrong in ("/v1/contexts/%FF", "/v1/contexts/a%00b", "/v1/contexts/" + 256 * "a"):
            assert await refused(http, wrong) == "bad-parameter"

    with_app(filled, ask)


@pytest.mark.regression("gateway 55")
def test_the_version_alone_is_read_under_the_same_conditions_as_the_context(filled):
    async def ask(http):
        path = path_of("barge-in")
        known = {"If-None-Match": (await http.head(path)).headers["etag"]}
        for address, headers, status in (
            (path, known, 304),
            (path, {"If-None-Match": '"9"'}, 200),
            (f"{path}?form=openai", known, 304),
            (f"{path}?form=nonsense", known, 400),
            (f"{path}?form=nonsense", {}, 400),
        ):
            answers = [await http.request(method, address, headers=headers) for method in ("GET", "HEAD")]
            assert [one.status_code for one in answers] == [status, status]
            assert answers[0].headers.get("etag") == answers[1].headers.get("etag")
            assert answers[1].content == b""

    with_app(filled, ask)


@pytest.mark.regression("gateway 109")
@pytest.mark.parametrize("query", ["", "?version=3", "?form=openai"])
def test_the_version_alone_comes_without_a_length_that_the_context_does_not_have(filled, query):
    async def ask(http):
        head, whole = [
            await http.request(method, f"{path_of('barge-in')}{query}") for method in ("HEAD", "GET")
        ]
        assert head.headers.get("content-length", whole.headers["content-length"]) == str(len(whole.content))
        # The others are those of the context.
        names = {"content-length"}
        assert {k: v for k, v in head.headers.items() if k not in names} == {
            k: v for k, v in whole.headers.items() if k not in names
        }

    with_app(filled, ask)


@pytest.mark.parametrize("known", [{}, {"If-None-Match": '"9", W/"22"'}, {"If-None-Match": '"9"'}])
@pytest.mark.parametrize(
    "path",
    [
        path_of("barge-in"),
        path_of("acme/ü?%25"),
        path_of("acme/gone"),
        "/v1/contexts/nobody",
        "/v1/contexts/%FF",
    ],
)
def test_a_context_as_it_is_now_is_the_same_answer_on_the_short_way_and_by_its_route(filled, path, known):
    async def ask(http):
        # With any query the route answers; without one, the second read comes from the cache.
        short, again, routed = [
            await http.get(f"{path}{query}", headers=known) for query in ("", "", "?at-length")
        ]
        assert (again.status_code, again.headers) == (short.status_code, short.headers)
        assert again.content == short.content
        if "application/problem+json" in short.headers.get("content-type", ""):
            assert short.json() == routed.json()
        else:
            assert short.content == routed.content
        assert short.status_code == routed.status_code
        assert dict(short.headers) == dict(routed.headers)
        return short.status_code

    status = with_app(filled, ask)
    assert status == (304 if path == path_of("barge-in") and "22" in str(known) else status)


def test_what_is_kept_for_one_token_is_for_another_what_that_may_see(filled, tmp_path, caplog):
    file = tmp_path / "tokens.json"

    def token(name, scopes=("read",), **more):
        return tokens.create(file, name, scopes, now=datetime.now(UTC), **more)[1]

    everything, other, wordless = token("all"), token("other", prefix="acme/"), token("none", redact=True)
    writer = token("writer", ["append"])
    path = path_of("barge-in")

    async def ask(http):
        async def read(shown):
            return await http.get(path, headers={} if shown is None else {"Authorization": f"Bearer {shown}"})

        first, second = await read(everything), await read(everything)
        assert (first.status_code, first.content) == (200, second.content)
        statuses = [(await read(shown)).status_code for shown in (other, writer, None)]
        assert statuses == [404, 403, 401]
        assert "redacted" in (await read(wordless)).text
        # Every read is logged, also one from the cache.
        found = [record.frameledger for record in caplog.records if record.name == "frameledger.gateway"]
        assert [one["token"] for one in found] == ["all", "all", "none"]
        assert {one["version"] for one in found} == {first.headers["etag"]}
        tokens.revoke(file, "all")
        assert (await read(everything)).status_code == 401

    with caplog.at_level("INFO", "frameledger"):
        with_app(filled.model_copy(update={"gateway_tokens_file": file}), ask)
    last = token("last")

    async def hurry(http):
        return [(await http.get(path)).status_code for _ in range(3)]

    few = {"gateway_tokens_file": file, "gateway_burst": 2, "gateway_requests_per_sec": 0.001}
    assert with_app(filled.model_copy(update=few), hurry, last) == [200, 200, 429]


def test_what_was_erased_says_when_and_why(filled):
    async def ask(http):
        for rest in ("", "/frames", "/history", "/runs", "/calls", "/verify"):
            gone = await http.get(path_of("acme/gone", rest))
            assert gone.status_code == 410, rest
            assert gone.json()["receipt"]["why"] == "asked for"
            assert gone.json()["receipt"]["requested_by"] == "Eve"
            assert "secret" not in gone.text

    with_app(filled, ask)


def test_a_page_ends_early_at_its_limit_of_bytes(filled, connection, monkeypatch):
    count = value_of(connection, "SELECT version FROM contexts WHERE context_id = 'barge-in'")
    # Each frame alone reaches it.
    monkeypatch.setattr("frameledger_services.gateway.frames.PAGE_BYTES", 1)
    monkeypatch.setattr("frameledger_services.gateway.frames.PIECE_BYTES", 1)

    async def ask(http):
        first = await http.get(path_of("barge-in", "/frames"))
        assert [one["version"] for one in first.json()["frames"]] == [1]
        assert "after=1" in first.headers["link"]
        last = await http.get(path_of("barge-in", "/frames"), params={"before": count + 1})
        assert [one["version"] for one in last.json()["frames"]] == [count]
        assert f"before={count}" in last.headers["link"]
        lines = await http.get(path_of("barge-in", "/frames"), params={"format": "ndjson"})
        assert [json.loads(line)["version"] for line in lines.text.splitlines()] == list(range(1, count + 1))

    with_app(filled, ask)


def test_frames_come_in_pages_that_follow_each_other(filled, connection):
    count = value_of(connection, "SELECT version FROM contexts WHERE context_id = 'barge-in'")

    async def ask(http):
        seen: list[int] = []
        address: str | None = path_of("barge-in", "/frames?limit=7")
        while address:
            page = await http.get(address)
            seen += [one["version"] for one in page.json()["frames"]]
            link = re.fullmatch(r'<(.+)>; rel="next"', page.headers.get("link", ""))
            address = link and link[1]
        assert seen == list(range(1, count + 1))
        last = await http.get(path_of("barge-in", "/frames"), params={"before": count + 1, "limit": 3})
        assert [one["version"] for one in last.json()["frames"]] == [count - 2, count - 1, count]
        assert f"before={count - 2}" in last.headers["link"]
        lines = await http.get(path_of("barge-in", "/frames"), headers={"Accept": "application/x-ndjson"})
        all_of_them = [json.loads(line) for line in lines.text.splitlines()]
        assert [one["version"] for one in all_of_them] == seen
        assert "content-disposition" not in lines.headers
        file = await http.get(path_of("barge-in", "/frames"), params={"format": "ndjson"})
        assert (file.text, file.headers["content-type"]) == (lines.text, "application/x-ndjson")
        assert file.headers["content-disposition"].startswith('attachment; filename="barge-in.jsonl"; ')
        ignored = await good(http, path_of("late-words", "/frames"), outcome="ignored")
        assert {one["outcome"] for one in ignored["frames"]} == {"ignored"}
        named = await good(http, path_of("barge-in", "/frames"), id=all_of_them[4]["id"])
        assert named["frames"] == [all_of_them[4]]
        nothing = await good(http, path_of("barge-in", "/frames"), id="of nobody", type="LLMRunFrame")
        assert nothing["frames"] == []

    with_app(filled, ask)


@pytest.mark.regression("gateway 1")
def test_one_frame_comes_byte_for_byte(filled):
    path = next(one for one in HISTORIES if one.stem == "barge-in")
    lines = path.read_bytes().splitlines()

    async def ask(http):
        for version, line in enumerate(lines, 1):
            raw = await http.get(path_of("barge-in", f"/frames/{version}"), params={"raw": "1"})
            assert raw.content == line
        one = await good(http, path_of("barge-in", "/frames/2"))
        assert (one["version"], one["type"]) == (2, decode(lines[1]).type)
        assert one["frame"] == json.loads(lines[1])
        for version in (0, len(lines) + 1, INT64_MAX):
            assert await refused(http, path_of("barge-in", f"/frames/{version}")) == "no-such-version"
        assert await refused(http, path_of("barge-in", "/frames/-1")) == "bad-parameter"

    with_app(filled, ask)


@pytest.mark.regression("gateway 77")
def test_the_past_has_every_context(filled):
    """From one answer a page can show every version, without asking again."""

    async def ask(http):
        for name in ("history-replaced", "barge-in", "parallel-tools"):
            past = await good(http, path_of(name, "/history"))
            contexts, _ = folded(next(one for one in HISTORIES if one.stem == name))
            for version, context in enumerate(contexts):
                era = max((one["era"] for one in past["eras"] if one["valid_from"] <= version), default=1)
                messages = [
                    one["message"]
                    for one in sorted(past["rows"], key=lambda one: one["position"])
                    if one["era"] == era and one["valid_from"] <= version < one["valid_to"]
                ]
                assert messages == context["messages"], (name, version)
                settings = [
                    one["value"]
                    for one in past["settings"]
                    if one["name"] == "settings" and one["valid_from"] <= version
                ]
                assert (settings or [{}])[-1] == context["settings"]
        only = await good(http, path_of("history-replaced", "/history"), era=2)
        assert {one["era"] for one in only["rows"]} == {2}
        whole = await good(http, path_of("parallel-tools", "/history"))
        for version in (0, whole["version"] // 2, whole["version"]):
            later = await good(http, path_of("parallel-tools", "/history"), after=version)
            assert later["rows"] == [
                one
                for one in whole["rows"]
                if one["valid_from"] > version or version < one["valid_to"] <= whole["version"]
            ]
            assert later["settings"] == [one for one in whole["settings"] if one["valid_from"] > version]

    with_app(filled, ask)


def test_details_are_those_of_the_sql_functions(filled, connection):
    runs = connection.execute(
        "SELECT run_id, status FROM runs WHERE context_id = 'second-attempt' ORDER BY 1"
    ).fetchall()
    why = value_of(connection, "SELECT explain_message('barge-in', 3, 12)")
    diff = value_of(connection, "SELECT context_diff('barge-in', 11, 12)")
    calls = value_of(connection, "SELECT count(*) FROM tool_calls WHERE context_id = 'parallel-tools'")

    async def ask(http):
        listed = (await good(http, path_of("second-attempt", "/runs")))["runs"]
        assert sorted((one["run_id"], one["status"]) for one in listed) == runs
        one = await good(http, path_of("second-attempt", f"/runs/{runs[0][0][:13]}"))
        assert one["run_id"] == runs[0][0]
        assert await refused(http, path_of("second-attempt", "/runs/none")) == "not-found"
        # Its worker is not in the table, so the configuration of its request is unknown.
        request = path_of("second-attempt", f"/runs/{runs[0][0]}/request")
        assert await refused(http, request) == "no-such-form"
        assert await good(http, path_of("barge-in", "/messages/2.3/why"), version=12) == why
        assert await refused(http, path_of("barge-in", "/messages/1.3/why"), version=12) == "not-found"
        assert await refused(http, path_of("barge-in", "/messages/2.999/why")) == "not-found"
        found = await good(http, path_of("barge-in", "/diff"), **{"from": 11, "to": 12})
        assert {name: found[name] for name in diff} == diff
        assert found["eras"] == [2, 2]
        assert await refused(http, path_of("barge-in", "/diff"), **{"from": 11}) == "bad-parameter"
        assert (
            await refused(http, path_of("barge-in", "/diff"), **{"from": 0, "to": 999}) == "no-such-version"
        )
        of_one = (await good(http, path_of("parallel-tools", "/calls")))["calls"]
        assert len(of_one) == calls
        assert isinstance(of_one[0]["arguments"], dict)
        chain = await good(http, path_of("barge-in", "/verify"))
        assert (chain["intact"], chain["frame_count"]) == (True, chain["version"])

    with_app(filled, ask)


def test_a_context_comes_as_the_request_of_a_provider(filled):
    async def ask(http):
        openai = await good(http, path_of("parallel-tools"), form="openai")
        assert openai["messages"][0]["role"] in ("system", "developer")
        anthropic = await good(http, path_of("parallel-tools"), form="anthropic")
        assert {one["role"] for one in anthropic["messages"]} <= {"user", "assistant"}
        assert await refused(http, path_of("parallel-tools"), form="mine") == "bad-parameter"

    with_app(filled, ask)


@pytest.mark.regression("gateway 99")
def test_the_request_of_a_provider_is_not_made_in_the_event_loop(filled, monkeypatch):
    create, threads = plugins.create, []

    def noted(*arguments):
        threads.append(threading.current_thread())
        return create(*arguments)

    async def ask(http):
        await good(http, path_of("parallel-tools"), form="openai")

    monkeypatch.setattr(plugins, "create", noted)
    with_app(filled, ask)
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_conversations_are_listed_in_pages_the_newest_first(filled, connection):
    everything = [
        name
        for (name,) in connection.execute(
            "SELECT context_id FROM contexts ORDER BY started_at DESC, context_id DESC"
        ).fetchall()
    ]

    async def ask(http):
        seen: list[str] = []
        address: str | None = "/v1/contexts?limit=5"
        while address:
            page = await http.get(address)
            seen += [one["context_id"] for one in page.json()["contexts"]]
            link = re.fullmatch(r'<(.+)>; rel="next"', page.headers.get("link", ""))
            address = link and link[1]
        assert seen == everything

        async def names(**parameters):
            found = await good(http, "/v1/contexts", limit=200, **parameters)
            return {one["context_id"] for one in found["contexts"]}

        assert await names(prefix="acme/") == {"acme/ü?%25"}
        assert await names(q="grüezi") == {"acme/ü?%25"}
        assert await names(q="ACME/") == {"acme/ü?%25"}
        assert await names(q="100%_") == set()
        assert await names(order="active") == {*everything}
        assert await names(until="2000-01-01T00:00:00Z") == set()
        assert await names(since="2000-01-01T00:00:00Z") == {*everything}
        ended = {
            name for (name,) in connection.execute("SELECT context_id FROM contexts WHERE ended").fetchall()
        }
        assert await names(status="ended") == ended != set()
        models = connection.execute(
            "SELECT model, array_agg(DISTINCT context_id) FROM runs WHERE model IS NOT NULL GROUP BY 1 LIMIT 1"
        ).fetchall()
        for model, with_it in models:
            assert await names(model=model) == {*with_it}
        for wrong in ({"cursor": "x"}, {"limit": 0}, {"status": "odd"}, {"since": "soon"}, {"q": "\x00"}):
            assert await refused(http, "/v1/contexts", **wrong) == "bad-parameter", wrong

    with_app(filled, ask)


def test_an_operator_sees_what_waits_and_what_was_set_aside(filled, connection):
    ambiguous = connection.execute(
        "SELECT tool_call_id FROM tool_calls WHERE status = 'ambiguous' AND resolved_version IS NULL"
    ).fetchall()

    async def ask(http):
        assert (
            [(one["tool_call_id"],) for one in (await good(http, "/v1/ambiguous"))["calls"]]
            == ambiguous
            != []
        )
        assert {one["status"] for one in (await good(http, "/v1/waiting"))["calls"]} <= {"waiting"}
        assert (await good(http, "/v1/workers")) == {"workers": []}
        assert (await good(http, "/v1/tools")) == {"tools": []}
        assert (await good(http, "/v1/parked")) == {"parked": []}
        assert len((await good(http, "/v1/lag"))["partitions"]) == 4
        [letter] = [
            one for one in (await good(http, "/v1/rejected"))["rejected"] if one["context_id"] == "acme/bad"
        ]
        assert (letter["code"], letter["value"]) == ("not_json", "no frame")

    with_app(filled, ask)


@pytest.mark.regression("fault 237")
@pytest.mark.parametrize("headers", ["7", '[["a", {}]]', "[" * 3_000 + "]" * 3_000], ids=lambda one: one[:20])
def test_a_rejected_frame_whose_headers_nobody_can_read_is_listed_without_them(filled, headers):
    change = "UPDATE rejected_frames SET headers = %s WHERE context_id = 'acme/bad'"

    async def ask(http):
        letters = (await good(http, "/v1/rejected"))["rejected"]
        assert [one["headers"] for one in letters if one["context_id"] == "acme/bad"] == [None]

    with psycopg.connect(filled.database_url.get_secret_value(), autocommit=True) as connection:
        # A gateway may not change it.
        connection.execute("SET ROLE NONE")
        connection.execute(change, (headers,))
        try:
            with_app(filled, ask)
        finally:
            connection.execute(change, ("[]",))


@pytest.mark.long
def test_a_token_without_words_is_shown_none(filled, tmp_path):
    file = tmp_path / "tokens.json"
    token = tokens.create(file, "auditor", ("read",), redact=True, now=datetime.now(UTC))[1]
    settings = filled.model_copy(update={"gateway_tokens_file": file, "gateway_burst": 1_000_000})
    said = {text for path in HISTORIES for text in texts(folded(path)[0][-1]["messages"]) if " " in text}

    async def ask(http):
        shown = []
        for name in NAMES:
            for rest in ("", "/history", "/frames?limit=1000", "/runs", "/calls", "/messages/2.1/why"):
                answer = await http.get(path_of(name, rest))
                if answer.status_code == 200:
                    shown.append(answer.json())
        return [*shown, await good(http, "/v1/contexts", limit=200)]

    shown = with_app(settings, ask, token)
    assert '"redacted": true' in json.dumps(shown)
    assert len(said) > 50
    # Names, words of closed lists and times have no spaces.
    assert [text for text in texts(shown) if " " in text] == []


def texts(value) -> Iterator[str]:
    """Yields every text in a JSON value, without the names of fields."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def test_the_document_is_what_openapi_says(filled):
    async def ask(http):
        document = await good(http, "/openapi.json")
        validate(document)
        page = await http.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "src=" not in page.text
        for path in document["paths"]:
            assert path in page.text
        return document

    document = with_app(filled, ask)
    operations = {
        (method, path): one for path, methods in document["paths"].items() for method, one in methods.items()
    }
    assert ("post", "/v1/contexts/{context_id}/frames") in operations
    assert [key for key, one in operations.items() if not one.get("security")] == []
