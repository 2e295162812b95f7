"""Access to the page in a real browser: signing in, a tenant's token, and a token that redacts content."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.support import gateway, webpage
from tests.support.batches import HISTORIES, folded
from tests.support.page_conversations import HOSTILE, MARKUP
from tests.support.webpage import Webpage, words_of

from frameledger_services.embedded import ports
from frameledger_services.gateway.access import tokens

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A file of tokens, and the tokens in it, by name."""
    file = tmp_path_factory.mktemp("tokens") / "tokens.json"
    rights = {"tenant": {"prefix": "acme/"}, "auditor": {"redact": True}}
    return file, {
        name: tokens.create(file, name, ("read",), now=NOW, **more)[1] for name, more in rights.items()
    }


@pytest.fixture(scope="module")
def origin(filled, given) -> Iterator[str]:
    asks = filled.model_copy(update={"gateway_tokens_file": given[0]})
    with gateway.running(asks, is_heard=False, gateway_port=str(ports.choose(0))) as running:
        yield running.address


@contextmanager
def signed_in(browser, origin, token) -> Iterator[Webpage]:
    """A page of a user with this token and without a cookie."""
    with browser.new_context(reduced_motion="reduce") as context, webpage.opened(context, origin) as web:
        web.page.goto(origin)
        web.page.get_by_label("Token").fill(token)
        web.page.keyboard.press("Enter")
        yield web


def test_without_a_token_nothing_is_shown_and_a_wrong_one_is_refused(browser, origin, given):
    with signed_in(browser, origin, "fl_wrong") as web:
        expect(web.page.get_by_role("alert")).to_contain_text("unknown")
        expect(web.page.locator("tr[data-context]")).to_have_count(0)
        web.page.get_by_label("Token").fill(given[1]["auditor"])
        web.page.get_by_role("button", name="Sign in").click()
        expect(web.page.locator("tr[data-context]").first).to_be_visible()
        web.page.reload()
        expect(web.page.locator("tr[data-context]").first).to_be_visible()
        web.page.get_by_role("button", name="Sign out").click()
        expect(web.page.get_by_label("Token")).to_be_visible()
        web.page.goto(f"{origin}/c/barge-in")
        expect(web.page.get_by_label("Token")).to_be_visible()


@pytest.mark.long
def test_a_tenant_sees_its_own_conversations_and_no_other(browser, origin, given):
    with signed_in(browser, origin, given[1]["tenant"]) as web:
        rows = web.page.locator("tr[data-context]")
        expect(rows).to_have_count(1)
        expect(rows).to_have_attribute("data-context", MARKUP)
        web.open(MARKUP)
        assert web.read()["messages"][0]["words"] == [HOSTILE]
        web.page.goto(f"{origin}/c/{quote('barge-in')}")
        expect(web.page.get_by_role("main")).to_contain_text(re.compile("there is no", re.I))


def test_who_is_shown_no_words_reads_when_and_how_much(browser, origin, given):
    barge_in = next(path for path in HISTORIES if path.stem == "barge-in")
    messages = folded(barge_in)[0][-1]["messages"]
    said = [words for one in messages for words in words_of(one)]
    with signed_in(browser, origin, given[1]["auditor"]) as web:
        for state in ({}, {"tab": "runs"}, {"tab": "diff", "from": 0, "to": 22}):
            web.open("barge-in", **state)
            web.settle()
            shown = web.page.locator("body").inner_text()
            assert [words for words in said if words in shown] == [], state
            assert "jazz" not in shown
        web.open("barge-in", at=12)
        shown = web.read(12)["messages"]
        assert [one["role"] for one in shown] == [one["role"] for one in folded(barge_in)[0][12]["messages"]]
        expect(web.page.get_by_role("region", name="Context", exact=True)).to_contain_text("bytes")
