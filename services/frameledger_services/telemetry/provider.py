"""Records spans in Frameledger's own processes: sampled, and exported to a collector by a background thread.

It is configured by OpenTelemetry's own variables. Without `OTEL_EXPORTER_OTLP_ENDPOINT` or
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, nothing is recorded and this module does not import OpenTelemetry (Anthropic's SDK
imports its API anyway). If the collector is unreachable, spans are lost, counted and logged once; nothing else is
affected.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from frameledger_services import extras
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from frameledger_services.telemetry.exporting import CountedProcessor

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"

MAX_WAITING = "OTEL_BSP_MAX_QUEUE_SIZE"
MAX_WAITING_DEFAULT = 2048
"""Maximum waiting spans: OpenTelemetry's default. The oldest are dropped."""

LAST_SECONDS = 2.0
"""How long a stopping process waits for its last export."""


class _OnStandardError:
    """Replaces the logger if structlog is not installed, as in an environment with only the command line."""

    def warning(self, event: str, **fields: object) -> None:
        print(event, *(f"{name}={value}" for name, value in fields.items()), file=sys.stderr)


def _logger() -> Any:
    # A command that records nothing logs nothing and does not import structlog.
    if find_spec("structlog") is None:
        return _OnStandardError()
    from frameledger_services import logs

    return logs.get_logger("telemetry")


def is_wanted() -> bool:
    """Returns whether the environment configures traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() not in {"otlp", ""}:
        return False
    return any(os.environ.get(name) for name in ENDPOINTS)


@contextmanager
def recording(service: str, metrics: Metrics = NO_METRICS) -> Iterator[None]:
    """Record the spans of this process within the block. The service is `frameledger-<service>` unless
    OTEL_SERVICE_NAME is set. Does nothing if the environment does not configure traces. `metrics` counts the spans by
    outcome.

    If a module of this process has already set a tracer provider, that one is used.
    """
    started = _begin(service, metrics) if is_wanted() else None
    try:
        yield
    finally:
        if started is not None:
            _end(*started)


def most_waiting() -> int:
    """Returns the maximum number of waiting spans from the environment; values that are not numbers are ignored."""
    value = os.environ.get(MAX_WAITING, "").strip()
    return int(value) if value.isascii() and value.isdigit() and int(value) else MAX_WAITING_DEFAULT


def _begin(service: str, metrics: Metrics) -> tuple[TracerProvider, CountedProcessor] | None:
    if not extras.is_installed("otel"):
        _log = _logger()
        _log.warning("telemetry.not_installed", install="pip install 'frameledger[otel]'")
        return None
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), PROTOCOL)
    if protocol != PROTOCOL:
        _log = _logger()
        _log.warning("telemetry.protocol_not_spoken", asked=protocol, spoken=PROTOCOL)
        return None
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    from frameledger_services.telemetry.exporting import processor

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return None
    provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
    spans = processor(metrics, most_waiting())
    provider.add_span_processor(spans)
    trace.set_tracer_provider(provider)
    # Otherwise the first span imports it, which takes as long as a batch.
    importlib.import_module("frameledger_services.telemetry.otel")
    return provider, spans


def _resource(service: str) -> Resource:
    """Returns the resource attributes of this process; those of the environment take precedence."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": f"frameledger-{service}",
        "service.version": version("frameledger"),
        "service.instance.id": f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}",
    }
    detected = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in ours.items() if name not in detected})


def _end(provider: TracerProvider, spans: CountedProcessor) -> None:
    """Export the last spans, for at most `LAST_SECONDS`: OpenTelemetry would wait 30 s for a dead collector."""
    ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
    ending.start()
    ending.join(LAST_SECONDS)
    lost, ended = spans.missing()
    if lost:
        _log = _logger()
        _log.warning("telemetry.spans_lost", lost=lost, of=ended)
