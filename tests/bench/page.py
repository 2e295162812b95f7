"""Measures the page with a long conversation in a real browser: `python -m tests.bench.page`, run by `make bench`.

The conversation has ten thousand frames and a thousand messages. Limits are in milliseconds on an idle machine: a step
has to fit into one frame of the screen. The first display is also compared with a bare page with the same messages.
"""

from __future__ import annotations

import html
import json
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, expect
from rich.console import Console
from tests import in_memory
from tests.support import browsers, gateway, webpage
from tests.support.batches import Log, project
from tests.support.databases import made
from tests.support.streaming import NO_KAFKA

from frameledger import derived
from frameledger_services.bench.report import Figure, as_table
from frameledger_services.embedded import ports, postgres
from frameledger_services.settings import Settings
from frameledger_services.store import migration

CONTEXT_ID = "long"
TURNS = 500
WORDS = 17
"""Pieces of an answer. With its other frames a turn has 20 frames, and two messages."""

ROUNDS = 5
STEPS = 100
STEP_MS, JUMP_MS = 16.0, 60.0
FIRST_SIGHT_MS = 1_000.0

SAW = """() => new MutationObserver((_, observer) => {
    if (document.querySelectorAll('li[data-place]').length < MESSAGES) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => {
        document.documentElement.dataset.seen = performance.now();
    }));
}).observe(document, {childList: true, subtree: true})"""
"""Records when a page's messages were first drawn, in milliseconds since navigation."""

MOVE = """async versions => {
    const slider = document.querySelector('input[type=range]');
    const section = document.querySelector('section[aria-label=Context]');
    const shown = () => section.dataset.version;
    const task = () => new Promise(done => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => { channel.port1.close(); done(); };
        channel.port2.postMessage(0);
    });
    const times = [];
    for (const version of versions) {
        const began = performance.now();
        slider.value = version;
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        while (shown() !== String(version)) await task();
        document.body.offsetHeight;
        times.push(performance.now() - began);
        await new Promise(requestAnimationFrame);
    }
    return times;
}"""
"""How long each version takes from the slider to a page that is laid out, in milliseconds."""


def frames() -> Iterator[dict[str, Any]]:
    """The conversation."""
    version = 0
    for turn in range(TURNS):
        question = {"role": "user", "content": f"Question {turn}: and what does the day after bring?"}
        yield {"type": "LLMMessagesAppendFrame", "messages": [question], "run_llm": True}
        run = {"run_id": derived.run_id(CONTEXT_ID, version + 1)}
        began = {"provider": "scripted", "model": "meadow-2", "context_version": version + 1, "worker": "w"}
        yield {"type": "LLMFullResponseStartFrame", **run, **began}
        for word in range(WORDS):
            yield {"type": "LLMTextFrame", **run, "text": f"piece {word} of the answer to {turn}, "}
        yield {"type": "LLMFullResponseEndFrame", **run}
        version += WORDS + 3


def main() -> int:
    """Measure, and print a table. Returns the exit code: 1 if a goal is missed."""
    in_memory.use()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres.running(Path(folder)) as server,
        made(server.dsn) as (_, address),
    ):
        migration.migrate(address)
        log = Log()
        for frame in frames():
            log.add(CONTEXT_ID, json.dumps(frame).encode())
        project(address, log.records, sizes=(500,))
        settings = Settings(database_url=address, kafka_bootstrap_servers=NO_KAFKA)
        with (
            gateway.running(settings, is_heard=False, gateway_port=str(ports.choose(0))) as running,
            browsers.running(Path(folder)) as browser,
            browser.new_context() as context,
            webpage.opened(context, running.address) as web,
        ):
            figures = measured(web, len(log.records))
    Console().print(as_table(figures))
    return 0 if all(figure.ok for figure in figures) else 1


def measured(web: webpage.Webpage, newest: int) -> list[Figure]:
    """All figures."""
    page, path = web.page, f"{web.origin}/c/{CONTEXT_ID}"
    page.add_init_script(f"({SAW.replace('MESSAGES', str(2 * TURNS))})()")
    first = first_sight(page, f"{path}?at={newest}")
    said = page.locator("li[data-place] .words").all_inner_texts()
    # All frames are here before it is moved through: a row that is not is no link yet.
    expect(page.get_by_role("region", name="Frames", exact=True).locator("[data-version] a")).to_have_count(
        newest
    )
    steps = page.evaluate(MOVE, [newest // 2 + step for step in range(STEPS)])
    # Far apart, and each time somewhere else.
    jumps = page.evaluate(MOVE, [(1 + step * 3_701) % newest for step in range(STEPS)])
    with bare(said) as address:
        # A page of its own: this one asks somebody else.
        other = page.context.new_page()
        other.add_init_script(f"({SAW.replace('MESSAGES', str(2 * TURNS))})()")
        yardstick = first_sight(other, address)
        other.close()
    beside = median(yardstick)
    return [
        held("first sight of 1,000 messages and 10,000 frames, p50 / 1 s", first, FIRST_SIGHT_MS),
        Figure("the same / bare page", median(first), "ms", beside, median(first) / beside, None, "at most"),
        held("one step among 10,000 frames, p50 / 16 ms", steps, STEP_MS),
        held("a jump among 10,000 frames, p50 / 60 ms", jumps, JUMP_MS),
    ]


def first_sight(page: Page, address: str) -> list[float]:
    """How long the messages of a page take until they are drawn, in milliseconds, each time anew."""
    times = []
    for _ in range(ROUNDS):
        page.goto(address)
        expect(page.locator("html[data-seen]")).to_be_attached()
        times.append(float(page.locator("html").get_attribute("data-seen") or 0))
    return times


def held(name: str, times: Sequence[float], goal: float) -> Figure:
    value = median(times)
    spread = min(times) / goal, max(times) / goal
    return Figure(name, value, "ms", goal, value / goal, 1.0, "at most", spread)


@contextmanager
def bare(texts: Sequence[str]) -> Iterator[str]:
    """Serves a page that has these texts and nothing else; its address."""
    items = "".join(f'<li data-place="{place}">{html.escape(text)}</li>' for place, text in enumerate(texts))
    body = f"<!doctype html><title>bare</title><ol>{items}</ol>".encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except browsers.NoBrowserError as error:
        sys.exit(f"The page cannot be measured: {error}.")
