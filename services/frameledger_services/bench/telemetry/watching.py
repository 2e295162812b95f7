"""Metrics scrapers and trace collectors that run beside the measured processes."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from frameledger_services import extras
from frameledger_services.bench.road.processes import BenchError, free_port

SCRAPE_SECONDS = 15.0
"""Scrape interval in seconds, as in the example configuration of Prometheus."""

POLL_SECONDS = 0.1
"""Seconds between attempts while a process does not answer yet."""

SHARE = 0.01
"""Share of the traces that are recorded."""

LONGEST_SECONDS = 10.0
"""Timeout of a scrape."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The configuration of a process with metrics or traces."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


Watching = Callable[[], AbstractContextManager[Watched]]
"""Monitors within a block, in which one process has the configuration that it yields."""


@contextmanager
def nobody() -> Iterator[Watched]:
    """Yields a configuration with neither metrics nor traces."""
    yield Watched()


@contextmanager
def by_metrics() -> Iterator[Watched]:
    """Scrape `/metrics` every `SCRAPE_SECONDS`, the first time as soon as the process responds. Raises `BenchError` at
    the end if it never responded."""
    port, ended = free_port(), threading.Event()
    answered = 0

    def scrape() -> None:
        nonlocal answered
        pause = 0.0
        while not ended.wait(pause):
            pause = SCRAPE_SECONDS
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/metrics", timeout=LONGEST_SECONDS
                ) as answer:
                    answered += bool(answer.read())
            except OSError:
                # The process has not started to listen, or has ended.
                pause = POLL_SECONDS

    thread = threading.Thread(target=scrape, name="scrapes", daemon=True)
    thread.start()
    try:
        yield Watched(settings={"metrics_port": port})
    finally:
        ended.set()
        thread.join()
    if not answered:
        raise BenchError("/metrics was never answered.")


@contextmanager
def by_traces() -> Iterator[Watched]:
    """Run a collector for `SHARE` of all traces. Raises `MissingExtraError` without the extra `otel`."""
    extras.check("otel")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    thread = threading.Thread(target=server.serve_forever, name="collector", daemon=True)
    thread.start()
    try:
        yield _traced(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def by_nobody_at_the_address() -> Iterator[Watched]:
    """Send the same traces to a collector that is not running. Raises `MissingExtraError` without the extra `otel`."""
    extras.check("otel")
    yield _traced(free_port())


def _traced(port: int) -> Watched:
    return Watched(
        environment={
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(SHARE),
        }
    )


class _Collector(BaseHTTPRequestHandler):
    """Accepts all requests and stores nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
