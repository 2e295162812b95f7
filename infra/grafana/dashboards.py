"""The two dashboards, written as Grafana imports them: `road.json` and `work.json` beside this file.

What a panel says about itself is what the list of metrics says. To change one, change it here and run this program;
`tests/unit/test_alerts.py` compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from frameledger_services.telemetry.metric_types import Histogram, Metric
from frameledger_services.telemetry.metrics import METRICS

HERE = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 12, 8


class Panel(NamedTuple):
    """One panel: queries of one metric, each with its legend."""

    title: str
    metric: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"


def rate(metric: str, *by: str) -> tuple[str, str]:
    """What happens in a second, by these labels."""
    return f"sum by ({', '.join(by)}) (rate({metric}[$__rate_interval]))", _legend(by)


def now(metric: str, *by: str) -> tuple[str, str]:
    """What there is in all processes."""
    return f"sum by ({', '.join(by)}) ({metric})", _legend(by)


def newest(metric: str, *by: str) -> tuple[str, str]:
    """The highest of all processes."""
    return f"max by ({', '.join(by)}) ({metric})", _legend(by)


def quantiles(metric: str, *by: str) -> list[tuple[str, str]]:
    """How long half of them took at most, and all but one of twenty."""
    return [
        (
            f"histogram_quantile({of}, sum by ({', '.join(('le', *by))}) "
            f"(rate({metric}_bucket[$__rate_interval])))",
            f"p{of * 100:g} {_legend(by)}".strip(),
        )
        for of in (0.5, 0.95)
    ]


def _legend(by: Sequence[str]) -> str:
    return " ".join("{{" + label + "}}" for label in by)


P = "frameledger_projector_"
ROAD = (
    Panel("Ready", "frameledger_ready", [("min by (check) (frameledger_ready)", "{{check}}")], kind="stat"),
    Panel(
        "Lag in records",
        "frameledger_projection_lag_records",
        [newest("frameledger_projection_lag_records")],
        kind="stat",
    ),
    Panel("Frames by outcome", f"{P}frames_total", [rate(f"{P}frames_total", "outcome")], "cps"),
    Panel("Frames by type", f"{P}frames_total", [rate(f"{P}frames_total", "type")], "cps"),
    Panel("End-to-end latency", f"{P}visible_seconds", quantiles(f"{P}visible_seconds"), "s"),
    Panel(
        "Stages of a batch, p95",
        f"{P}batch_duration_seconds",
        quantiles(f"{P}batch_duration_seconds", "stage")[1:],
        "s",
    ),
    Panel("Frames per commit", f"{P}batch_frames", quantiles(f"{P}batch_frames")),
    Panel("Lag by partition, records", f"{P}lag_records", [newest(f"{P}lag_records", "partition")]),
    Panel("Lag by partition, time", f"{P}lag_seconds", [newest(f"{P}lag_seconds", "partition")], "s"),
    Panel("Cached conversations", f"{P}heads_cached", [now(f"{P}heads_cached")]),
    Panel("Loaded conversations", f"{P}head_loads_total", [rate(f"{P}head_loads_total")], "cps"),
    Panel("Rejected", f"{P}rejected_total", [rate(f"{P}rejected_total", "code")], "cps"),
    Panel("Duplicates", f"{P}duplicates_total", [rate(f"{P}duplicates_total")], "cps"),
    Panel("Forwarded", f"{P}forwarded_total", [rate(f"{P}forwarded_total")], "cps"),
    Panel("Unknown types", f"{P}unknown_types_total", [rate(f"{P}unknown_types_total")], "cps"),
    Panel("Fenced", f"{P}fenced_total", [rate(f"{P}fenced_total")], "cps"),
    Panel("Outbox", "frameledger_outbox_rows", [newest("frameledger_outbox_rows", "kind")]),
    Panel(
        "Oldest in the outbox",
        "frameledger_outbox_oldest_seconds",
        [newest("frameledger_outbox_oldest_seconds")],
        "s",
    ),
    Panel(
        "Sent from the outbox",
        "frameledger_outbox_sent_total",
        [rate("frameledger_outbox_sent_total", "kind")],
        "cps",
    ),
    Panel(
        "Publish, duration",
        "frameledger_publish_seconds",
        quantiles("frameledger_publish_seconds", "result"),
        "s",
    ),
    Panel(
        "HTTP by route, p95",
        "http_server_request_duration_seconds",
        quantiles("http_server_request_duration_seconds", "http_route")[1:],
        "s",
    ),
    Panel(
        "HTTP by status",
        "http_server_request_duration_seconds",
        [rate("http_server_request_duration_seconds_count", "http_response_status_code")],
        "reqps",
    ),
    Panel("Live streams", "frameledger_gateway_streams", [now("frameledger_gateway_streams")]),
    Panel(
        "Frames to streams",
        "frameledger_gateway_stream_frames_total",
        [rate("frameledger_gateway_stream_frames_total")],
        "cps",
    ),
    Panel(
        "Closed streams",
        "frameledger_gateway_streams_closed_total",
        [rate("frameledger_gateway_streams_closed_total", "reason")],
        "cps",
    ),
    Panel(
        "Largest backlog of a stream",
        "frameledger_gateway_stream_behind_frames",
        [newest("frameledger_gateway_stream_behind_frames")],
    ),
    Panel("Spans", "frameledger_spans_total", [rate("frameledger_spans_total", "outcome")], "cps"),
    Panel(
        "Releases",
        "frameledger_build_info",
        [now("frameledger_build_info", "version", "fold_version")],
        kind="stat",
    ),
)

G = "gen_ai_client_inference_"
WORK = (
    Panel(
        "Parked conversations",
        "frameledger_contexts_parked",
        [newest("frameledger_contexts_parked")],
        kind="stat",
    ),
    Panel(
        "Ambiguous calls", "frameledger_calls_ambiguous", [newest("frameledger_calls_ambiguous")], kind="stat"
    ),
    Panel(
        "Calls that wait for a person",
        "frameledger_calls_waiting",
        [newest("frameledger_calls_waiting")],
        kind="stat",
    ),
    Panel("Open runs", "frameledger_runs_open", [newest("frameledger_runs_open")], kind="stat"),
    Panel(
        "Requested runs",
        "frameledger_runs_requested_total",
        [rate("frameledger_runs_requested_total", "trigger")],
        "cps",
    ),
    Panel("Ended runs", "frameledger_runs_total", [rate("frameledger_runs_total", "status")], "cps"),
    Panel(
        "Time to first text",
        "frameledger_run_first_text_seconds",
        quantiles("frameledger_run_first_text_seconds", "model"),
        "s",
    ),
    Panel(
        "Waiting for a worker",
        "frameledger_work_queue_seconds",
        quantiles("frameledger_work_queue_seconds", "service"),
        "s",
    ),
    Panel("Slots", "frameledger_work_slots", [now("frameledger_work_slots", "service", "state")]),
    Panel(
        "Claims",
        "frameledger_work_claims_total",
        [rate("frameledger_work_claims_total", "service", "how")],
        "cps",
    ),
    Panel(
        "Lost leases",
        "frameledger_work_leases_lost_total",
        [rate("frameledger_work_leases_lost_total", "service")],
        "cps",
    ),
    Panel(
        "Timeouts",
        "frameledger_timekeeper_settled_total",
        [rate("frameledger_timekeeper_settled_total", "rule")],
        "cps",
    ),
    Panel(
        "Requests to models",
        f"{G}duration_seconds",
        [rate(f"{G}duration_seconds_count", "gen_ai_request_model", "error_type")],
        "cps",
    ),
    Panel(
        "Requests to models, duration",
        f"{G}duration_seconds",
        quantiles(f"{G}duration_seconds", "gen_ai_request_model"),
        "s",
    ),
    Panel(
        "Time to first chunk",
        f"{G}time_to_first_chunk_seconds",
        quantiles(f"{G}time_to_first_chunk_seconds", "gen_ai_request_model"),
        "s",
    ),
    Panel(
        "Input tokens",
        f"{G}usage_input_tokens_total",
        [rate(f"{G}usage_input_tokens_total", "gen_ai_request_model")],
        "cps",
    ),
    Panel(
        "Output tokens",
        f"{G}usage_output_tokens_total",
        [rate(f"{G}usage_output_tokens_total", "gen_ai_request_model")],
        "cps",
    ),
    Panel(
        "Ended calls",
        "frameledger_calls_total",
        [rate("frameledger_calls_total", "function", "status")],
        "cps",
    ),
    Panel(
        "Executed calls by outcome",
        "gen_ai_execute_tool_duration_seconds",
        [rate("gen_ai_execute_tool_duration_seconds_count", "gen_ai_tool_name", "error_type")],
        "cps",
    ),
    Panel(
        "Executed calls, duration",
        "gen_ai_execute_tool_duration_seconds",
        quantiles("gen_ai_execute_tool_duration_seconds", "gen_ai_tool_name"),
        "s",
    ),
)

DASHBOARDS = {"road": ("Frameledger: the pipeline", ROAD), "work": ("Frameledger: runs and calls", WORK)}


def dashboard(name: str) -> dict[str, Any]:
    """Returns a dashboard as Grafana imports it."""
    title, panels = DASHBOARDS[name]
    return {
        "uid": f"frameledger-{name}",
        "title": title,
        "tags": ["frameledger"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_placed(panels)),
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    for number, panel in enumerate(panels):
        across = number % (24 // WIDTH)
        yield {
            "id": number + 1,
            "type": panel.kind,
            "title": panel.title,
            "description": _description(METRICS[panel.metric]),
            "datasource": SOURCE,
            "gridPos": {"h": HEIGHT, "w": WIDTH, "x": across * WIDTH, "y": number // (24 // WIDTH) * HEIGHT},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}
                for place, (query, legend) in enumerate(panel.queries)
            ],
        }


def _description(metric: Metric) -> str:
    kind = "histogram" if isinstance(metric, Histogram) else type(metric).__name__.lower()
    return " ".join(
        filter(None, (metric.meaning, metric.high and f"High: {metric.high}", f"({metric.name}, {kind})"))
    )


def text(name: str) -> str:
    """Returns the file."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in DASHBOARDS:
        (HERE / f"{name}.json").write_text(text(name), encoding="utf-8")
        print(f"wrote infra/grafana/{name}.json")
