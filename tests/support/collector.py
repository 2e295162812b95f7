"""A collector of traces that keeps the received spans: OTLP over HTTP, as protobuf."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from tests.bounds import PROGRAM

Told = Callable[[Sequence["Received"]], bool]


@dataclass(frozen=True)
class Received:
    """A received span."""

    service: str
    """`service.name`."""

    instance: str
    """`service.instance.id`: one for each process."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[str, ...]
    """As `trace_id-span_id`."""

    kind: str
    status: int
    attributes: Mapping[str, Any]
    events: int

    @property
    def plain(self) -> str:
        """The name without the topic prefix of the test."""
        return re.sub(r" [\w-]+\.", " ", self.name)


@dataclass
class Collector:
    """The spans received so far."""

    endpoint: str
    spans: list[Received] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def environment(self) -> dict[str, str]:
        """Returns the environment of a process that sends its spans here without delay."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20"}

    def until(self, told: Told) -> list[Received]:
        """Returns all spans once they satisfy this condition."""
        end = time.monotonic() + PROGRAM
        with self.changed:
            while not told(self.spans):
                left = end - time.monotonic()
                assert left > 0, "\n".join(f"{one.service}: {one.name} {one.trace_id}" for one in self.spans)
                self.changed.wait(left)
            return list(self.spans)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Yields a collector on a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    collector = server.collector = Collector(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        asked = ExportTraceServiceRequest.FromString(body)
        collector: Collector = self.server.collector  # type: ignore[attr-defined]
        with collector.changed:
            collector.spans += _received(asked)
            collector.changed.notify_all()
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


def _received(asked: ExportTraceServiceRequest) -> Iterator[Received]:
    for of_resource in asked.resource_spans:
        resource = _values(of_resource.resource.attributes)
        for scope in of_resource.scope_spans:
            for one in scope.spans:
                yield Received(
                    resource.get("service.name", ""),
                    resource.get("service.instance.id", ""),
                    one.name,
                    one.trace_id.hex(),
                    one.span_id.hex(),
                    one.parent_span_id.hex(),
                    tuple(f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in one.links),
                    one.SpanKind.Name(one.kind).removeprefix("SPAN_KIND_").lower(),
                    one.status.code,
                    _values(one.attributes),
                    len(one.events),
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)
