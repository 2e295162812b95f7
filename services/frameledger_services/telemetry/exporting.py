"""Exports spans in batches, in a thread, to a collector. Lost spans are counted and logged once, with the reason."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from frameledger_services import logs
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics
from frameledger_services.url_masking import HIDDEN

LARGEST_BATCH = 512
"""Maximum spans in one export: OpenTelemetry's default."""

OF_BATCHES = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
"""OpenTelemetry's logger of each rejected batch."""

OF_SPANS = "opentelemetry.sdk._shared_internal"
"""OpenTelemetry's logger of each dropped span."""

MAX_COMPLAINTS = 2
"""The last of them may only say that it was tried often enough, and the one before it why each time failed, if the
exporter's timeout left time for several."""

MAX_CHARACTERS = 500

_ADDRESS = re.compile(r"\S*[/?@]\S*")
"""Matches a URL or a part of one: a collector's URL may have a key anywhere."""

_log = logs.get_logger("telemetry")


def processor(metrics: Metrics, most_waiting: int) -> CountedProcessor:
    """Returns a span processor that is configured by the environment (`OTEL_EXPORTER_OTLP_...`, `OTEL_BSP_...`)."""
    logging.getLogger(OF_SPANS).setLevel(logging.CRITICAL)
    complaints = Complaints()
    logger = logging.getLogger(OF_BATCHES)
    logger.handlers, logger.propagate = [complaints], False
    logger.setLevel(complaints.level)
    exporter = CountedExporter(OTLPSpanExporter(), metrics, complaints)
    return CountedProcessor(exporter, metrics, most_waiting)


class Complaints(logging.Handler):
    """Collects OpenTelemetry's log messages about failed exports, for our own log line without addresses."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = deque[str](maxlen=MAX_COMPLAINTS)

    def emit(self, record: logging.LogRecord) -> None:
        self._last.append(_ADDRESS.sub(HIDDEN, record.getMessage())[:MAX_CHARACTERS])

    def take(self) -> str | None:
        """Returns the messages since the last call; None if there are none."""
        self.acquire()
        try:
            said = " ".join(self._last)
            self._last.clear()
        finally:
            self.release()
        return said or None


class CountedExporter(SpanExporter):
    """Wraps an exporter and counts spans. Logs once when spans are lost, and once when exports succeed again."""

    def __init__(
        self, inner: SpanExporter, metrics: Metrics = NO_METRICS, complaints: Complaints | None = None
    ) -> None:
        """`complaints` collects the reasons why the inner exporter fails."""
        self._inner = inner
        self._complaints = complaints or Complaints()
        self._count_sent = metrics.counter(listed.SPANS, "sent")
        self._count_refused = metrics.counter(listed.SPANS, "refused")
        self.taken = 0
        """Spans taken from the queue."""

        self.sent = 0
        self._lost_since = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = self._inner.export(spans)
        reason = self._complaints.take()
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            self._count_sent.inc(len(spans))
            if self._lost_since:
                _log.info("telemetry.exports_again", lost=self._lost_since)
                self._lost_since = 0
            return result
        self._count_refused.inc(len(spans))
        if not self._lost_since:
            _log.warning("telemetry.not_exported", lost=len(spans), reason=reason)
        self._lost_since += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class CountedProcessor(BatchSpanProcessor):
    """A batch processor that counts spans that were not exported."""

    def __init__(self, exporter: CountedExporter, metrics: Metrics, most: int) -> None:
        # OpenTelemetry rejects a batch size larger than the queue, also if only one of them is set.
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
                    # The oldest waiting span is dropped.
                    self._dropped += 1
                    self._count_dropped.inc()
                self._ended += 1
        super().on_end(span)

    def missing(self) -> tuple[int, int]:
        """Returns the number of ended spans that were not exported, and of all ended spans."""
        return self._ended - self._exporter.sent, self._ended
