"""Metrics scrapers and trace collectors that run beside the measured processes."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from frameledger_services import extras
from frameledger_services.bench.road.processes import BenchError

SCRAPE_SECONDS = 15.0
"""Scrape interval in seconds, as in the example configuration of Prometheus."""

LOOK_AGAIN_SECONDS = 0.1
"""Seconds between attempts while a process does not answer yet."""

SHARE = 0.01
"""Share of the traces that are recorded."""

LONGEST_SECONDS = 10.0
"""Timeout of a scrape."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The configuration of a process that is watched."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


Watching = Callable[[], AbstractContextManager[Watched]]
"""Begins to watch, for a block in which one process has what it yields."""


@contextmanager
def nobody() -> Iterator[Watched]:
    """Neither metrics nor traces."""
    yield Watched()


@contextmanager
def by_metrics() -> Iterator[Watched]:
    """`/metrics` is asked for every `SCRAPE_SECONDS`, and first as soon as somebody answers. Raises `BenchError` at the
    end if nobody did."""
    port, ended = _free_port(), threading.Event()
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
                # It has not begun yet, or has ended already.
                pause = LOOK_AGAIN_SECONDS

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
    """A collector takes `SHARE` of all traces. Raises `MissingExtraError` if nobody could send any."""
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
    """The same traces are sent to a collector that is dead. Raises `MissingExtraError` if nobody could send any."""
    extras.check("otel")
    yield _traced(_free_port())


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
        """Nothing: a bench prints its figures."""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
