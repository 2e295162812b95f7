"""What the services tell those who run them: traces, in the words of OpenTelemetry's conventions.

Nothing is exported here: `tracing` is for whoever makes a span, and imports neither OpenTelemetry nor anything that a
client does not need.
"""
