"""How spans leave: in batches, by a thread, to a collector that may be away. What is lost is counted, and said once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from frameledger_services import logs
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

LARGEST_BATCH = 512
"""Spans that are sent at once at most, as OpenTelemetry has it where nobody says otherwise."""

NOISY = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Loggers that say something for each batch that a collector does not take, and for each span that finds no room."""

_log = logs.get_logger("telemetry")


def processor(metrics: Metrics, most_waiting: int) -> CountedProcessor:
    """Returns what sends spans as the environment says (`OTEL_EXPORTER_OTLP_...`, `OTEL_BSP_...`)."""
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return CountedProcessor(CountedExporter(OTLPSpanExporter(), metrics), metrics, most_waiting)


class CountedExporter(SpanExporter):
    """Exports with another one, and counts. One line says that spans are lost, and one that they leave again."""

    def __init__(self, inner: SpanExporter, metrics: Metrics = NO_METRICS) -> None:
        self._inner = inner
        self._count_sent = metrics.counter(listed.SPANS, "sent")
        self._count_refused = metrics.counter(listed.SPANS, "refused")
        self.taken = 0
        """Spans that are not waiting any more."""

        self.sent = 0
        self._lost_since = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            self._count_sent.inc(len(spans))
            if self._lost_since:
                _log.info("telemetry.exports_again", lost=self._lost_since)
                self._lost_since = 0
            return result
        self._count_refused.inc(len(spans))
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

    def __init__(self, exporter: CountedExporter, metrics: Metrics, most: int) -> None:
        # OpenTelemetry refuses a batch that is larger than the queue, whoever set only one of the two.
        batch = most if most < LARGEST_BATCH else None
        super().__init__(exporter, max_queue_size=most, max_export_batch_size=batch)
        self._exporter = exporter
        self._most = most
        self._count_dropped = metrics.counter(listed.SPANS, "dropped")
        self._counting = threading.Lock()
        self._ended = self._dropped = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            with self._counting:
                waiting = self._ended - self._dropped - self._exporter.taken
                if waiting >= self._most:
                    # The oldest of those that wait gives way to this one.
                    self._dropped += 1
                    self._count_dropped.inc()
                self._ended += 1
        super().on_end(span)

    def missing(self) -> tuple[int, int]:
        """Returns how many spans that ended are not known to have left, and how many ended."""
        return self._ended - self._exporter.sent, self._ended
