"""How spans leave: in batches, by a thread, to a collector that may be away. What is lost is counted, and said once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from frameledger_services import logs

NOISY = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Loggers that say something for each batch that a collector does not take, and for each span that finds no room."""

_log = logs.get_logger("telemetry")


def processor() -> CountedProcessor:
    """Returns what sends spans as the environment says (`OTEL_EXPORTER_OTLP_...`, `OTEL_BSP_...`)."""
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return CountedProcessor(CountedExporter(OTLPSpanExporter()))


class CountedExporter(SpanExporter):
    """Exports with another one, and counts. One line says that spans are lost, and one that they leave again."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.sent = 0
        self.lost = 0
        self._lost_since = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            if self._lost_since:
                _log.info("telemetry.exports_again", lost=self._lost_since)
                self._lost_since = 0
            return result
        self.lost += len(spans)
        if not self._lost_since:
            _log.warning("telemetry.not_exported", lost=len(spans))
        self._lost_since += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class CountedProcessor(BatchSpanProcessor):
    """A batch processor that knows how many spans did not leave, for whatever reason."""

    def __init__(self, exporter: CountedExporter) -> None:
        super().__init__(exporter)
        self._exporter = exporter
        self._ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._ended += 1
        super().on_end(span)

    def missing(self) -> tuple[int, int]:
        """Returns how many spans that ended are not known to have left, and how many ended."""
        return self._ended - self._exporter.sent, self._ended
