"""The panels beside a conversation in a real browser: runs, requests, reasons, differences, proof, and what is taken
along. What they show is what the API answers."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import expect
from tests.bounds import ON_SERVERS
from tests.support.tiers import long

DESK = "a-day-at-the-desk"
BARGE_IN = "barge-in"
SECOND_ATTEMPT = "second-attempt"
CHANGED = "cough"
"""A conversation whose frames one test changes; no other test uses it."""

LOST = "late-words"
"""A conversation of which one test deletes frames; no other test uses it."""

INFERENCE = """
INSERT INTO workers (worker_id, kind, service, host, pid, lease_secs, slots, serves, serves_all, offers)
VALUES ('inference-1', 'inference', 'inference', 'here', 3, 86400, 1, '{}', true, '{
    "provider": "scripted", "settings": {}, "adapter": {}, "instructions": {"appended": [], "turn_completion": ""}}')
"""
"""The worker of the recorded runs, which their requests depend on."""

Api = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def filled(filled):
    with psycopg.connect(filled.database_url.get_secret_value()) as connection:
        connection.execute(INFERENCE)
    return filled


@pytest.fixture(scope="module")
def api(origin) -> Api:
    """Returns the gateway's answers about a conversation."""

    def get(context_id: str, rest: str = "") -> Any:
        return (
            httpx.get(f"{origin}/v1/contexts/{context_id}{rest}", timeout=ON_SERVERS)
            .raise_for_status()
            .json()
        )

    return get


@pytest.mark.long
def test_every_run_is_there_with_its_numbers(web, api):
    runs = api(DESK, "/runs")["runs"]
    main = web.open(DESK, tab="runs")
    rows = main.locator("tr[data-run]")
    expect(rows).to_have_count(len(runs))
    shown = rows.evaluate_all("rows => rows.map(row => [row.dataset.run, row.innerText])")
    assert [run_id for run_id, _ in shown] == [run["run_id"] for run in runs]
    for (_, text), run in zip(shown, runs, strict=True):
        for name in ("requested_version", "model", "input_tokens", "output_tokens", "error"):
            assert run[name] is None or str(run[name]) in text, (name, text)


@pytest.mark.long
def test_a_run_says_what_every_attempt_of_it_said_and_leads_to_its_frames(web, api):
    [run] = [one for one in api(SECOND_ATTEMPT, "/runs")["runs"] if one["attempt"] > 1][:1]
    known = api(SECOND_ATTEMPT, f"/runs/{run['run_id']}")
    main = web.open(SECOND_ATTEMPT, tab="runs")
    row = main.locator(f"tr[data-run='{run['run_id']}']")
    row.get_by_role("link", name=re.compile("ended|called|interrupted")).click()
    detail = main.get_by_role("region", name="Run", exact=True)
    for attempt in known["attempts"]:
        expect(detail).to_contain_text(attempt["text"] or "No words")
    assert any(attempt["superseded"] for attempt in known["attempts"])
    expect(detail).to_contain_text("superseded")
    detail.get_by_role("link", name=str(known["asked_by"]["version"]), exact=True).first.click()
    web.shown(known["asked_by"]["version"])


@pytest.mark.long
def test_a_request_is_shown_as_it_was_sent_and_whether_it_is_the_same(web, api):
    run = api(BARGE_IN, "/runs")["runs"][-1]["run_id"]
    made = api(BARGE_IN, f"/runs/{run}/request")
    main = web.open(BARGE_IN, tab="request", run=run)
    expect(main.locator("[data-matches]")).to_have_attribute(
        "data-matches", str(made["matches_sha256"]).lower()
    )
    expect(main).to_contain_text(made["sha256"])
    turns = main.locator(".turns > li")
    assert [turn["role"] for turn in made["request"]["messages"]] == turns.evaluate_all(
        "turns => turns.map(turn => turn.dataset.role)"
    )
    for message in made["request"]["messages"]:
        expect(main).to_contain_text(message["content"])
    main.get_by_role("link", name="JSON").click()
    assert json.loads(main.locator("pre.json").inner_text()) == made["request"]


@pytest.mark.long
@pytest.mark.regression("fault 61")
def test_a_request_has_its_numbers_as_they_were_sent(web, api):
    run = api(BARGE_IN, "/runs")["runs"][-1]["run_id"]
    numbers = '"seed": 12345678901234567890, "presence_penalty": 1.0'

    def with_numbers(route):
        answer = route.fetch()
        route.fulfill(
            response=answer,
            body=answer.text().replace('"request":{', f'"request":{{{numbers},', 1),
        )

    web.page.route("**/runs/*/request", with_numbers)
    main = web.open(BARGE_IN, tab="request", run=run, json=1)
    for number in numbers.split(", "):
        expect(main.locator("pre.json")).to_contain_text(number)
    main.get_by_role("link", name="Messages").click()
    for number in ("12345678901234567890", "1.0"):
        expect(main.get_by_text(number, exact=True)).to_be_visible()


def test_a_reason_leads_from_who_asked_to_what_was_thrown_away(web, api):
    version = 12
    history = api(BARGE_IN, "/history")["rows"]
    [cut] = [one for one in history if one["run_id"] and one["valid_from"] == version]
    place = f"{cut['era']}.{cut['position']}"
    known = api(BARGE_IN, f"/messages/{place}/why?version={version}")
    web.open(BARGE_IN, at=version).locator(f"li[data-place='{place}']").get_by_role(
        "link", name="why"
    ).click()
    why = web.page.get_by_role("region", name="Why", exact=True)
    heard = known["readings"][-1]["text"]
    for part in (known["run"]["model"], known["run"]["request_sha256"], heard):
        expect(why).to_contain_text(part)
    for frame in (known["run"]["asked_by"], known["readings"][0]["began_by"]):
        expect(why.get_by_role("link", name=str(frame["version"]), exact=True).first).to_be_visible()
    unheard = known["run"]["said"].removeprefix(heard).strip()
    assert unheard
    expect(why.get_by_role("region", name="Thrown away").locator("del").first).to_have_text(unheard)
    for cause in known["causes"]:
        expect(why).to_contain_text(cause["type"].removesuffix("Frame"))


def test_a_difference_is_told_in_words_with_the_frames_that_made_it(web, api):
    history = api(DESK, "/history")["rows"]
    [before, after] = next(
        (first, then)
        for first, then in itertools.pairwise(history)
        if first["valid_to"] == then["valid_from"] and first["position"] == then["position"]
    )
    version = after["valid_from"]
    main = web.open(DESK, tab="diff", **{"from": version - 1, "to": version})
    changed = main.locator(f"[data-change='replaced'][data-place='{after['era']}.{after['position']}']")
    assert "".join(changed.locator("del").all_inner_texts()) in before["message"]["content"]
    assert "".join(changed.locator("ins").all_inner_texts()) in after["message"]["content"]
    expect(changed.get_by_role("link", name=str(version), exact=True)).to_be_visible()
    only = main.get_by_role("checkbox", name="Only what changed")
    only.uncheck()
    same = [
        one for one in history if one["valid_from"] < version < one["valid_to"] and one["era"] == after["era"]
    ]
    expect(main.locator("[data-change='same']")).to_have_count(len(same))
    main.get_by_role("spinbutton", name="From version").fill("0")
    main.get_by_role("spinbutton", name="From version").press("Enter")
    expect(web.page).to_have_url(re.compile("from=0"))
    expect(main.locator("[data-change='same']")).to_have_count(0)


def test_a_conversation_is_intact_until_somebody_changes_a_frame(web, filled, api):
    main = web.open(CHANGED, tab="verify")
    expect(main.locator("[data-intact='true']")).to_contain_text(
        f"All {api(CHANGED)['newest']} stored frames"
    )
    with psycopg.connect(filled.database_url.get_secret_value()) as connection:
        # As a superuser could; for everybody else frames are read-only.
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE frames SET payload = replace(payload::text, 'e', 'a')::json WHERE context_id = %s AND version = 3",
            (CHANGED,),
        )
    main.get_by_role("button", name="Verify again").click()
    broken = main.locator("[data-intact='false']")
    expect(broken).to_contain_text("Broken at version 3")
    expect(broken).to_contain_text(api(CHANGED, "/verify")["problem"])


@pytest.mark.long
@pytest.mark.regression("fault 62")
def test_a_frame_that_is_not_stored_any_more_is_said_to_be_lost_and_not_asked_for_again(web, filled, api):
    newest = api(LOST)["newest"]
    lost = {3, 4, newest}
    with psycopg.connect(filled.database_url.get_secret_value()) as connection:
        # As a superuser could; for everybody else frames are read-only.
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM frames WHERE context_id = %s AND version = ANY(%s)", (LOST, [*lost]))
    requests: list[str] = []
    web.page.on("request", lambda request: requests.append(request.url))
    web.open(LOST)
    frames = web.page.get_by_role("region", name="Frames", exact=True)
    for version in range(1, newest + 1):
        row = frames.locator(f"[data-version='{version}']")
        expect(row).to_contain_text("not stored" if version in lost else re.compile("[a-z]"))
    asked = [path for path in requests if "/frames?" in path]
    assert len(asked) == len(set(asked)) > 0


@pytest.mark.long
def test_all_frames_are_a_file(web, api):
    web.open(BARGE_IN, at=12)
    web.page.get_by_text("Export", exact=True).click()
    with web.page.expect_download() as downloading:
        web.page.get_by_role("link", name="All frames, as NDJSON").click()
    file = downloading.value
    lines = Path(file.path()).read_text(encoding="utf-8").splitlines()
    assert file.suggested_filename == f"{BARGE_IN}.jsonl"
    assert [json.loads(line)["version"] for line in lines] == [*range(1, api(BARGE_IN)["newest"] + 1)]
    web.page.keyboard.press("Escape")
    expect(web.page.get_by_role("link", name="All frames, as NDJSON")).to_be_hidden()


PANELS = {
    "runs": {"tab": "runs"},
    "calls": {"tab": "calls"},
    "request": {"tab": "request"},
    "verify": {"tab": "verify"},
    "why": {"tab": "why", "message": "1.2", "at": 30},
}


@pytest.mark.parametrize(
    "panel", [long(panel) if panel in {"calls", "request", "verify", "why"} else panel for panel in PANELS]
)
def test_axe_finds_nothing_in_a_panel_and_it_fits_a_narrow_screen(web, panel):
    web.open(DESK, **PANELS[panel])
    web.check_accessible("light", "dark")
    web.check_narrow()
