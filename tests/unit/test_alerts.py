"""Alerts and dashboards use existing metrics. Each alert fires at its fault and at no other, and has a section with its
remedy."""

import json
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]  # MkDocs brings it
from tests.bounds import PROGRAM
from tests.support.metric_series import series_of

from frameledger_services.projector.metrics import ProjectorMetrics
from frameledger_services.telemetry.metrics import METRICS
from frameledger_services.telemetry.metrics_registry import ProcessMetrics
from frameledger_services.timekeeper.metrics import TimekeeperMetrics

TESTS = Path(__file__).resolve().parents[1]
INFRA = TESTS.parent / "infra"
ALERTS = INFRA / "alerts.yaml"
RULES = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
DASHBOARDS = runpy.run_path(str(INFRA / "grafana" / "dashboards.py"))
NAME = re.compile(r"\b(?:frameledger|gen_ai|http_server)_[a-z_]+\b")
PROMTOOL = os.environ.get("TEST_PROMTOOL") or shutil.which("promtool") or INFRA.parent / "build" / "promtool"

KNOWN = {name for metric in METRICS.values() for name in series_of(metric)}
LABELS = {label.name for metric in METRICS.values() for label in metric.labels}


class Case(NamedTuple):
    """Series with a value every 15 s: with one set the alert fires after twenty minutes, with the other it does not."""

    fires: dict[str, str]
    rests: dict[str, str]


def gauge(series, bad, good=0):
    return Case({series: f"{bad}x100"}, {series: f"{good}x100"})


def counter(series, bad="0+1x100", good="7x100"):
    return Case({series: bad}, {series: good})


G = "gen_ai_client_inference_duration_seconds_count"
TOOL = "gen_ai_execute_tool_duration_seconds_count"
LAG, FENCED = "frameledger_projection_lag_records", "frameledger_projector_fenced_total"
HEALTHY = {LAG: "0x100", FENCED: "0x100"}
"""What is collected of an idle installation; each case has these series too, unless it has others of these names."""

GONE = "0x40 stale"
"""A series whose target is no longer listed after ten minutes."""

CASES = {
    "FrameledgerDown": gauge('up{job="frameledger", instance="a"}', 0, 1),
    # A projector that is replaced, by one that is found within two minutes.
    "FrameledgerServiceMissing": Case({FENCED: GONE}, {FENCED: "0x72 stale"}),
    "FrameledgerBrokerAway": gauge('frameledger_ready{check="log", instance="a"}', 0, 1),
    "FrameledgerDatabaseAway": gauge('frameledger_ready{check="database", instance="a"}', 0, 1),
    "FrameledgerStandsStill": gauge('frameledger_ready{check="loop", instance="a"}', 0, 1),
    # Sometimes there are records to store: normal work.
    "FrameledgerProjectorsStopped": Case(
        {LAG: "3x100"},
        {LAG: "0 5 9 0 " * 25},
    ),
    "FrameledgerReadersWait": Case(
        {
            'frameledger_projector_visible_seconds_bucket{le="1"}': "0x100",
            'frameledger_projector_visible_seconds_bucket{le="2.5"}': "0+3x100",
            'frameledger_projector_visible_seconds_bucket{le="+Inf"}': "0+3x100",
        },
        {
            'frameledger_projector_visible_seconds_bucket{le="1"}': "0+3x100",
            'frameledger_projector_visible_seconds_bucket{le="2.5"}': "0+3x100",
            'frameledger_projector_visible_seconds_bucket{le="+Inf"}': "0+3x100",
        },
    ),
    "FrameledgerOutboxHeldBack": gauge("frameledger_outbox_oldest_seconds", 90, 2),
    "FrameledgerProjectorsFight": counter(FENCED, good="0 1 2 2x100"),
    "FrameledgerRecordsRejected": counter('frameledger_projector_rejected_total{code="no_type"}'),
    "FrameledgerConversationsParked": gauge("frameledger_contexts_parked", 1),
    "FrameledgerCallsAmbiguous": gauge("frameledger_calls_ambiguous", 1),
    # The series starts with the first timeout.
    "FrameledgerFunctionHangs": Case(
        {TOOL + '{gen_ai_tool_name="book", error_type="timeout"}': "_x70 1x30"},
        {TOOL + '{gen_ai_tool_name="book", error_type="timeout"}': "1x100"},
    ),
    "FrameledgerFunctionFails": Case(
        {
            'frameledger_calls_total{function="book", status="failed"}': "0+1x100",
            'frameledger_calls_total{function="book", status="done"}': "0+2x100",
        },
        {
            'frameledger_calls_total{function="book", status="failed"}': "0+1x100",
            'frameledger_calls_total{function="book", status="done"}': "0+20x100",
        },
    ),
    "FrameledgerProviderRefuses": Case(
        {G + '{gen_ai_provider_name="openai", error_type="provider_refused"}': "_x78 1x30"},
        {G + '{gen_ai_provider_name="openai", error_type="provider_refused"}': "1x100"},
    ),
    "FrameledgerProviderFails": Case(
        {
            G + '{gen_ai_provider_name="openai", error_type="provider_unavailable"}': "0+1x100",
            G + '{gen_ai_provider_name="openai", error_type=""}': "0+2x100",
        },
        # Interruptions by users are not failures.
        {
            G + '{gen_ai_provider_name="openai", error_type="cancelled"}': "0+5x100",
            G + '{gen_ai_provider_name="openai", error_type=""}': "0+2x100",
        },
    ),
    "FrameledgerSlowToAnswer": Case(
        {
            'frameledger_run_first_text_seconds_bucket{le="10"}': "0x100",
            'frameledger_run_first_text_seconds_bucket{le="30"}': "0+3x100",
            'frameledger_run_first_text_seconds_bucket{le="+Inf"}': "0+3x100",
        },
        {
            'frameledger_run_first_text_seconds_bucket{le="10"}': "0+3x100",
            'frameledger_run_first_text_seconds_bucket{le="30"}': "0+3x100",
            'frameledger_run_first_text_seconds_bucket{le="+Inf"}': "0+3x100",
        },
    ),
    "FrameledgerWorkersBusy": Case(
        {
            'frameledger_work_slots{service="booking", state="busy"}': "10x100",
            'frameledger_work_slots{service="booking", state="free"}': "0x100",
        },
        {
            'frameledger_work_slots{service="booking", state="busy"}': "5x100",
            'frameledger_work_slots{service="booking", state="free"}': "5x100",
        },
    ),
    "FrameledgerLeasesLost": counter('frameledger_work_leases_lost_total{service="booking"}'),
    "FrameledgerNobodyAnswers": Case(
        {'frameledger_timekeeper_settled_total{rule="run_unclaimed"}': "0+1x100"},
        # A user who speaks and then stops: normal.
        {'frameledger_timekeeper_settled_total{rule="user_stop"}': "0+1x100"},
    ),
    "FrameledgerGatewayFails": Case(
        {
            'http_server_request_duration_seconds_count{http_response_status_code="503"}': "0+1x100",
            'http_server_request_duration_seconds_count{http_response_status_code="200"}': "0+3x100",
        },
        {
            'http_server_request_duration_seconds_count{http_response_status_code="404"}': "0+3x100",
            'http_server_request_duration_seconds_count{http_response_status_code="200"}': "0+3x100",
        },
    ),
}


def queries():
    """Returns all queries of alerts and dashboards by their place."""
    for name, rule in RULES.items():
        yield name, rule["expr"]
    for file in sorted((INFRA / "grafana").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{file.name}: {panel['title']}", target["expr"]


def test_alerts_and_dashboards_name_metrics_and_labels_that_there_are():
    found = list(queries())
    assert len(found) > 50
    for place, query in found:
        names = set(NAME.findall(query)) - LABELS
        assert names or query.startswith("up{"), place
        assert names <= KNOWN, place
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))
        labels |= {one.strip() for group in re.findall(r"by \(([^)]*)\)", query) for one in group.split(",")}
        assert labels - {"", "le", "job", "instance"} <= LABELS, place


@pytest.mark.parametrize("name", DASHBOARDS["DASHBOARDS"])
def test_a_dashboard_is_what_its_program_writes(name):
    text = (INFRA / "grafana" / f"{name}.json").read_text(encoding="utf-8")
    assert text == DASHBOARDS["text"](name), "run: python infra/grafana/dashboards.py"


def test_everything_that_is_counted_is_on_a_dashboard():
    shown = {name for _, query in queries() for name in NAME.findall(query)}
    missing = {metric.name for metric in METRICS.values() if not shown & set(series_of(metric))}
    # Their prices differ by provider; the cost is an SQL query (infra/queries.md).
    assert missing == {
        "gen_ai_client_inference_usage_cache_read_input_tokens_total",
        "gen_ai_client_inference_usage_cache_write_input_tokens_total",
        "gen_ai_client_inference_usage_reasoning_output_tokens_total",
    }


def test_each_alert_has_a_section_that_says_what_to_do():
    page = (INFRA / "operations.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (Frameledger\w+)\n\n(.+?)(?=^##|\Z)", page, re.M | re.S))
    assert list(sections) == list(RULES)
    for name, rule in RULES.items():
        assert rule["annotations"]["runbook"] == f"operations.md#{name.lower()}"
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert "**Do**" in sections[name], name


FAULTS = {
    "FrameledgerDown": None,  # `up` is Prometheus' own: a process that is gone counts nothing
    "FrameledgerServiceMissing": None,  # the same
    "FrameledgerBrokerAway": "a_broker_that_is_away",
    "FrameledgerDatabaseAway": "a_database_that_is_away",
    "FrameledgerStandsStill": "a_loop_that_stands_still",
    "FrameledgerProjectorsStopped": "while_no_projector_runs",
    "FrameledgerReadersWait": "while_no_projector_runs",
    "FrameledgerOutboxHeldBack": "an_effect_that_waits_in_the_outbox",
    "FrameledgerProjectorsFight": "a_projector_from_whom_another_one_takes",
    "FrameledgerRecordsRejected": "bytes_that_are_no_frame",
    "FrameledgerConversationsParked": "a_conversation_that_cannot_be_folded",
    "FrameledgerCallsAmbiguous": "a_function_that_hangs",
    "FrameledgerFunctionHangs": "a_function_that_hangs",
    "FrameledgerFunctionFails": "a_function_that_fails",
    "FrameledgerProviderRefuses": "a_key_that_is_wrong",
    "FrameledgerProviderFails": "a_key_that_is_wrong",
    "FrameledgerSlowToAnswer": "an_answer_is_counted_with_the_time",
    "FrameledgerWorkersBusy": "slots_that_are_busy",
    "FrameledgerLeasesLost": "a_worker_that_is_judged_dead",
    "FrameledgerNobodyAnswers": "a_run_that_nobody_takes",
    "FrameledgerGatewayFails": "a_database_that_is_away",
}
"""The test of `integration/test_alert_faults.py` that makes the fault of each alert, by how its name begins."""


def test_the_fault_of_each_alert_is_made_on_real_servers():
    made = re.findall(
        r"^def test_(\w+)", (TESTS / "integration" / "test_alert_faults.py").read_text(encoding="utf-8"), re.M
    )
    assert list(FAULTS) == list(RULES)
    for alert, begins in FAULTS.items():
        assert begins is None or [name for name in made if name.startswith(begins)], alert


@pytest.mark.regression("gateway 80")
def test_each_service_that_every_installation_needs_is_missed_by_a_series_that_it_always_has():
    """A target that is no longer listed has no `up`: only the absence of its series can be seen."""
    missed = re.findall(r'absent\((\w+)\), "service", "(\w+)"', RULES["FrameledgerServiceMissing"]["expr"])
    assert sorted(service for _, service in missed) == ["projector", "timekeeper"]
    pages = {"projector": ProjectorMetrics, "timekeeper": TimekeeperMetrics}
    for series, service in missed:
        assert METRICS[series].of == service
        assert not METRICS[series].labels
        begun = ProcessMetrics()
        pages[service](begun)
        assert begun.registry.get_sample_value(series) == 0


def promtool(folder, tests):
    """Have promtool evaluate the alerts over series, and compare."""
    if not Path(PROMTOOL).exists():
        pytest.skip("There is no promtool: `make promtool` builds it, with Go; or TEST_PROMTOOL names one.")
    file = folder / "alerts.json"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": tests}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", file], capture_output=True, text=True, timeout=PROGRAM, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def firing(name, series, by, expected):
    """A test of promtool: of all alerts only those with these labels fire after twenty minutes, each once."""
    return {
        "interval": "15s",
        "name": name,
        "input_series": [{"series": one, "values": values} for one, values in (HEALTHY | series).items()],
        "promql_expr_test": [
            {
                "expr": f'count by ({by}) (ALERTS{{alertstate="firing"}})',
                "eval_time": "20m",
                "exp_samples": [{"labels": one, "value": 1} for one in expected],
            }
        ],
    }


def test_promtool_lets_each_alert_fire_at_its_fault_and_at_nothing_else(tmp_path):
    assert list(CASES) == list(RULES)
    promtool(
        tmp_path,
        [
            firing(
                f"{name} {'fires' if fires else 'rests'}",
                series,
                "alertname",
                [f'{{alertname="{name}"}}'] if fires else [],
            )
            for name, case in CASES.items()
            for fires, series in ((True, case.fires), (False, case.rests))
        ],
    )


@pytest.mark.regression("gateway 80")
@pytest.mark.parametrize(
    ("gone", "missing"),
    [({LAG}, ["timekeeper"]), ({FENCED}, ["projector"]), ({LAG, FENCED}, ["projector", "timekeeper"])],
    ids=["timekeeper", "projector", "both"],
)
def test_promtool_names_each_service_that_is_no_longer_listed(tmp_path, gone, missing):
    """Also if it was the last one, and nothing at all is collected."""
    expected = [f'{{alertname="FrameledgerServiceMissing", service="{one}"}}' for one in missing]
    promtool(tmp_path, [firing("missing", dict.fromkeys(gone, GONE), "alertname, service", expected)])
