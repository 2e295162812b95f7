"""A conversation that is followed in a real browser while it continues, also when the gateway dies."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from playwright.sync_api import expect
from tests.bounds import ON_SERVERS
from tests.support import gateway, webpage
from tests.support.streaming import Talks
from tests.support.tiers import long

from frameledger import derived
from frameledger_services.embedded import ports

RUN = {
    "provider": "scripted",
    "model": "meadow-2",
    "context_version": 2,
    "worker": "w",
    "request_sha256": "0" * 64,
}


class Speaker:
    """`Talks` for a test that drives a browser: its loop runs in another thread."""

    def __init__(self, talks: Talks, pool: ThreadPoolExecutor, runner: asyncio.Runner) -> None:
        self._talks, self._pool, self._runner = talks, pool, runner

    def frames(self, context_id: str, *frames, headers=()) -> None:
        appending = self._talks.frames(context_id, *frames, headers=headers)
        self._pool.submit(self._runner.run, appending).result(ON_SERVERS)

    def say(self, context_id: str, *texts: str) -> None:
        self._pool.submit(self._runner.run, self._talks.say(context_id, *texts)).result(ON_SERVERS)


@contextmanager
def speaking(address: str) -> Iterator[Speaker]:
    with ThreadPoolExecutor(1) as pool:
        runner = pool.submit(asyncio.Runner).result()
        talks = pool.submit(lambda: runner.run(Talks(address).__aenter__())).result(ON_SERVERS)
        try:
            yield Speaker(talks, pool, runner)
        finally:
            pool.submit(lambda: runner.run(talks.__aexit__())).result(ON_SERVERS)
            pool.submit(runner.close).result(ON_SERVERS)


@pytest.fixture(scope="module")
def filled(settings):
    """Empty: what is said here is all."""
    return settings


@pytest.fixture(scope="module")
def speaker(filled):
    with speaking(filled.database_url.get_secret_value()) as one:
        yield one


@pytest.mark.long
def test_a_follower_misses_nothing_while_the_gateway_is_killed_and_started_again(filled, speaker, context):
    port = str(ports.choose(0))
    speaker.say("live", "one")
    with ExitStack() as stack:
        killed = stack.enter_context(gateway.running(filled, is_heard=False, gateway_port=port))
        with webpage.opened(context, killed.address) as web:
            web.open("live")
            follow(web)
            speaker.say("live", "two")
            assert said(web, 2) == ["one", "two"]
            web.page.evaluate("window.name = 'the same page'")
            # The end of the block kills the gateway.
            stack.close()
            expect(web.page.get_by_role("status")).not_to_contain_text(LIVE)
            speaker.say("live", "three", "four")
            stack.enter_context(gateway.running(filled, is_heard=False, gateway_port=port))
            assert said(web, 4) == ["one", "two", "three", "four"]
            expect(web.page.get_by_role("status")).to_contain_text(LIVE)
            speaker.say("live", "five")
            assert said(web, 5)[-1] == "five"
            assert web.page.evaluate("window.name") == "the same page"


@pytest.mark.long
def test_a_frame_leads_to_its_trace_if_the_settings_say_where_traces_are(filled, speaker, context):
    append = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Well?"}]}
    speaker.frames("traced", append, headers=(("traceparent", f"00-{'a1' * 16}-{'b2' * 8}-01".encode()),))
    speaker.frames("traced", append)
    settings = {"gateway_port": str(ports.choose(0)), "trace_url": "https://traces.example/{trace_id}?tab=1"}
    with (
        gateway.running(filled, is_heard=False, **settings) as running,
        webpage.opened(context, running.address) as web,
    ):
        link = web.page.get_by_role("link", name="Open its trace")
        web.open("traced", at=1)
        web.page.locator("summary", has_text="Frame 1").press("Enter")
        expect(link).to_have_attribute("href", f"https://traces.example/{'a1' * 16}?tab=1")
        web.open("traced", at=2)
        web.page.locator("summary", has_text="Frame 2").press("Enter")
        expect(web.page.get_by_label("Frame 2 as JSON")).to_be_visible()
        expect(link).to_have_count(0)


def test_an_answer_is_read_while_it_is_given(speaker, web):
    speaker.frames(
        "words",
        {
            "type": "LLMMessagesAppendFrame",
            "messages": [{"role": "user", "content": "Well?"}],
            "run_llm": True,
        },
    )
    run = {"run_id": derived.run_id("words", 1)}
    web.open("words")
    follow(web)
    speaker.frames("words", {"type": "LLMFullResponseStartFrame", **run, **RUN})
    for number, text in enumerate(("It ", "depends ", "on you."), 3):
        speaker.frames("words", {"type": "LLMTextFrame", **run, "text": text})
        web.shown(number)
        expect(web.page.get_by_role("region", name="Context", exact=True)).to_contain_text(text.strip())
    speaker.frames("words", {"type": "LLMFullResponseEndFrame", **run})
    assert said(web, 6) == ["Well?", "It depends on you."]


@pytest.mark.long
def test_who_looks_at_the_past_is_not_taken_away_from_it(speaker, web):
    speaker.say("past", "one", "two", "three")
    web.open("past", at=2)
    follow(web)
    web.scrubber.fill("2")
    assert said(web, 2) == ["one", "two"]
    speaker.say("past", "four")
    expect(web.scrubber).to_have_attribute("max", "4")
    assert said(web, 2) == ["one", "two"]


@pytest.mark.regression("gateway 86")
@pytest.mark.parametrize("is_told_first", [long(False), True], ids=["while it asks why", "while it waits"])
def test_a_stream_that_ended_is_not_opened_again_once_its_conversation_was_left(speaker, web, is_told_first):
    """It ends, and the page asks why, and waits before it opens the next one. Timers run at the end here, also those
    that were cleared."""
    speaker.say("left", "one")
    web.open("left")
    opened = web.page.evaluate(
        """async (isToldFirst) => {
            const {Live} = await import('/page/live.js');
            const opened = [];
            const timers = [];
            window.EventSource = class extends EventTarget {
                static CLOSED = 2;
                readyState = 1;
                constructor() {
                    super();
                    opened.push(this);
                }
                close() {
                    this.readyState = 2;
                }
            };
            window.setTimeout = (run) => timers.push(run);
            const why = Promise.withResolvers();
            const live = new Live('left', () => 1, {state() {}, lost: () => why.promise});
            opened[0].close();
            opened[0].dispatchEvent(new Event('error'));
            if (!isToldFirst) live.close();
            why.resolve(true);
            await new Promise((resolve) => requestAnimationFrame(resolve));
            live.close();
            timers.forEach((run) => run());
            return opened.length;
        }""",
        is_told_first,
    )
    assert opened == 1


@pytest.mark.long
@pytest.mark.regression("gateway 70")
def test_who_scrolled_away_from_the_end_stays_there_while_following(speaker, web):
    speaker.say("scrolled", *(f"number {number}" for number in range(100)))
    web.open("scrolled")
    follow(web)
    web.shown(100)
    end, top = web.page.get_by_text("number 99", exact=True), web.page.get_by_text("number 3", exact=True)
    expect(end).to_be_in_viewport()
    top.scroll_into_view_if_needed()
    expect(end).not_to_be_in_viewport()
    web.page.keyboard.press("?")
    expect(web.page.get_by_role("dialog")).to_be_visible()
    web.page.keyboard.press("Escape")
    speaker.say("scrolled", "the newest")
    web.shown(101)
    expect(top).to_be_in_viewport()
    # Stops following, and follows again.
    newest = web.page.get_by_text("the newest", exact=True)
    web.page.keyboard.press("f")
    web.page.keyboard.press("f")
    expect(newest).to_be_in_viewport()
    speaker.say("scrolled", "\n".join("a long one" for _ in range(200)), "the last")
    expect(web.page.get_by_text("the last", exact=True)).to_be_in_viewport()


@pytest.mark.long
@pytest.mark.regression("fault 63")
def test_a_version_can_be_typed_while_frames_come(speaker, web):
    speaker.say("compared", "one", "two", "three")
    main = web.open("compared", tab="diff", **{"from": 0})
    end = main.get_by_role("spinbutton", name="From version")
    expect(end).to_have_attribute("max", "3")
    end.fill("2")
    speaker.say("compared", "four")
    expect(end).to_have_attribute("max", "4")
    expect(end).to_have_value("2")
    end.press("Enter")
    expect(web.page).to_have_url(re.compile("from=2"))
    main.get_by_role("slider", name="From version, slider").fill("1")
    expect(end).to_have_value("1")


@pytest.mark.long
@pytest.mark.regression("fault 64")
def test_conversations_that_newer_ones_push_off_their_page_stay_true(speaker, web):
    for number in range(52):
        speaker.say(f"crowd-{number:02}", "one")
    rows = web.list(q="crowd-")
    expect(rows).to_have_count(50)
    web.page.get_by_role("button", name="More").click()
    expect(rows).to_have_count(52)
    pushed = web.page.locator("tr[data-context='crowd-02']")
    erased = web.page.locator("tr[data-context='crowd-03']")
    speaker.say("crowd-52", "one")
    speaker.say("crowd-53", "one")
    expect(rows).to_have_count(54)
    # Only what is visible is requested again.
    pushed.scroll_into_view_if_needed()
    speaker.say("crowd-02", "two")
    speaker.frames("crowd-03", {"type": "LLMContextEraseFrame", "id": "e", "why": "asked for"})
    expect(pushed).to_contain_text("two")
    expect(erased).to_have_count(0)
    names = rows.evaluate_all("rows => rows.map(row => row.dataset.context)")
    assert names == [f"crowd-{number:02}" for number in reversed(range(54)) if number != 3]


@pytest.mark.regression("fault 64")
def test_a_list_that_nobody_asked_more_of_does_not_grow(speaker, web):
    for number in range(50):
        speaker.say(f"few-{number:02}", "one")
    rows = web.list(q="few-")
    expect(rows).to_have_count(50)
    speaker.say("few-50", "one")
    newest = web.page.locator("tr[data-context='few-50']")
    expect(newest).to_be_visible()
    expect(rows).to_have_count(50)
    web.page.get_by_role("button", name="More").click()
    expect(rows).to_have_count(51)


LIVE = re.compile(r"^\W*live\b")


def follow(web):
    """Follow the conversation, and wait until it is followed."""
    button = web.page.get_by_role("button", name=re.compile("^Follow", re.I))
    if button.get_attribute("aria-pressed") != "true":
        button.click()
    expect(web.page.get_by_role("status")).to_contain_text(LIVE)


def said(web, version):
    return ["".join(one["words"]) for one in web.read(version)["messages"]]
