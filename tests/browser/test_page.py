"""The page in a real browser with recorded conversations: it shows the content of the tables at every version."""

import re
from urllib.parse import quote

import psycopg
import pytest
from playwright.sync_api import expect
from tests.support.batches import value_of
from tests.support.page_conversations import ERASED, HOSTILE, MARKUP
from tests.support.tiers import long
from tests.support.webpage import as_json, words_of

FOUR = ("barge-in", "parallel-tools", "history-replaced", "ambiguous-payments")
DESK = "a-day-at-the-desk"
THREE = {
    "list": lambda web: web.list(),
    "conversation": lambda web: web.open(DESK, at=60),
    "diff": lambda web: web.open("ambiguous-payments", at=60, tab="diff", **{"from": 12, "to": 60}),
}
"""The three screens, by name."""

CONTEXTS_AT = """
SELECT version, context_at(%(id)s, version), (
    SELECT coalesce(json_agg(era || '.' || position ORDER BY position), '[]')
    FROM messages
    WHERE context_id = %(id)s AND valid_from <= version AND version < valid_to AND era = (
        SELECT max(era) FROM eras WHERE context_id = %(id)s AND valid_from <= version))
FROM generate_series(0, (SELECT version FROM contexts WHERE context_id = %(id)s)) AS version
"""


@pytest.fixture(scope="module")
def connection(filled):
    with psycopg.connect(filled.database_url.get_secret_value(), autocommit=True) as connected:
        yield connected


def newest(connection, context_id):
    return value_of(connection, "SELECT version FROM contexts WHERE context_id = %s", context_id)


@pytest.mark.parametrize("context_id", [FOUR[0], *map(long, FOUR[1:])])
def test_every_version_is_the_context_at_it(web, connection, context_id):
    """Step by step with the keyboard, like a user, without further requests to the server."""
    contexts = connection.execute(CONTEXTS_AT, {"id": context_id}).fetchall()
    web.open(context_id, at=0)
    for version, context, places in contexts:
        if version > 0:
            web.page.keyboard.press(".")
        shown = web.read(version)
        messages = context["messages"]
        assert [one["place"] for one in shown["messages"]] == places, version
        for one, message in zip(shown["messages"], messages, strict=True):
            # A message that only one provider reads has the provider's name instead of a role.
            assert one["role"] == message.get("role", message.get("llm")), (version, one)
            assert one["words"] == words_of(message), version
            calls = {call["id"]: call["function"] for call in message.get("tool_calls", ())}
            assert one["calls"].keys() == calls.keys(), (version, one)
            for call, function in calls.items():
                assert function["name"] in one["calls"][call]
                assert function["arguments"] in one["calls"][call]
        assert shown["tools"] == [one["function"]["name"] for one in context.get("tools", ())], version
        assert shown["settings"] == {name: as_json(value) for name, value in context["settings"].items()}
    assert version == newest(connection, context_id) > 20


def test_the_list_finds_and_filters(web, connection):
    everything = {name for (name,) in connection.execute("SELECT context_id FROM contexts").fetchall()}

    def listed():
        return {row.get_attribute("data-context") for row in rows.all()}

    rows = web.list()
    expect(rows).to_have_count(len(everything))
    assert listed() == everything
    for question, condition in (
        ({"q": "jazz"}, "context_id IN (SELECT context_id FROM messages WHERE text ILIKE '%%jazz%%')"),
        ({"status": "ended"}, "ended"),
        (
            {"model": "meadow-2-thinking"},
            "context_id IN (SELECT context_id FROM runs WHERE model = 'meadow-2-thinking')",
        ),
        ({"since": "2026-03-20"}, "started_at >= '2026-03-20'"),
    ):
        wanted = {
            name
            for (name,) in connection.execute(f"SELECT context_id FROM contexts WHERE {condition}").fetchall()
        }
        assert 0 < len(wanted) < len(everything), question
        web.list(**question)
        expect(rows).to_have_count(len(wanted))
        assert listed() == wanted, question


@pytest.mark.long
def test_a_list_without_rows_says_why(web):
    web.list(q="no such words")
    expect(web.page.get_by_text("No conversation matches these filters.")).to_be_visible()


@pytest.mark.long
@pytest.mark.regression("fault 88")
def test_a_search_that_has_not_looked_through_all_says_so_and_goes_on(web):
    asked = []

    def empty_at_first(route):
        asked.append(route.request.url)
        link = f'<{route.request.url.partition("/v1/")[1]}contexts?cursor=x&q=jazz>; rel="next"'
        route.fulfill(json={"contexts": []}, headers={"Link": link})

    web.page.route("**/v1/contexts?*", empty_at_first)
    rows = web.list(q="jazz")
    expect(
        web.page.get_by_text("None of the newest 1,000 conversations matches these filters.")
    ).to_be_visible()
    web.page.unroute("**/v1/contexts?*")
    web.page.route("**/v1/contexts?cursor=*", lambda route: route.continue_(url=asked[0]))
    web.page.get_by_role("button", name="More").click()
    expect(rows).to_have_count(1)


@pytest.mark.long
def test_a_search_is_in_the_address_and_there_again_after_the_back_button(web):
    rows = web.list()
    web.page.get_by_role("searchbox", name="Search").fill("jazz trio")
    expect(rows).to_have_count(1)
    expect(web.page).to_have_url(re.compile("[?&]q=jazz"))
    web.page.get_by_role("link", name="barge-in").click()
    web.shown(22)
    web.page.go_back()
    expect(rows).to_have_count(1)
    expect(web.page.get_by_role("searchbox", name="Search")).to_have_value("jazz trio")


@pytest.mark.long
@pytest.mark.regression("gateway 69")
@pytest.mark.parametrize(("name", "value"), [("q", "x" * 201), ("since", "12345-01-01")])
def test_a_filter_that_is_refused_stays_and_is_explained_below(web, name, value):
    web.page.goto(f"{web.origin}/?{name}={value}")
    main = web.page.get_by_role("main")
    expect(main.get_by_role("alert")).to_contain_text(f"{name}:")
    search = web.page.get_by_role("searchbox", name="Search")
    expect(search).to_have_attribute("maxlength", "200")
    expect(web.page.get_by_label("Since")).to_have_attribute("max", "9999-12-31")
    expect(main).not_to_contain_text("No conversation")
    if name == "q":
        search.fill("jazz trio")
        expect(web.page.locator("tr[data-context]")).to_have_count(1)
        expect(main.get_by_role("alert")).to_have_count(0)


@pytest.mark.long
@pytest.mark.regression("fault 63")
def test_what_is_typed_stays_while_the_list_is_drawn_anew(web):
    rows = web.list()
    for field in (
        web.page.get_by_role("searchbox", name="Search"),
        web.page.get_by_role("textbox", name="Model"),
    ):
        web.page.evaluate("history.pushState(null, '', location.href)")
        field.press_sequentially("me")
        # Another filter draws the list at once. The focus stays, because the user is still typing.
        web.page.get_by_role("checkbox", name="experiments").evaluate("one => one.click()")
        field.press_sequentially("adow")
        expect(field).to_have_value("meadow")
        expect(web.page).to_have_url(re.compile("=meadow"))
        expect(field).to_have_value("meadow")
        web.page.go_back()
        expect(field).to_have_value("")
        expect(web.page).not_to_have_url(re.compile("meadow"))
    expect(rows.first).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("version", [0, 1, 60, 195])
def test_the_address_of_a_moment_opens_it(web, version):
    web.open(DESK, at=version)
    expect(web.scrubber).to_have_value(str(version))
    expect(web.scrubber).to_have_attribute("aria-valuetext", re.compile(rf"^version {version}\b"))


@pytest.mark.long
def test_the_row_of_the_newest_frame_is_not_hidden_by_what_is_below_it(web):
    web.open(DESK)
    expect(web.page.locator(".record")).to_be_visible()
    expect(web.page.locator(".frames [aria-current=step]")).to_be_in_viewport(ratio=1)


@pytest.mark.long
def test_wherever_one_goes_the_address_says_it_and_back_is_back(web, connection):
    last = newest(connection, DESK)
    web.open(DESK)
    web.shown(last)
    web.scrubber.fill("80")
    web.shown(80)
    expect(web.page).to_have_url(re.compile(r"[?&]at=80\b"))
    shown = web.read(80)
    web.page.reload()
    assert web.read(80) == shown
    web.page.get_by_role("link", name="Calls").first.click()
    expect(web.page).to_have_url(re.compile(r"tab=calls"))
    web.page.go_back()
    assert web.read(80) == shown


@pytest.mark.long
def test_who_keeps_a_history_and_what_was_rewritten_in_it_is_said(web):
    for context_id, version, said in (
        ("kept-elsewhere", 1, "kept elsewhere, by call-7/1"),
        ("kept-elsewhere", 18, 'message 3 is now tool: {"free": 2}'),
        ("kept-elsewhere", 46, "kept here again"),
        ("rewritten", 22, "message 3 is gone"),
    ):
        web.open(context_id, at=version - 1)
        web.page.keyboard.press("]")
        expect(web.scrubber).to_have_value(str(version))
        frames = web.page.get_by_role("region", name="Frames", exact=True)
        expect(frames.locator(f"[data-version='{version}']")).to_contain_text(said)
        glyph = "✎" if "message" in said else "⇄"
        expect(web.page.locator(".track .mark text").filter(has_text=glyph).first).to_be_visible()


@pytest.mark.long
def test_an_interruption_and_calls_that_need_a_person_are_seen(web, connection):
    web.open("barge-in", at=12)
    frames = web.page.get_by_role("region", name="Frames", exact=True)
    expect(frames.locator("[data-version='12']")).to_contain_text("Interruption")
    expect(web.scrubber).to_have_attribute("aria-valuetext", re.compile("Interruption"))
    heard = "There are two concerts: a brass band at seven,"
    assert web.read(12)["messages"][-1]["words"] == [heard]
    open_calls = connection.execute(
        "SELECT status, tool_call_id FROM tool_calls WHERE context_id = 'ambiguous-payments'"
        " AND resolved_version IS NULL AND status IN ('ambiguous', 'waiting') ORDER BY status"
    ).fetchall()
    assert [status for status, _ in open_calls] == ["ambiguous", "waiting"]
    row = web.list().and_(web.page.locator("[data-context='ambiguous-payments']"))
    expect(row).to_contain_text("ambiguous")
    calls = web.open("ambiguous-payments", tab="calls")
    for (_, call), button in zip(open_calls, ("Say what happened", "Answer"), strict=True):
        expect(calls.locator(f"[data-call='{call}']").get_by_role("button", name=button)).to_have_count(1)


def test_markup_in_a_message_stays_text(web, connection):
    web.open(MARKUP)
    last = newest(connection, MARKUP)
    assert [one["words"] for one in web.read(last)["messages"]] == [[HOSTILE], [HOSTILE], [HOSTILE]]
    assert web.read(last)["settings"] == {"extra": as_json({"note": HOSTILE})}
    expect(web.page.locator("[data-tool='look']")).to_contain_text(HOSTILE)
    for tab in ("runs", "calls", "request", "verify", "diff", "why"):
        web.open(MARKUP, tab=tab, **{"from": 0, "to": last, "message": "1.2"})
    rows = web.list()
    expect(rows.and_(web.page.locator("tr", has_text=MARKUP))).to_have_count(1)
    assert web.page.locator("main img, main script").count() == 0
    assert web.page.title() not in ("1", "2")


@pytest.mark.parametrize("theme", ["light", long("dark")])
@pytest.mark.parametrize("screen", [long("list"), "conversation", long("diff")])
def test_each_screen_is_accessible_in_both_themes(web, screen, theme):
    web.page.emulate_media(color_scheme=theme)
    THREE[screen](web)
    web.check_accessible(theme)


@pytest.mark.long
@pytest.mark.parametrize("screen", THREE)
def test_on_a_narrow_screen_nothing_has_to_be_moved_sideways(web, screen):
    THREE[screen](web)
    web.check_narrow()


@pytest.mark.long
def test_it_is_printed_without_what_only_a_screen_can_use(web):
    context = web.open("barge-in", at=22)
    web.page.emulate_media(media="print")
    expect(web.scrubber).to_be_hidden()
    for message in context.locator("li[data-place]").all():
        expect(message).to_be_visible()
    web.page.emulate_media(media="screen")
    expect(web.scrubber).to_be_visible()


def test_everything_is_done_with_the_keyboard_alone(web, connection):
    web.list()
    press = web.page.keyboard.press
    press("/")
    expect(web.page.get_by_role("searchbox", name="Search")).to_be_focused()
    web.page.keyboard.type("concerts")
    press("Enter")
    expect(web.page.locator("tr[data-context]")).to_have_count(1)
    link = web.page.get_by_role("link", name="barge-in")
    tab_to(web, link)
    press("Enter")
    last = newest(connection, "barge-in")
    web.shown(last)
    for key, version in (
        ("Home", 0),
        (".", 1),
        (".", 2),
        (",", 1),
        ("End", last),
    ):
        press(key)
        web.shown(version)
    press("[")
    expect(web.page.get_by_role("region", name="Context", exact=True)).not_to_have_attribute(
        "data-version", str(last)
    )
    tab_to(web, web.scrubber)
    press("Home")
    web.shown(0)
    press("ArrowRight")
    web.shown(1)
    press("?")
    keys = web.page.get_by_role("dialog")
    expect(keys).to_contain_text("Home")
    press("Escape")
    expect(keys).to_be_hidden()


@pytest.mark.long
@pytest.mark.regression("gateway 71")
def test_title_and_focus_follow_from_screen_to_screen(web):
    web.list()
    heading = web.page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Conversations")
    expect(heading).not_to_be_focused()
    web.page.get_by_role("link", name="barge-in").press("Enter")
    web.shown(22)
    expect(heading).to_be_focused()
    expect(web.page).to_have_title("barge-in · Frameledger")
    web.page.get_by_role("link", name=re.compile("needs a person")).press("Enter")
    expect(heading).to_have_text("What needs a person")
    expect(heading).to_be_focused()
    expect(web.page).to_have_title("What needs a person · Frameledger")
    web.page.go_back()
    web.shown(22)
    expect(heading).to_be_focused()
    expect(web.page).to_have_title("barge-in · Frameledger")
    web.page.keyboard.press("/")
    expect(web.page.get_by_role("searchbox", name="Search")).to_be_focused()


@pytest.mark.long
@pytest.mark.regression("gateway 72")
@pytest.mark.parametrize("tab", ["constructor", "nothing"])
def test_a_tab_that_there_is_not_is_the_context(web, tab):
    web.page.goto(f"{web.origin}/c/barge-in?tab={tab}")
    web.shown(22)
    chosen = web.page.get_by_role("navigation", name="Views").locator("[aria-current=page]")
    expect(chosen).to_have_text("Context")


@pytest.mark.long
@pytest.mark.regression("gateway 74")
def test_a_version_that_is_not_there_is_said_not_to_be(web):
    where = web.page.locator(".where")
    web.open("barge-in", at=22)
    expect(where).to_contain_text("version 22 of 22")
    expect(where).not_to_contain_text("no version")
    web.page.goto(f"{web.origin}/c/barge-in?at=999999")
    web.shown(22)
    expect(where).to_contain_text("There is no version 999,999")
    web.page.keyboard.press(",")
    web.shown(21)
    expect(where).not_to_contain_text("no version")


@pytest.mark.long
def test_marks_lead_from_one_turn_to_the_next(web, connection):
    web.open("barge-in", at=0)
    seen = []
    for _ in range(newest(connection, "barge-in")):
        before = web.read()["messages"], web.scrubber.input_value()
        web.page.keyboard.press("]")
        if web.scrubber.input_value() == before[1]:
            break
        seen.append(int(web.scrubber.input_value()))
    assert 12 in seen
    assert 1 < len(seen) < newest(connection, "barge-in")


@pytest.mark.long
def test_what_was_erased_and_what_is_not_there_say_so(web):
    for context_id, sentence in ((ERASED, "erased"), ("of nobody", "there is no")):
        web.page.goto(f"{web.origin}/c/{quote(context_id, safe='')}")
        main = web.page.get_by_role("main")
        expect(main).to_contain_text(re.compile(sentence, re.I))
        expect(web.page.get_by_role("heading", level=1)).to_have_count(1)


@pytest.mark.long
@pytest.mark.parametrize(("a", "b"), [(0, 60), (12, 40), (60, 12)])
def test_what_differs_is_what_sql_says(web, connection, a, b):
    wanted = value_of(connection, "SELECT context_diff('ambiguous-payments', %s, %s)", a, b)
    web.open("ambiguous-payments", tab="diff", **{"from": a, "to": b})
    for kind, entries in ((kind, wanted[kind]) for kind in ("added", "removed", "replaced")):
        places = {f"{one['era']}.{one['position']}": one for one in entries}
        shown = web.page.locator(f"[data-change='{kind}']")
        expect(shown).to_have_count(len(places))
        assert {one.get_attribute("data-place") for one in shown.all()} == places.keys(), kind
        for place, one in places.items():
            # For a replaced message it shows which words were removed and which were added.
            said = words_of(one["after" if kind == "replaced" else "message"])
            for text in said:
                expect(shown.and_(web.page.locator(f"[data-place='{place}']"))).to_contain_text(
                    last_word(text)
                )


def last_word(text):
    return text.split()[-1]


def tab_to(web, wanted):
    """Press Tab until this element has the focus, and check that the focus is visible."""
    for _ in range(100):
        web.page.keyboard.press("Tab")
        if wanted.evaluate("one => one === document.activeElement"):
            outline = wanted.evaluate(
                "one => getComputedStyle(one).outlineStyle + getComputedStyle(one).boxShadow"
            )
            assert outline != "nonenone"
            return
    raise AssertionError(f"{wanted} cannot be reached")
