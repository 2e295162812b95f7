"""What the services tell those who run them: metrics, health, and traces in the words of OpenTelemetry's conventions.

`metrics.py` is the one list of metrics; `metrics_registry.py` makes of it what prometheus_client serves,
`metrics_recorder.py` is what the services are given, and `ops_server.py` answers `/metrics`, `/livez` and `/readyz`.
`tracing` is for whoever makes a span. Nothing is exported here: neither of the two that others are given imports
OpenTelemetry, prometheus_client, or anything else that a client does not need.
"""
