"""The bench of telemetry: projectors and workers with metrics or traces, compared with the same without."""
