"""Recording spans in a process of ours: sampled, and sent to a collector by a thread in the background.

The variables are OpenTelemetry's own. Without `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`
nothing happens, and OpenTelemetry is not imported. A collector that is away costs spans and nothing else: they are
counted, and one line says so.
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

MOST_WAITING = "OTEL_BSP_MAX_QUEUE_SIZE"
MOST_WAITING_DEFAULT = 2048
"""Spans that wait to be sent at most, as OpenTelemetry has it; the oldest give way."""

LAST_SECONDS = 2.0
"""How long a process that ends waits for its last spans to leave."""


class _OnStandardError:
    """Says it where nothing is installed that logs: in an environment with the command line alone."""

    def warning(self, event: str, **fields: object) -> None:
        print(event, *(f"{name}={value}" for name, value in fields.items()), file=sys.stderr)


def _logger() -> Any:
    # A command that records nothing logs nothing, and does not import what logs.
    if find_spec("structlog") is None:
        return _OnStandardError()
    from frameledger_services import logs

    return logs.get_logger("telemetry")


def is_wanted() -> bool:
    """Returns whether the environment asks for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() not in {"otlp", ""}:
        return False
    return any(os.environ.get(name) for name in ENDPOINTS)


@contextmanager
def recording(service: str, metrics: Metrics = NO_METRICS) -> Iterator[None]:
    """Record the spans of this process, as service `frameledger-<service>` unless OTEL_SERVICE_NAME says another name,
    for a block that is all that it does. Does nothing if the environment asks for no traces. `metrics`: what becomes of
    the spans is counted there.

    A provider that somebody in this process has set already, such as a module of functions, is used as it is.
    """
    begun = _begin(service, metrics) if is_wanted() else None
    try:
        yield
    finally:
        if begun is not None:
            _end(*begun)


def most_waiting() -> int:
    """Returns how many spans wait at most, as the environment says it; what is no number there says nothing."""
    said = os.environ.get(MOST_WAITING, "").strip()
    return int(said) if said.isascii() and said.isdigit() and int(said) else MOST_WAITING_DEFAULT


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
    # The first span would import it, which takes as long as a batch, while somebody waits for that.
    importlib.import_module("frameledger_services.telemetry.otel")
    return provider, spans


def _resource(service: str) -> Resource:
    """Who we are, as far as the environment does not say it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": f"frameledger-{service}",
        "service.version": version("frameledger"),
        "service.instance.id": f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}",
    }
    said = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in ours.items() if name not in said})


def _end(provider: TracerProvider, spans: CountedProcessor) -> None:
    """Send the last spans, for `LAST_SECONDS` at most: OpenTelemetry would wait half a minute for a dead collector."""
    ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
    ending.start()
    ending.join(LAST_SECONDS)
    lost, ended = spans.missing()
    if lost:
        _log = _logger()
        _log.warning("telemetry.spans_lost", lost=lost, of=ended)
