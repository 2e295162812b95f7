"""The web page in a real browser: opens it, reads its content, and checks that it has no errors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, Request, expect
from tests.bounds import ON_SERVERS
from tests.support.polling import POLL_SECONDS

expect.set_options(timeout=ON_SERVERS * 1000)

# One call for the whole context: a call for each message would take most of a test's time.
READ_CONTEXT = """section => {
    const texts = (from, selector) => [...from.querySelectorAll(selector)].map(one => one.textContent);
    return {
        messages: [...section.querySelectorAll('li[data-place]')].map(one => ({
            place: one.dataset.place,
            role: one.dataset.role,
            words: texts(one, '.words'),
            calls: Object.fromEntries(
                [...one.querySelectorAll('[data-call]')].map(call => [call.dataset.call, call.textContent])),
        })),
        tools: [...section.querySelectorAll('[data-tool]')].map(one => one.dataset.tool),
        settings: Object.fromEntries(
            [...section.querySelectorAll('[data-setting]')].map(one => [one.dataset.setting, one.textContent])),
    };
}"""

BEYOND_THE_EDGE = """() => [...document.querySelectorAll('body, body *')].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.right > document.documentElement.clientWidth + 1 && !scrolls(one);
    function scrolls(one) {
        for (let up = one.parentElement; up; up = up.parentElement) {
            if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)) return true;
        }
        return false;
    }
}).map(one => one.outerHTML.slice(0, 100))"""
"""Elements that extend beyond the edge of the screen and are not in a scrollable element."""

FAILED = "Failed to load resource"
"""What a browser logs by itself for a problem response, which some tests expect."""


# Without slots: Playwright stores a wrapper of a method on its object.
@dataclass
class Faults:
    """The errors that the browser logged, and the addresses that it requested."""

    origin: str
    found: list[str] = field(default_factory=list)

    def said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(FAILED):
            self.found.append(f"{message.type}: {message.text}")

    def raised(self, error: Exception) -> None:
        self.found.append(f"raised: {error}")

    def asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self.found.append(f"asked {request.url}")


@dataclass(frozen=True, slots=True)
class Webpage:
    """A page of the gateway at `origin`."""

    page: Page
    origin: str

    def list(self, **state: Any) -> Locator:
        """Open the list. Returns its rows."""
        self.page.goto(f"{self.origin}/{_query(state)}")
        expect(self.page.get_by_role("table", name="Conversations")).to_be_visible()
        return self.page.locator("tr[data-context]")

    def open(self, context_id: str, **state: Any) -> Locator:
        """Open a conversation. Returns its context, or the view that `tab` names."""
        self.page.goto(f"{self.origin}/c/{quote(context_id, safe='')}{_query(state)}")
        if "tab" not in state:
            return self.shown(state.get("at"))
        chosen = self.page.get_by_role("navigation", name="Views").locator("[aria-current=page]")
        expect(chosen).to_have_text(re.compile(state["tab"], re.I))
        return self.page.get_by_role("main")

    def shown(self, version: int | None = None) -> Locator:
        """Wait until a context is shown, of this version if one is given."""
        context = self.page.get_by_role("region", name="Context", exact=True)
        expect(context).to_be_visible()
        if version is not None:
            expect(context).to_have_attribute("data-version", str(version))
        return context

    def read(self, version: int | None = None) -> dict[str, Any]:
        """Returns the shown context, once it is that of this version."""
        found: dict[str, Any] = self.shown(version).evaluate(READ_CONTEXT)
        return found

    def settle(self) -> None:
        """Wait until everything that the page requested has arrived. A followed conversation is never idle, because its
        stream is open; its first content is complete once its frames are shown."""
        expect(self.page.locator("main.waiting, [aria-busy=true]")).to_have_count(0)
        self.page.evaluate("document.fonts.ready")

    def check_accessible(self, *themes: Literal["light", "dark"]) -> None:
        """Assert that axe finds no accessibility problems in each of these themes."""
        for theme in themes:
            self.page.emulate_media(color_scheme=theme)
            self.settle()
            found = Axe().run(self.page)
            assert found.violations_count == 0, found.generate_report()

    def check_narrow(self) -> None:
        """Assert that nothing has to be scrolled sideways on a screen of 400 pixels."""
        self.page.set_viewport_size({"width": 400, "height": 800})
        self.settle()
        # Elements that depend on the width are drawn again once the browser reports the new width.
        until = time.monotonic() + ON_SERVERS
        while (found := self._beyond_the_edge()) != ([], 400):
            assert time.monotonic() < until, found
            self.page.wait_for_timeout(POLL_SECONDS * 1000)

    def _beyond_the_edge(self) -> tuple[Sequence[str], int]:
        return (
            self.page.evaluate(BEYOND_THE_EDGE),
            self.page.evaluate("document.documentElement.scrollWidth"),
        )

    @property
    def scrubber(self) -> Locator:
        return self.page.get_by_role("slider", name="Version")


@contextmanager
def opened(context: BrowserContext, origin: str) -> Iterator[Webpage]:
    """Yields a page in this browser. At the end, the browser must have logged no errors, and the page must have
    requested nothing but the gateway."""
    page, faults = context.new_page(), Faults(origin)
    page.set_default_timeout(ON_SERVERS * 1000)
    page.on("console", faults.said)
    page.on("pageerror", faults.raised)
    page.on("request", faults.asked)
    try:
        yield Webpage(page, origin)
    except AssertionError as error:
        error.add_note(f"The browser said: {faults.found}")
        raise
    finally:
        page.close()
    assert faults.found == [], faults.found


def words_of(message: dict[str, Any]) -> list[str]:
    """Returns the texts of a message, each of which the page has to show unchanged."""
    if "llm" in message:
        return [message["message"]["text"]]
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if part["type"] == "text"]


def _query(state: dict[str, Any]) -> str:
    return f"?{urlencode(state)}" if state else ""


def as_json(value: Any) -> str:
    """Returns JSON as `JSON.stringify` writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
