"""Content of conversations that a page could be stopped or misled by, in a real browser: long texts, both directions of
writing, sound and pictures, many frames, ids that no address can have."""

import json
import random

import pytest
from playwright.sync_api import expect
from tests.support.batches import Log, project
from tests.support.tiers import first

UNRELATED, SHORT_CHANGES, BOTH_WAYS = "unrelated", "short-changes", "both-ways"
MEDIA, REVIVED, LONG = "media", "revived", "long"
FOLDERS = (".", "..")
TURNED = "Bob \u202e elppA "
HEBREW = "שלום לכולם, hello וברוכים הבאים."
SOUND, PICTURE = "A" * 4_000, "B" * 3_000
FRAMES = 2_000
HEIGHT_OF_ROW = 22


def chinese(length, seed):
    return "".join(map(chr, random.Random(seed).choices(range(0x4E00, 0x9FA5), k=length)))


def append(role, content):
    return {"type": "LLMMessagesAppendFrame", "messages": [{"role": role, "content": content}]}


def rewrite(position, content):
    message = {"role": "system", "content": content}
    return {"type": "LLMMessageRewriteFrame", "position": position, "message": message}


WRITTEN = {
    UNRELATED: [append("system", chinese(2_500, 1)), rewrite(1, chinese(2_500, 2))],
    SHORT_CHANGES: [append("system", "one two three"), rewrite(1, "one 2 three")],
    BOTH_WAYS: [
        append("user", HEBREW),
        {
            "type": "FunctionCallInProgressFrame",
            "function_name": "refund",
            "tool_call_id": "c1",
            "arguments": {},
            "cancel_on_interruption": False,
            "waiting": {"for": TURNED},
        },
    ],
    MEDIA: [
        append(
            "user",
            [
                {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PICTURE},
                },
                {"type": "reading", "data": "forty degrees"},
            ],
        )
    ],
    REVIVED: [
        append("user", "My number is 12."),
        {"type": "LLMContextEraseFrame", "id": "e", "why": "asked for"},
        append("user", "Hello again."),
    ],
    LONG: [{"type": "LLMTextFrame", "text": "word "}] * FRAMES,
    **{context_id: [append("user", "Who finds me?")] for context_id in FOLDERS},
}


@pytest.fixture(scope="module")
def filled(settings):
    log = Log()
    for context_id, frames in WRITTEN.items():
        for frame in frames:
            log.add(context_id, json.dumps(frame).encode())
    project(settings.database_url.get_secret_value(), log.records, sizes=(500,))
    return settings


@pytest.mark.long
@pytest.mark.regression("gateway 66")
def test_texts_that_have_little_in_common_are_shown_one_behind_the_other(web):
    main = web.open(UNRELATED, tab="diff", **{"from": 1, "to": 2})
    said = main.locator("[data-change='replaced'] .words")
    expect(said.locator("del")).to_have_count(1)
    expect(said.locator("del")).to_have_text(chinese(2_500, 1))
    expect(said.locator("ins")).to_have_text(chinese(2_500, 2))
    main = web.open(SHORT_CHANGES, tab="diff", **{"from": 1, "to": 2})
    expect(main.locator("[data-change='replaced'] .words")).to_have_text("one two2 three")


@pytest.mark.long
@pytest.mark.regression("gateway 66")
def test_all_comparisons_of_a_diff_together_are_bounded(web):
    web.list()
    pieces = web.page.evaluate(
        """async ([before, after]) => {
            const {Comparison} = await import('/page/changes.js');
            const [one, other] = [new Comparison(), new Comparison()];
            const counts = Array.from({length: 200}, () => one.words(before, after).length);
            return [counts[0], counts.at(-1), other.words(before, after).length];
        }""",
        [f"the {chinese(400, 1)} end", f"the {chinese(400, 2)} end"],
    )
    assert pieces[0] == pieces[2] > 2
    assert pieces[1] == 2


LEFT_EDGES = """(element, [first, last]) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    const left = (character) => {
        walker.currentNode = element;
        while (walker.nextNode()) {
            const at = walker.currentNode.data.indexOf(character);
            if (at < 0) continue;
            const range = document.createRange();
            range.setStart(walker.currentNode, at);
            range.setEnd(walker.currentNode, at + 1);
            return range.getBoundingClientRect().left;
        }
    };
    return [left(first), left(last)];
}"""
"""Returns where the first occurrences of two characters begin on the screen."""


@pytest.mark.long
@pytest.mark.regression("gateway 77")
def test_what_was_set_since_is_added_to_what_was_set_before(web):
    web.list()
    tools, since = web.page.evaluate(
        """async () => {
            const {joined, pastOf, settingsAt} = await import('/page/past.js');
            const set = (name, valid_from) => ({name, valid_from, value: `${name} of ${valid_from}`});
            const answer = (...settings) => ({eras: [], rows: [], settings});
            const past = pastOf(answer(set('settings', 1), set('tools', 2)));
            const later = joined(joined(past, answer(set('tools', 5)), 4), answer(set('tools', 5)), 4);
            return [[1, 2, 4, 5].map((at) => settingsAt(later, at).get('tools')?.value ?? null),
                settingsAt(later, 5).get('settings').since];
        }"""
    )
    assert tools == [None, "tools of 2", "tools of 2", "tools of 5"]
    assert since == 1


@pytest.mark.long
@pytest.mark.regression("gateway 67")
def test_what_a_call_waits_for_turns_nothing_around_that_stands_beside_it(web):
    web.page.goto(f"{web.origin}/work")
    summary = web.page.locator("summary", has_text=BOTH_WAYS)
    context_id, time = summary.locator(".id"), summary.locator("time").first
    expect(context_id).to_have_text(BOTH_WAYS)
    begin, end = context_id.evaluate(LEFT_EDGES, ["b", "y"])
    assert begin < end
    assert context_id.bounding_box()["x"] < time.bounding_box()["x"]


@pytest.mark.regression("gateway 67")
def test_a_message_is_laid_out_in_the_direction_that_it_is_written_in(web):
    said = web.open(BOTH_WAYS, at=1).locator("li[data-place] .words")
    expect(said).to_have_text(HEBREW)
    begin, end = said.evaluate(LEFT_EDGES, [HEBREW[0], "."])
    assert begin > end


@pytest.mark.long
@pytest.mark.regression("gateway 68")
def test_sound_and_pictures_are_named_and_not_written_out(web):
    context = web.open(MEDIA, at=1)
    expect(context).to_contain_text("base64, 4,000 bytes")
    expect(context).to_contain_text("base64, 3,000 bytes")
    expect(context).to_contain_text("forty degrees")
    expect(context).not_to_contain_text("AAAA")
    expect(context).not_to_contain_text("BBBB")


@pytest.mark.regression("gateway 73")
@pytest.mark.parametrize("context_id", first(1, FOLDERS))
def test_a_conversation_that_no_address_can_name_says_how_to_read_it(web, context_id):
    web.list()
    web.page.get_by_role("link", name=context_id, exact=True).click()
    main = web.page.get_by_role("main")
    expect(main.get_by_role("heading", level=1)).to_have_text(context_id)
    expect(main).to_contain_text(f"frameledger show {context_id}")
    web.page.reload()
    expect(main).to_contain_text(f"frameledger show {context_id}")


@pytest.mark.long
@pytest.mark.regression("gateway 74")
def test_a_version_that_was_erased_is_said_to_be(web):
    web.page.goto(f"{web.origin}/c/{REVIVED}?at=1")
    web.shown(2)
    expect(web.page.locator(".where")).to_contain_text("Version 1 was erased")


@pytest.mark.regression("gateway 75")
def test_frames_take_their_room_before_they_are_here(web):
    pages = []

    def only_the_first(route):
        pages.append(route)
        if len(pages) == 1:
            route.continue_()

    web.page.route("**/frames?*", only_the_first)
    web.open(LONG, at=1)
    rows = web.page.get_by_role("region", name="Frames", exact=True).locator(".rows")
    heights = rows.evaluate(
        """async (rows) => {
            const drawn = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
            const heights = [];
            for (const part of [0.9, 0.6, 0.3, 0.8, 0.1]) {
                rows.scrollTop = part * rows.scrollHeight;
                await drawn();
                heights.push(rows.scrollHeight);
            }
            return heights;
        }"""
    )
    assert min(heights) >= FRAMES * HEIGHT_OF_ROW
    for route in pages[1:]:
        route.abort()
