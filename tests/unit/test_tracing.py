"""Spans are recorded if a provider is set, and are propagated in any case."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections import Counter

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from tests.bounds import IN_PROCESS
from tests.support.collector import collecting

from frameledger.record import Record
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.execute_tool import end_of, execute_tool
from frameledger_services.functions.execution import HandlerExecutor, NotBegun
from frameledger_services.projector.batch_span import batch_span
from frameledger_services.projector.decoded import decode_record
from frameledger_services.telemetry import exporting, otel, tracing
from frameledger_services.telemetry.exporting import CountedExporter, CountedProcessor
from frameledger_services.telemetry.message_spans import processing, sending, settling
from frameledger_services.telemetry.metrics_registry import ProcessMetrics
from frameledger_services.telemetry.provider import most_waiting

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"


@pytest.fixture
def unrecorded(monkeypatch):
    """A process without OpenTelemetry."""
    monkeypatch.setattr(tracing, "is_possible", lambda: False)


def recording(monkeypatch, **options):
    exporter, provider = InMemorySpanExporter(), TracerProvider(**options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "_tracer", provider.get_tracer("test"))
    return exporter


@pytest.fixture
def spans(monkeypatch):
    """The recorded spans of a process with a provider."""
    return recording(monkeypatch)


def test_without_opentelemetry_what_was_given_is_handed_on(unrecorded):
    assert tracing.current_traceparent() is None
    with tracing.start("a", "internal", parent=GIVEN) as outer:
        assert (outer.traceparent, outer.is_recording) == (GIVEN, False)
        assert tracing.current_traceparent() == GIVEN
        with tracing.start("b", "internal") as inner:
            assert inner.traceparent == GIVEN
        with processing("t", "g", None, {}) as of_another:
            assert (of_another.traceparent, tracing.current_traceparent()) == (None, None)
        with processing("t", "g", UNSAMPLED, {}, new_trace=True) as old:
            assert old.traceparent == UNSAMPLED
    assert tracing.current_traceparent() is None


def test_a_span_is_below_its_parent_and_what_is_published_in_it_belongs_to_it(spans):
    with tracing.start("a", "producer", parent=GIVEN, attributes={"x": 1, "y": None}) as span:
        handed_on = tracing.current_traceparent()
        assert span.is_recording
    (one,) = spans.get_finished_spans()
    assert (one.name, one.kind, dict(one.attributes)) == ("a", SpanKind.PRODUCER, {"x": 1})
    assert f"{one.context.trace_id:032x}" == TRACE
    assert f"{one.parent.span_id:016x}" == SPAN
    assert handed_on == f"00-{TRACE}-{one.context.span_id:016x}-01"
    assert tracing.current_traceparent() is None


def test_work_that_is_old_begins_a_trace_with_a_link(spans):
    with tracing.start("current", "internal"), processing("t", "g", GIVEN, {}, new_trace=True) as span:
        assert span.traceparent[3:35] != TRACE
    one, current = spans.get_finished_spans()
    assert one.parent is None
    assert one.context.trace_id != current.context.trace_id
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in one.links] == [
        f"{TRACE}-{SPAN}"
    ]


def test_a_message_without_a_trace_begins_one_whatever_is_current(spans):
    with tracing.start("of another message", "internal") as current, processing("t", "g", None, {}) as span:
        assert span.traceparent[3:35] != current.traceparent[3:35]
    assert spans.get_finished_spans()[0].links == ()


def test_what_is_not_sampled_stays_so_all_the_way(monkeypatch):
    spans = recording(monkeypatch)
    with tracing.start("a", "internal", parent=UNSAMPLED) as span:
        assert not span.is_recording
        assert span.traceparent[3:35] == TRACE
        assert not tracing.is_sampled(tracing.current_traceparent())
    assert spans.get_finished_spans() == ()
    spans = recording(monkeypatch, sampler=ParentBased(ALWAYS_OFF))
    with tracing.start("a", "internal") as span:
        assert tracing.current_traceparent() == span.traceparent
        assert not tracing.is_sampled(span.traceparent)
    assert spans.get_finished_spans() == ()


def test_an_error_is_named_and_not_quoted_and_a_cancellation_is_none(spans):
    with pytest.raises(ValueError, match="a secret"), tracing.start("a", "internal"):
        raise ValueError("a secret")
    with pytest.raises(asyncio.CancelledError), tracing.start("b", "internal"):
        raise asyncio.CancelledError
    failed, cancelled = spans.get_finished_spans()
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
    assert (dict(failed.attributes), failed.events) == ({"error.type": "ValueError"}, ())
    assert (cancelled.status.status_code, dict(cancelled.attributes)) == (StatusCode.UNSET, {})


def test_with_the_api_alone_what_was_given_is_handed_on(monkeypatch):
    monkeypatch.setattr(otel, "_tracer", trace.NoOpTracerProvider().get_tracer("test"))
    with tracing.start("a", "internal", parent=GIVEN, new_trace=True) as span:
        assert (span.traceparent, span.is_recording) == (GIVEN, False)
        assert tracing.current_traceparent() == GIVEN
    with tracing.start("a", "internal", parent=GIVEN) as span:
        assert span.traceparent == GIVEN


@pytest.mark.parametrize("nonsense", ["", "00", "é", GIVEN.upper(), "00-" + "0" * 32 + f"-{SPAN}-01"])
def test_a_traceparent_that_is_none_begins_a_trace(spans, nonsense):
    with sending("t", "ctx", 1, nonsense) as span:
        assert span.traceparent is not None
    (one,) = spans.get_finished_spans()
    assert one.parent is None


def test_attributes_after_the_end_are_nobody_s(spans):
    span = tracing.start("a", "internal")
    span.end()
    span.set("late", 1)
    span.fail("late")
    span.end()
    (one,) = spans.get_finished_spans()
    assert dict(one.attributes) == {}


CALL = CallAttempt(*("scope", "ctx", 3, 0, "call-1", "look", "{}", None, 1, "worker"), dispatched_by=None)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_s_own_spans_are_below_that_of_its_call(spans, is_async):
    async def looks():
        with tracing.start("its own", "internal"):
            raise KeyError("what it was asked")

    def looks_plainly():
        with tracing.start("its own", "internal"):
            raise KeyError("what it was asked")

    async def scenario():
        executor, over = HandlerExecutor(), asyncio.Event()
        span = execute_tool(CALL)

        def ended(how):
            end_of(span, how)
            over.set()

        with span.current():
            executor.start(
                looks if is_async else looks_plainly,
                *((), {}),
                is_async=is_async,
                name="look",
                may_begin=lambda: True,
                ended=ended,
            )
        assert tracing.current_traceparent() is None
        async with asyncio.timeout(IN_PROCESS):
            await over.wait()

    asyncio.run(scenario())
    inner, outer = spans.get_finished_spans()
    assert (inner.name, outer.name) == ("its own", "execute_tool look")
    assert inner.parent.span_id == outer.context.span_id
    assert outer.attributes["error.type"] == "KeyError"
    assert outer.attributes["gen_ai.tool.call.id"] == "call-1"
    assert "asked" not in repr((inner.to_json(), outer.to_json()))


def test_a_handler_that_did_not_begin_has_no_span(spans):
    end_of(execute_tool(CALL), NotBegun())
    assert spans.get_finished_spans() == ()


def frame(wire, traceparent, context_id="ctx"):
    headers = () if traceparent is None else (("traceparent", traceparent.encode()),)
    return decode_record(Record("t", 0, 1, context_id.encode(), json.dumps(wire).encode(), headers))


ANOTHER = f"00-{'a' * 32}-{'b' * 16}-01"
RUN = {"type": "LLMRunFrame"}


@pytest.mark.parametrize(
    ("batch", "parent", "links"),
    [
        ([], None, None),
        (
            [frame(RUN, None), frame(RUN, UNSAMPLED), frame({"type": "LLMTextFrame", "text": "a"}, GIVEN)],
            None,
            None,
        ),
        ([frame(RUN, GIVEN), frame(RUN, GIVEN), frame(RUN, None)], SPAN, 0),
        ([frame(RUN, GIVEN), frame(RUN, ANOTHER)], None, 2),
        ([frame(RUN, f"00-{number:032x}-{SPAN}-01") for number in range(1, 100)], None, 32),
    ],
)
def test_a_batch_has_one_span_if_a_frame_of_it_is_recorded_and_no_piece_of_text(spans, batch, parent, links):
    with batch_span("t", "projector", batch):
        pass
    found = spans.get_finished_spans()
    if links is None:
        assert found == ()
        return
    (one,) = found
    assert (one.parent and f"{one.parent.span_id:016x}") == parent
    assert len(one.links) == links
    assert one.attributes["messaging.batch.message_count"] == len(batch)


def test_a_frame_whose_trace_is_not_recorded_costs_one_comparison():
    """The budget of a projector is 60 us per frame."""
    entered: Counter[tuple[str, str]] = Counter()

    def profile(python_frame, event, _):
        if event == "call":
            entered[python_frame.f_globals["__name__"], python_frame.f_code.co_name] += 1

    batch = [frame(RUN, UNSAMPLED), frame(RUN, None)] * 500
    sys.setprofile(profile)
    try:
        span = batch_span("t", "projector", batch)
    finally:
        sys.setprofile(None)
    assert not span.is_recording
    assert entered.pop((tracing.__name__, "is_sampled")) == len(batch)
    assert sum(entered.values()) < 10, "nothing else is done for each of them"
    assert not any(module.startswith("opentelemetry") for module, _ in entered)


@pytest.mark.parametrize(
    ("flags", "is_recorded"),
    [
        ("00", False),
        ("01", True),
        ("03", True),
        ("02", False),
        ("0a", False),
        ("0b", True),
        ("ff", True),
        ("fe", False),
    ],
)
def test_the_lowest_bit_of_the_flags_says_whether_a_trace_is_recorded(flags, is_recorded):
    assert tracing.is_sampled(f"00-{TRACE}-{SPAN}-{flags}") is is_recorded


@pytest.mark.parametrize(
    "said",
    [
        GIVEN,
        UNSAMPLED,
        f"00-{TRACE}-{SPAN}-ff",
        f"01-{TRACE}-{SPAN}-01-more",
        "",
        "nothing",
        "\ud800",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
    ],
)
def test_what_is_handed_on_is_read_as_opentelemetry_reads_it(spans, said):
    expected = trace.get_current_span(
        TraceContextTextMapPropagator().extract({"traceparent": said}, context.Context())
    ).get_span_context()
    with tracing.start("a", "internal", new_trace=True, links=(said,)):
        pass
    (one,) = spans.get_finished_spans()
    assert [link.context for link in one.links] == ([expected] if expected.is_valid else [])


EVERYTHING = """
import importlib, pkgutil, sys
import frameledger_services
skipped = ("frameledger_services.telemetry.otel", "frameledger_services.telemetry.exporting")
# The SDK imports it from its version 2 on.
skipped += ("frameledger_services.providers.anthropic",)
for found in pkgutil.walk_packages(frameledger_services.__path__, "frameledger_services."):
    if found.name not in skipped and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as missing:
            # What is made for a framework imports it, and that is not here.
            assert (missing.name or "").partition(".")[0] not in ("frameledger_services", "opentelemetry"), missing
from frameledger_services.telemetry import provider
with provider.recording("test"):
    pass
assert {"frameledger_services.projector.service", "frameledger_services.functions.service"} <= sys.modules.keys()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.long
def test_without_an_endpoint_opentelemetry_is_not_even_imported():
    """Whatever modules of Frameledger a process imports, also after it could have recorded."""
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=True, env={"PATH": ""}
    )
    assert done.stdout.strip() == "[]"


def test_somebodys_answer_begins_a_trace_with_a_link_to_that_of_the_call(spans):
    with settling("talk", "call-1", "approve", GIVEN), sending("frames", "talk", 1, None):
        pass
    with settling("talk", "call-1", "approve", GIVEN, UNSAMPLED):
        pass
    sent, answered, *_ = spans.get_finished_spans()
    assert (answered.name, answered.parent) == ("settle_call approve", None)
    assert [f"{link.context.trace_id:032x}" for link in answered.links] == [TRACE]
    assert sent.parent.span_id == answered.context.span_id
    assert answered.attributes["gen_ai.tool.call.id"] == "call-1"


def test_an_answer_is_handed_on_as_it_was_asked_where_nobody_records(unrecorded):
    assert settling("talk", "call-1", "approve", GIVEN).traceparent is None
    assert settling("talk", "call-1", "approve", GIVEN, UNSAMPLED).traceparent == UNSAMPLED


class Collector:
    """An exporter that accepts batches while it is up, with a given delay."""

    def __init__(self):
        self.is_there = True
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def export(self, spans):
        self.asked.set()
        assert self.may_answer.wait(IN_PROCESS)
        return SpanExportResult.SUCCESS if self.is_there else SpanExportResult.FAILURE

    def shutdown(self):
        """Does nothing."""


def test_what_becomes_of_spans_is_counted(monkeypatch):
    def counted():
        return {
            outcome: metrics.registry.get_sample_value("frameledger_spans_total", {"outcome": outcome})
            for outcome in ("sent", "refused", "dropped")
        }

    metrics, collector = ProcessMetrics(), Collector()
    # Exports happen only when the test triggers them.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    spans = CountedProcessor(CountedExporter(collector, metrics), metrics, most_waiting())
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(spans)
    tracer = provider.get_tracer("test")
    assert counted() == {"sent": 0, "refused": 0, "dropped": 0}

    def ends(many):
        for _ in range(many):
            tracer.start_span("one").end()

    ends(3)
    spans.force_flush()
    assert counted() == {"sent": 3, "refused": 0, "dropped": 0}
    collector.is_there = False
    ends(2)
    spans.force_flush()
    assert counted() == {"sent": 3, "refused": 2, "dropped": 0}
    collector.asked.clear()
    collector.may_answer.clear()
    ends(8)
    assert collector.asked.wait(IN_PROCESS)
    ends(11)
    assert counted()["dropped"] == 3
    collector.may_answer.set()
    provider.shutdown()
    assert counted() == {"sent": 3, "refused": 18, "dropped": 3}
    assert spans.missing() == (21, 24)


@pytest.mark.regression("fault 187")
@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("%s/elsewhere", "code: 404, reason: Not Found"),
        ("127.0.0.1:4318", "No connection adapters were found"),
    ],
    ids=["of another path", "without a scheme"],
)
def test_why_spans_are_lost_is_logged_once(monkeypatch, caplog, endpoint, reason):
    with collecting() as collector:
        address = endpoint.replace("%s", collector.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
        spans = exporting.processor(ProcessMetrics(), most_waiting())
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(spans)
        for _ in range(2):
            provider.get_tracer("test").start_span("one").end()
            spans.force_flush()
        provider.shutdown()
    [logged] = [record.frameledger for record in caplog.records]
    assert (logged["event"], logged["lost"]) == ("telemetry.not_exported", 1)
    assert reason in logged["reason"]


@pytest.mark.regression("fault 195")
@pytest.mark.parametrize(
    "said",
    [
        "Max retries exceeded with url: /SECRET/v1/traces?key=SECRET (Caused by NewConnectionError)",
        "No connection adapters were found for 'user:SECRET@127.0.0.1:4318'",
        "Invalid URL 'http://user:SECRET@host:4318': it has a port",
    ],
)
def test_why_spans_are_lost_says_no_key_of_a_collector(said):
    complaints = exporting.Complaints()
    complaints.handle(logging.makeLogRecord({"msg": "Failed: %s", "args": (said,)}))
    kept = complaints.take() or ""
    assert kept.startswith("Failed: ")
    assert "SECRET" not in kept
    assert said.split()[0] in kept
    assert complaints.take() is None


@pytest.mark.parametrize(("said", "most"), [("", 2048), ("many", 2048), ("0", 2048), ("64", 64)])
def test_how_many_spans_wait_is_as_the_environment_says(monkeypatch, said, most):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", said)
    assert most_waiting() == most
