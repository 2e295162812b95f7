"""Media types of requests and responses."""

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
PROBLEM_JSON = "application/problem+json"
