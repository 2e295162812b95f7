"""A small HTTP server for monitoring: `/metrics`, `/livez` and `/readyz`.

It responds in its own threads, also while the event loop of the process is blocked."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import prometheus_client

from frameledger.errors import ConfigurationError
from frameledger_services.telemetry.health import Health
from frameledger_services.telemetry.metrics_registry import ProcessMetrics

CLIENT_SECONDS = 10.0
"""Timeout of a client's request."""

POLL_SECONDS = 0.1
"""Interval at which the server checks whether to stop."""

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
App = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class OpsAddressError(ConfigurationError):
    """`/metrics` cannot be served at its address. The message has the reason.

    Remedy: Set `FRAMELEDGER_METRICS_HOST` and `FRAMELEDGER_METRICS_PORT` to a free address of this machine; each
    process needs its own port.
    """


@contextmanager
def serving(host: str, port: int, metrics: ProcessMetrics, health: Health) -> Iterator[int]:
    """Run the server within the block. Yields the port; port 0 selects a free one. Raises `OpsAddressError`."""
    server_class = _ServerV6 if ":" in host else _Server
    try:
        server = make_server(host, port, app(metrics, health), server_class, _Handler)
    except OSError as error:
        raise OpsAddressError(
            f"`/metrics` cannot be served at {host}:{port}: {error.strerror}. Set FRAMELEDGER_METRICS_HOST or "
            "FRAMELEDGER_METRICS_PORT to another address: each process needs its own port."
        ) from error
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_SECONDS,), name="frameledger ops", daemon=True
    )
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def app(metrics: ProcessMetrics, health: Health) -> App:
    """Returns the server's WSGI application."""
    exposition = prometheus_client.make_wsgi_app(metrics.registry)

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _json(environ, start_response, "405 Method Not Allowed", {"error": "Only GET is allowed."})
        body: dict[str, object]
        match environ["PATH_INFO"]:
            case "/metrics":
                response: Iterable[bytes] = exposition(environ, start_response)
                return response
            case "/livez":
                live = health.is_live
                body = {"live": live, "seconds_since_tick": round(health.seconds_since_tick(), 3)}
                return _json(environ, start_response, _status(live), body)
            case "/readyz":
                found_now = health.readiness()
                body = {"ready": found_now.is_ready, "checks": dict(found_now.checks)}
                return _json(environ, start_response, _status(found_now.is_ready), body)
            case _:
                body = {"error": "Not found. Available: /metrics, /livez, /readyz."}
                return _json(environ, start_response, "404 Not Found", body)

    return answer


def _status(is_well: bool) -> str:
    return "200 OK" if is_well else "503 Service Unavailable"


def _json(environ: dict[str, Any], start_response: StartResponse, status: str, body: object) -> list[bytes]:
    data = json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [data]


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Not `HTTPServer.server_bind`, which looks up the host name and can block.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: Prometheus sends a request every few seconds."""
