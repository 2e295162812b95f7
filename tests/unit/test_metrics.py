"""The list of metrics, and the metrics that a process serves."""

import json
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.bounds import ONE_ANSWER
from tests.support.metric_series import series_of

from frameledger_services.telemetry import metrics, ops_server
from frameledger_services.telemetry.health import Health
from frameledger_services.telemetry.metric_types import MAX_NAMES, OTHER, Counter, Gauge, Histogram
from frameledger_services.telemetry.metrics import METRICS
from frameledger_services.telemetry.metrics_recorder import NO_METRICS
from frameledger_services.telemetry.metrics_registry import ProcessMetrics

NEVER = {"context", "context_id", "conversation", "run", "run_id", "call", "tool_call_id", "worker", "token"}


def samples(counted):
    text = prometheus_client.generate_latest(counted.registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_name_says_what_it_is(metric):
    assert re.fullmatch(r"(frameledger|gen_ai|http_server)_[a-z_]+", metric.name)
    assert isinstance(metric, Counter | Gauge | Histogram)
    assert metric.name.endswith("_total") == isinstance(metric, Counter)
    if metric.unit:
        assert metric.unit in metric.name
    assert metric.meaning.endswith(".")
    assert NEVER.isdisjoint(label.name for label in metric.labels)
    assert all(label.values or label.open_to for label in metric.labels)
    if isinstance(metric, Histogram):
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_all_of_them_can_be_counted_with_in_one_process():
    counted = ProcessMetrics()
    for metric in METRICS.values():
        values = [label.values[0] if label.values else "one" for label in metric.labels]
        match metric:
            case Counter():
                counted.counter(metric, *values).inc(2)
            case Gauge():
                counted.gauge(metric, *values).set(2)
            case Histogram():
                counted.histogram(metric, *values).observe(2)
    names = {name for name, _ in samples(counted)}
    assert {name for metric in METRICS.values() for name in series_of(metric)} <= names
    assert not [name for name in names if name.endswith("_created")]


def test_series_of_closed_lists_are_there_before_anything_happened():
    counted = ProcessMetrics()
    counted.counter(metrics.WORK_CLAIMS, "booking", "run", "new")
    counted.counter(metrics.RUNS, "ended")
    found = samples(counted)
    assert found["frameledger_runs_total", (("status", "failed"),)] == 0
    claims = [labels for name, labels in found if name == "frameledger_work_claims_total"]
    assert claims == [(("how", "new"), ("kind", "run"), ("service", "booking"))]


def test_what_is_declared_is_on_the_page_before_anything_happened():
    counted = ProcessMetrics()
    counted.declare(metrics.TOOL_DURATION, metrics.RUNS)
    text = prometheus_client.generate_latest(counted.registry).decode()
    assert "# TYPE gen_ai_execute_tool_duration_seconds histogram" in text
    assert samples(counted)["frameledger_runs_total", (("status", "ended"),)] == 0


def test_what_is_not_on_a_list_is_other():
    counted = ProcessMetrics()
    counted.counter(metrics.PROJECTOR_FRAMES, "SomebodysFrame", "unknown").inc()
    labels = (("outcome", "unknown"), ("type", OTHER))
    assert samples(counted)["frameledger_projector_frames_total", labels] == 1


def test_a_process_has_fifty_models_and_the_others_are_one():
    counted = ProcessMetrics()
    for number in range(MAX_NAMES + 20):
        # Twice: a value keeps its name.
        counted.histogram(metrics.RUN_FIRST_TEXT, f"model-{number}").observe(1)
        counted.histogram(metrics.RUN_FIRST_TEXT, f"model-{number}").observe(1)
    found = {
        dict(labels)["model"]: value
        for (name, labels), value in samples(counted).items()
        if name == "frameledger_run_first_text_seconds_count"
    }
    assert len(found) == MAX_NAMES + 1
    assert found["model-0"] == 2
    assert found[OTHER] == 40


def test_nothing_is_counted_where_nobody_asks():
    NO_METRICS.counter(metrics.PROJECTOR_FENCED).inc()
    NO_METRICS.gauge(metrics.RUNS_OPEN).set(1)
    NO_METRICS.histogram(metrics.PUBLISH, "ok").observe(1)
    NO_METRICS.declare(metrics.CALLS)
    NO_METRICS.watch(metrics.GATEWAY_STREAMS, dict)
    assert not [one for one in prometheus_client.REGISTRY.collect() if one.name.startswith("frameledger")]


def test_two_of_ours_in_one_program_do_not_meet_and_one_registry_may_be_given_to_both():
    first, second = ProcessMetrics(), ProcessMetrics()
    first.counter(metrics.PROJECTOR_FENCED).inc()
    second.counter(metrics.PROJECTOR_FENCED).inc()
    theirs = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("theirs", "Of the program.", registry=theirs).inc()
    shared = ProcessMetrics(theirs)
    shared.counter(metrics.PROJECTOR_FENCED).inc()
    shared.counter(metrics.PROJECTOR_FENCED).inc()
    assert samples(first)["frameledger_projector_fenced_total", ()] == 1
    found = samples(shared)
    assert found["frameledger_projector_fenced_total", ()] == 2
    assert found["theirs_total", ()] == 1


def test_a_gauge_that_is_watched_is_what_it_is_when_somebody_asks():
    counted = ProcessMetrics()
    now: dict[tuple[str, ...], float] = {(): 1.0}
    counted.watch(metrics.GATEWAY_STREAMS, lambda: now)
    assert samples(counted)["frameledger_gateway_streams", ()] == 1
    now[()] = 7
    assert samples(counted)["frameledger_gateway_streams", ()] == 7

    def broken():
        raise RuntimeError("dictionary changed size during iteration")

    counted.watch(metrics.GATEWAY_STREAMS, broken)
    assert ("frameledger_gateway_streams", ()) not in samples(counted)
    counted.watch(metrics.GATEWAY_STREAMS, lambda: {(): 3})
    assert samples(counted)["frameledger_gateway_streams", ()] == 3


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=ONE_ANSWER) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_metrics_and_health_are_served_in_threads_beside_the_loop():
    counted, health = ProcessMetrics(), Health({})
    with ops_server.serving("127.0.0.1", 0, counted, health) as port:
        status, text = get(port, "/metrics")
        assert status == 200
        assert re.search(r'^frameledger_build_info\{fold_version="\d+",version=".+"\} 1.0$', text, re.M)
        assert get(port, "/livez")[0] == 200
        # No event loop is running.
        assert json.loads(get(port, "/readyz")[1]) == {"ready": False, "checks": {"loop": "It does not run."}}
        assert get(port, "/")[0] == 404
        with pytest.raises(
            ops_server.OpsAddressError, match=f"127.0.0.1:{port}: .*FRAMELEDGER_METRICS_PORT to another"
        ):
            ops_server.serving("127.0.0.1", port, counted, health).__enter__()
    assert not [one for one in threading.enumerate() if one.name == "frameledger ops"]


def test_the_closed_lists_have_all_that_the_code_can_say():
    services = Path(metrics.__file__).parents[1]
    rule = re.compile(r'"((?:run|call|waiting|bot)_[a-z_]+|user_stop|final_words)"')
    settled = set(rule.findall((services / "timekeeper" / "settling.py").read_text(encoding="utf-8")))
    assert settled == set(metrics.RULES)
    said = "".join(path.read_text(encoding="utf-8") for path in (services / "projector").glob("*.py"))
    codes = set(re.findall(r'Unstorable\("(\w+)"', said))
    codes |= set(re.findall(r'self\._dead_letter\(\s*[\w.]+,\s*"(\w+)"', said))
    assert codes
    assert codes <= set(metrics.PROJECTOR_REJECTED.labels[0].values)
    declared = (services / "store" / "tables").glob("*.py")
    tables = "".join(path.read_text(encoding="utf-8") for path in declared)
    statuses = set(
        re.findall(r"'(\w+)'", tables[tables.index("\"status IN ('requested'") :].split(")", 1)[0])
    )
    assert statuses - {"requested", "open", "noted"} <= set(metrics.RUNS.labels[0].values)
    outcomes = set(re.findall(r"'(\w+)'", tables[tables.index('"outcome IN (') :].split(")", 1)[0]))
    assert outcomes == set(metrics.PROJECTOR_FRAMES.labels[1].values)
    kinds = set(re.findall(r"'(\w+)'", tables[tables.index("\"kind IN ('effect'") :].split(")", 1)[0]))
    assert kinds == set(metrics.OUTBOX_ROWS.labels[0].values)
