"""Metrics, health checks and traces (OpenTelemetry conventions) of the services.

`metrics.py` is the list of metrics, `metrics_registry.py` serves them with prometheus_client, `metrics_recorder.py` is
the interface for the services, and `ops_server.py` serves `/metrics`, `/livez` and `/readyz`. `tracing` creates spans.
This package exports nothing itself: `metrics_recorder` and `tracing` import neither OpenTelemetry nor
prometheus_client, nor anything else that a client does not need.
"""
