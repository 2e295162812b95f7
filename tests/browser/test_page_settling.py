"""A person's word about calls, given on the page in a real browser, on the whole pipeline: what it becomes, what is not
taken because somebody was quicker, and who may."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import pytest
from playwright.sync_api import expect
from tests.bounds import ON_SERVERS
from tests.support import gateway, webpage
from tests.support.answerers import answerer, ask, until_closed
from tests.support.databases import made as database
from tests.support.killable import projector
from tests.support.pipeline import Raw, made
from tests.support.webpage import Webpage
from tests.unit.rules.dsl import append, begin, committed, end, result, start
from tests.unit.rules.test_client_functions import brought

from frameledger import derived
from frameledger.frames import (
    Frame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallsStartedFrame,
    LLMMessagesAppendFrame,
    LLMUpdateSettingsFrame,
    Usage,
    encode_frame,
)
from frameledger.ids import ContextId, Version
from frameledger_services.embedded import ports
from frameledger_services.gateway.access import tokens

NOW = datetime.now(UTC)
CONVERSATIONS = ("answered", "exact", "raced", "read")
PAINTED = "painted"
"""A conversation in which a model called a function of its client, which did not return."""

ASKED = "asked"
"""A conversation in which a model answered."""

LARGE = "large"
"""A conversation with numbers that JavaScript cannot represent, wherever a client may choose one."""

LARGEST = 2**63 - 1
ARGUMENTS = {"order": "A-17", "cents": 4200}


def waiting_call() -> bytes:
    return encode_frame(
        FunctionCallInProgressFrame(
            function_name="refund",
            tool_call_id="c1",
            arguments=ARGUMENTS,
            cancel_on_interruption=False,
            waiting={"for": "a manager"},
        )
    )


def large_numbers() -> list[Frame]:
    run = derived.run_id(ContextId(LARGE), Version(2))
    said = {"role": "user", "content": [{"type": "text", "text": "Book it.", "account": LARGEST}]}
    call = FunctionCallFromLLM(
        tool_call_id="c2", function_name="book", arguments={"account": LARGEST}, builtin=True
    )
    return [
        LLMUpdateSettingsFrame(settings={"seed": LARGEST}, pts=LARGEST),
        LLMMessagesAppendFrame(messages=[said], run_llm=True, pts=LARGEST),
        start(run),
        FunctionCallsStartedFrame(function_calls=[call], run_id=run, pts=LARGEST),
        end(run, usage=Usage(input_tokens=LARGEST, output_tokens=LARGEST)),
        begin("c2", function_name="book", arguments={"account": LARGEST}, pts=LARGEST),
        result("c2", {"account": LARGEST}, run_llm=False, pts=LARGEST),
    ]


@pytest.fixture(scope="module")
def filled(kafka, database_server, migrated_template):
    """Settings of a pipeline with a projector and a model, on which each conversation has a call that waits, and one an
    answer."""
    with database(database_server, template=migrated_template) as (_, address):
        pipeline = made(kafka.bootstrap_servers, address, None)
        with projector(pipeline.settings) as projecting, answerer(pipeline.settings):
            pipeline.publish([Raw(name.encode(), waiting_call()) for name in CONVERSATIONS])
            run = derived.run_id(ContextId(PAINTED), Version(2))
            left = [brought("paint"), append("Make it blue.", run_llm=True), *committed("paint", run=run)]
            pipeline.publish([Raw(PAINTED.encode(), encode_frame(frame)) for frame in left])
            pipeline.publish([Raw(LARGE.encode(), encode_frame(frame)) for frame in large_numbers()])
            ask(pipeline, ASKED, "Is the desk open?")
            until_closed(pipeline, ASKED)
            pipeline.until_idle(projecting)
            yield pipeline.settings
            assert projecting.stop() == 0


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A file of tokens, and the tokens in it, by name."""
    file = tmp_path_factory.mktemp("tokens") / "tokens.json"
    rights = {"manager": ("read", "append"), "reader": ("read",)}
    return file, {name: tokens.create(file, name, scopes, now=NOW)[1] for name, scopes in rights.items()}


@pytest.fixture(scope="module")
def origin(filled, given) -> Iterator[str]:
    asks = filled.model_copy(update={"gateway_tokens_file": given[0]})
    with gateway.running(asks, gateway_port=str(ports.choose(0))) as running:
        yield running.address


@pytest.fixture
def http(origin, given):
    headers = {"Authorization": f"Bearer {given[1]['manager']}"}
    with httpx.Client(base_url=f"{origin}/v1", headers=headers, timeout=ON_SERVERS) as client:
        yield client


@contextmanager
def signed_in(browser, origin, token) -> Iterator[Webpage]:
    with browser.new_context(reduced_motion="reduce") as context, webpage.opened(context, origin) as web:
        web.page.goto(origin)
        web.page.get_by_label("Token").fill(token)
        web.page.keyboard.press("Enter")
        expect(web.page.get_by_role("table", name="Conversations")).to_be_visible()
        yield web


def test_a_call_that_waits_is_answered_from_the_list_of_what_needs_a_person(browser, origin, given, http):
    with signed_in(browser, origin, given[1]["manager"]) as web:
        web.page.get_by_role("link", name=re.compile("needs a person")).click()
        web.page.locator("summary", has_text="answered").press("Enter")
        call = web.page.locator("article[data-call='c1']")
        expect(call).to_contain_text('"order": "A-17"')
        expect(call).to_contain_text("a manager")
        call.get_by_role("button", name="Answer").click()
        expect(call.get_by_role("alert")).to_contain_text("Write something")
        result = call.get_by_role("textbox", name="Result")
        result.fill('{"approved": tru')
        result.press("Tab")
        call.get_by_role("button", name="Answer").click()
        expect(call.get_by_role("alert")).to_contain_text("not JSON")
        expect(result).to_be_focused()
        result.fill('{"approved": true}')
        call.get_by_role("button", name="Answer").press("Enter")
        expect(call.get_by_role("status").first).to_contain_text("The call is answered, at version 2")
        expect(call).to_contain_text('"approved": true')
    [stored] = http.get("/contexts/answered/calls").json()["calls"]
    assert (stored["status"], stored["result"]) == ("done", {"approved": True})
    assert http.get("/contexts/answered/frames/2").json()["source"].endswith("manager")


@pytest.mark.long
@pytest.mark.regression("fault 61")
def test_an_answer_in_json_is_sent_and_shown_as_it_was_written(browser, origin, given, http):
    written = '{ "account": 12345678901234567890, "price": 1.10 }'
    with signed_in(browser, origin, given[1]["manager"]) as web:
        web.open("exact", tab="calls", call="c1")
        call = web.page.locator("article[data-call='c1']")
        call.get_by_role("textbox", name="Result").fill(written)
        with web.page.expect_request("**/calls/c1/result") as sending:
            call.get_by_role("button", name="Answer").press("Enter")
        assert sending.value.post_data == f'{{"result":{written},"opened_version":1}}'
        expect(call.get_by_role("status").first).to_contain_text("The call is answered")
        [stored] = http.get("/contexts/exact/calls").json()["calls"]
        assert stored["result"] == {"account": 12345678901234567890, "price": 1.1}
        web.open("exact", at=2)
        web.page.locator("summary", has_text="Frame 2").press("Enter")
        exactly = re.compile(r'"account": ?12345678901234567890\b')
        expect(web.page.get_by_label("Frame 2 as JSON")).to_contain_text(exactly)
        expect(web.page.get_by_role("region", name="Frames", exact=True)).to_contain_text(exactly)
        web.open("exact", tab="calls", call="c1")
        expect(web.page.locator("article[data-call='c1']")).to_contain_text(exactly)


@pytest.mark.long
@pytest.mark.regression("fault 76")
def test_numbers_that_javascript_cannot_count_with_stand_on_every_view_as_they_are(
    browser, origin, given, http
):
    stored = http.get(f"/contexts/{LARGE}/frames").json()["frames"]
    assert [one["outcome"] for one in stored] == ["applied"] * 7
    with signed_in(browser, origin, given[1]["reader"]) as web:
        web.open(LARGE, at=7)
        for view in ("Frames", "Context"):
            expect(web.page.get_by_role("region", name=view, exact=True)).to_contain_text(str(LARGEST))
        for tab, state in {"calls": {"call": "c2"}, "diff": {"from": 0, "to": 7}}.items():
            expect(web.open(LARGE, tab=tab, **state)).to_contain_text(str(LARGEST))


def test_the_list_of_what_needs_a_person_and_who_works_is_for_everybody(browser, origin, given):
    with signed_in(browser, origin, given[1]["manager"]) as web:
        web.page.goto(f"{origin}/work")
        web.page.locator("summary", has_text="read").press("Enter")
        expect(web.page.locator("article[data-call='c1']")).to_be_visible()
        expect(web.page.get_by_role("region", name="Live workers")).to_contain_text("inference-scripted")
        expect(web.page.get_by_role("region", name="Partitions")).to_contain_text("up to date")
        web.check_accessible("light", "dark")
        web.check_narrow()


@pytest.mark.long
def test_a_call_that_waits_for_its_client_is_nobodys_work_and_may_be_answered_all_the_same(
    browser, origin, given, http
):
    waiting = http.get("/waiting").json()["calls"]
    assert [one["by_client"] for one in waiting].count(True) == 1
    needed = len(waiting) - 1 + len(http.get("/ambiguous").json()["calls"])
    with signed_in(browser, origin, given[1]["manager"]) as web:
        work = web.page.get_by_role("link", name=re.compile("needs a person"))
        expect(work.locator(".count")).to_have_text(re.compile(rf"^{needed}\b"))
        work.click()
        people = web.page.get_by_role("region", name="Waiting", exact=True)
        clients = web.page.get_by_role("region", name="Waiting for a client")
        expect(clients).to_contain_text("waits for the client")
        expect(people.locator("summary")).to_have_count(len(waiting) - 1)
        expect(people).not_to_contain_text(PAINTED)
        clients.locator("summary").first.press("Enter")
        call = web.page.locator(f"article[data-call='{waiting[-1]['tool_call_id']}']")
        expect(call.locator("header")).to_contain_text("waits for the client")
        call.get_by_role("textbox", name="Result").fill('"blue"')
        call.get_by_role("button", name="Answer").press("Enter")
        expect(call.get_by_role("status").first).to_contain_text("The call is answered")


@pytest.mark.long
def test_a_call_of_the_client_is_drawn_from_where_it_began(browser, origin, given, http):
    [call] = http.get(f"/contexts/{PAINTED}/calls").json()["calls"]
    with signed_in(browser, origin, given[1]["reader"]) as web:
        web.open(PAINTED)
        bar = web.page.locator(".lanes .calls .bar")
        expect(bar.locator("title")).to_have_text(re.compile(rf"^paint: .*, {call['started_version']}–"))
        expect(bar.locator(".waits")).to_have_count(1)
        expect(web.page.locator("svg.marks rect.call")).to_have_count(1)


@pytest.mark.long
def test_a_request_that_has_the_hash_of_what_was_sent_is_said_to_be_that(browser, origin, given, http):
    with signed_in(browser, origin, given[1]["reader"]) as web:
        main = web.open(ASKED, tab="request")
        expect(main.locator("[data-matches='true']")).to_contain_text("Byte for byte what was sent.")
        expect(main.locator(".turns > li[data-role='user']")).to_contain_text("Is the desk open?")
        frames = http.get(f"/contexts/{ASKED}/frames", params={"type": "LLMFullResponseStartFrame"}).json()
        expect(main).to_contain_text(frames["frames"][0]["frame"]["request_sha256"])
        web.check_accessible("light", "dark")


@pytest.mark.long
def test_who_is_too_late_is_told_so_and_keeps_what_was_written(browser, origin, given, http):
    with signed_in(browser, origin, given[1]["manager"]) as web:
        calls = web.open("raced", tab="calls", call="c1")
        calls.get_by_role("textbox", name="Result").fill("Not more than 20 euros.")
        quicker = http.post("/contexts/raced/calls/c1/result", json={"result": "All of it."})
        assert quicker.status_code == 201
        late = calls.get_by_role("alert")
        expect(late).to_contain_text("Somebody else was faster")
        expect(late).to_contain_text("Not more than 20 euros.")
        expect(calls.get_by_role("button", name="Answer")).to_have_count(0)
    assert http.get("/contexts/raced/calls").json()["calls"][0]["result"] == "All of it."


@pytest.mark.long
@pytest.mark.regression("gateway 93")
def test_a_panel_that_was_opened_while_the_gateway_could_not_be_asked_asks_again(browser, origin, given):
    with signed_in(browser, origin, given[1]["reader"]) as web:
        web.page.route(
            "**/read/diff?*", lambda route: route.fulfill(status=503, json={"title": "Away", "status": 503})
        )
        panel = web.open("read", tab="diff")
        expect(panel.get_by_role("alert")).to_contain_text("Away")
        web.page.unroute_all()
        expect(panel.get_by_role("alert")).to_have_count(0)
        expect(panel).to_contain_text("2 messages added")


@pytest.mark.long
@pytest.mark.regression("gateway 92")
def test_what_is_written_stays_while_the_gateway_cannot_be_asked(browser, origin, given):
    away = {"type": "/problems/draining", "title": "Gateway stopping", "detail": "The gateway is stopping."}
    with signed_in(browser, origin, given[1]["manager"]) as web:
        web.page.get_by_role("link", name=re.compile("needs a person")).click()
        web.page.locator("summary", has_text="in read").press("Enter")
        result = web.page.get_by_role("textbox", name="Result")
        result.fill("Not more than 20 euros.")
        for path in ("**/v1/waiting", "**/read/calls"):
            web.page.route(path, lambda route: route.fulfill(status=503, json={**away, "status": 503}))
        waiting = web.page.get_by_role("region", name="Waiting", exact=True)
        expect(waiting.get_by_role("alert")).to_contain_text("is stopping")
        expect(result).to_have_value("Not more than 20 euros.")
        with web.page.expect_response("**/read/calls"):
            pass
        web.page.unroute_all()
        expect(waiting.get_by_role("alert")).to_have_count(0)
        expect(result).to_have_value("Not more than 20 euros.")


def test_who_may_only_read_is_shown_what_somebody_else_may_type(browser, origin, given):
    with signed_in(browser, origin, given[1]["reader"]) as web:
        calls = web.open("read", tab="calls")
        expect(calls).to_contain_text("frameledger calls answer read c1 --result")
        expect(calls.get_by_role("textbox", name="Result")).to_have_count(0)
