"""The conversations for the tests and the pictures of the page: every recorded history at its original times, and a few
that were written for the page."""

import json
from dataclasses import replace
from datetime import datetime

import psycopg
from tests.support import four_conversations
from tests.support.batches import HISTORIES, Log, project

RECORDED = tuple(path.stem for path in HISTORIES)
MARKUP = "acme/<img src=x onerror=alert(1)>"
"""A context id with HTML, as from a malicious client of one tenant."""

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>&lt;b&gt;'
ERASED = "acme/forgotten"
WRITTEN = {
    MARKUP: [
        {
            "type": "LLMContextFrame",
            "context": {
                "messages": [{"role": "system", "content": HOSTILE}],
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "look", "description": HOSTILE, "parameters": {}},
                    }
                ],
                "settings": {"extra": {"note": HOSTILE}},
            },
        },
        {
            "type": "LLMMessagesAppendFrame",
            "messages": [{"role": "user", "content": [{"type": "text", "text": HOSTILE}]}],
        },
        {"type": "TranscriptionFrame", "text": HOSTILE, "user_id": HOSTILE},
    ],
    ERASED: [
        {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "My number is 12."}]},
        {"type": "LLMContextEraseFrame", "id": "e", "why": "asked for", "requested_by": "Eve"},
    ],
}


def fill(address: str) -> None:
    """Fill a migrated database with all these conversations and two live workers."""
    log = Log()
    times = []
    for path in HISTORIES:
        lines = path.read_bytes().splitlines()
        four_conversations.add_with_causes(log, path.stem, lines)
        times += produced(lines)
    for context_id, frames in WRITTEN.items():
        lines = [json.dumps(frame).encode() for frame in frames]
        four_conversations.add_with_causes(log, context_id, lines)
        times += produced(lines)
    timed = [replace(record, timestamp_ms=time) for record, time in zip(log.records, times, strict=True)]
    project(address, timed, sizes=(500,))
    with psycopg.connect(address) as connection:
        connection.execute(four_conversations.WORKERS)


def produced(lines: list[bytes]) -> list[int]:
    """Returns the time at which each frame was produced, in milliseconds; by default 0.1 s after the one before."""
    times: list[int] = []
    for line in lines:
        said = _said(line)
        if not times:
            times.append(said or round(four_conversations.MORNING.timestamp() * 1000))
        else:
            times.append(max(times[-1] + 1, said or times[-1] + 100))
    return times


def _said(line: bytes) -> int | None:
    try:
        written = json.loads(line)["produced_at"]
        return round(datetime.fromisoformat(written).timestamp() * 1000)
    except (ValueError, KeyError, TypeError):
        return None
