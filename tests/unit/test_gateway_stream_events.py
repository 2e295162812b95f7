"""What is put together for a stream, without servers: its events, and where its cursor stands behind them."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from frameledger_services.gateway.live import stream_events
from frameledger_services.gateway.live.hub import assemble
from frameledger_services.store.following import StreamCursor, StreamHead, StreamReading
from frameledger_services.store.wanted_frames import PagedFrame

ID = UUID("0d1e2f30-0000-4000-8000-000000000001")
AT = datetime(2026, 3, 4, 9, 0, 0, 123_000, tzinfo=UTC)


def frame(version, payload=b'{"type":"LLMRunFrame"}'):
    about = (version, ID, "LLMRunFrame", "ignored", "run_open", AT, AT, "test/a", "run-1", None, None, None)
    return PagedFrame(*about, 3, 1, 17, payload)


def head(version, *, ended=False):
    return StreamHead(version, "ended" if ended else "quiet", ended, None)


def fields(event):
    """The fields of an event, as a client reads it."""
    lines = [line.partition(": ")[::2] for line in event.decode().removesuffix("\n\n").split("\n")]
    data = "\n".join(text for name, text in lines if name == "data")
    return {**dict(lines), "data": data}


def test_a_frame_is_said_with_its_value_as_it_is():
    event = fields(stream_events.frame(frame(7, b'{"type":"LLMRunFrame",  "n":1.50}')))
    assert event["event"] == "frame"
    assert event["id"] == "7"
    assert event["data"] == (
        '{"version":7,"id":"0d1e2f30-0000-4000-8000-000000000001","type":"LLMRunFrame","outcome":"ignored",'
        '"reason":"run_open","logged_at":"2026-03-04T09:00:00.123000Z","produced_at":"2026-03-04T09:00:00.123000Z",'
        '"source":"test/a","run_id":"run-1","tool_call_id":null,"causation_id":null,"trace_id":null,'
        '"place":{"partition":3,"generation":1,"offset":17},"frame":{"type":"LLMRunFrame",  "n":1.50}}'
    )


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_an_end_of_a_line_in_a_value_ends_no_event_and_is_not_lost(end):
    value = f'{{"type":{end}"LLMRunFrame"{end}{end}}}'
    event = stream_events.frame(frame(7, value.encode()))
    assert event.count(b"\n\n") == 1
    assert b"\r" not in event
    data = json.loads(fields(event)["data"])
    assert data["frame"] == {"type": "LLMRunFrame"}
    assert data["raw"] == value
    assert event.count(b"data: ") == 1


@pytest.mark.parametrize(
    ("version", "reading", "events", "after", "is_all"),
    [
        (0, StreamReading(head(2), None, [frame(1), frame(2)]), ["frame", "frame", "head"], 2, True),
        (0, StreamReading(head(9), None, [frame(1), frame(2)]), ["frame", "frame"], 2, False),
        (1, StreamReading(head(3), None, [frame(2, None), frame(3)]), ["frame", "head"], 3, True),
        (3, StreamReading(head(3), None), ["head"], 3, True),
        (None, StreamReading(head(3), None), ["head"], 3, True),
        (7, StreamReading(head(3), None), ["reset"], 0, False),
        (7, StreamReading(None, None), ["reset"], 0, True),
        (3, StreamReading(None, 4), ["gone"], 4, True),
        (3, StreamReading(head(6), 4, [frame(5), frame(6)]), ["gone", "frame", "frame", "head"], 6, True),
        # It begins after the erasure, so it has nothing to forget.
        (0, StreamReading(head(6), 4, [frame(5), frame(6)]), ["frame", "frame", "head"], 6, True),
        (0, StreamReading(None, 4), [], 0, True),
        (None, StreamReading(head(6), 4), ["head"], 6, True),
    ],
)
def test_what_is_read_becomes_events_and_a_cursor_behind_them(version, reading, events, after, is_all):
    chunk = assemble(StreamCursor("a", version), reading, is_greeted=False)
    said = [fields(event + b"\n\n") for event in chunk.data.split(b"\n\n") if event]
    assert [event["event"] for event in said] == events
    assert (chunk.version, chunk.is_all) == (after, is_all)
    assert all(event["id"] == str(after) for event in said[-1:])


@pytest.mark.regression("gateway 63")
def test_who_waits_for_a_conversation_from_now_on_comes_back_to_its_first_frame():
    """It may be cut off before there is one, and another now would be behind that."""
    first = assemble(StreamCursor("a", None), StreamReading(None, None), is_greeted=False)
    [begin] = stream_events.begin(first).removesuffix(b"\n\n").split(b"\n\n")
    assert fields(begin + b"\n\n") == {"retry": "2000", "id": "0", "data": ""}


def test_a_stream_that_begins_with_events_is_at_the_last_of_them():
    first = assemble(StreamCursor("a", None), StreamReading(head(3), None), is_greeted=False)
    begin, event = stream_events.begin(first).removesuffix(b"\n\n").split(b"\n\n")
    assert begin == stream_events.begin(None).removesuffix(b"\n\n") == b"retry: 2000"
    assert fields(event + b"\n\n")["id"] == "3"


def test_who_waits_after_an_erasure_is_told_of_it_once_and_then_of_the_life_after_it():
    told = StreamCursor("a", 4, None, 4)
    assert assemble(told, StreamReading(None, 4), is_greeted=True) is None
    assert assemble(told, StreamReading(None, 7), is_greeted=True).version == 7
    born = assemble(told, StreamReading(head(5), 4, [frame(5)]), is_greeted=True)
    assert b"event: gone" not in born.data
    assert born.version == 5


def test_who_was_woken_for_nothing_is_told_nothing():
    nothing = StreamReading(head(3), None)
    assert assemble(StreamCursor("a", 3), nothing, is_greeted=True) is None
