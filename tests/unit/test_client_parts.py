"""What the client does before and after it speaks to a server."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from frameledger.frames import LLMRunFrame, LLMTextFrame
from frameledger_services.client import completed
from frameledger_services.store.contexts import loads


def test_a_frame_without_id_and_time_gets_both():
    before = datetime.now(UTC)
    frame = completed(LLMTextFrame(text="hello"))
    assert UUID(frame.id).version == 4
    assert abs(datetime.fromisoformat(frame.produced_at) - before).total_seconds() < 5
    assert frame == LLMTextFrame(text="hello", id=frame.id, produced_at=frame.produced_at)


def test_two_frames_never_get_the_same_id():
    assert completed(LLMRunFrame()).id != completed(LLMRunFrame()).id


def test_what_a_frame_has_it_keeps():
    frame = LLMRunFrame(id="mine", produced_at="long ago")
    assert completed(frame) == frame


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, -2.5, "\\u00e4", null]}', {"a": [1, -2.5, "\u00e4", None]}),
        ("18446744073709551616", 2**64),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ('["\\u0000"]', ["\x00"]),
        ('["\\ud83d"]', ["\ud83d"]),
        ("9223372036854775807", 2**63 - 1),
        ("1e300", 1e300),
        ('"text"', "text"),
    ],
)
def test_json_from_the_database_reads_as_the_standard_library_reads_it(text, value):
    assert loads(text) == value
    assert type(loads(text)) is type(value)
