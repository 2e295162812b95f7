"""Stored frames compared with records: which are equal, and which have a reason to be missing."""

import asyncio
from datetime import timedelta
from hashlib import sha256

import pytest

from frameledger.partition import partition_for
from frameledger.record import LoggedFrame, Record, read
from frameledger.values import replace
from frameledger_services.audit import log_comparison
from frameledger_services.audit.log_comparison import ComparedWithLog
from frameledger_services.projector.row_values import at
from frameledger_services.store import erasures, logged_frames
from frameledger_services.store.erasures import Beginning
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.logged_frames import FrameOnLog, Unstored
from frameledger_services.store.lost_frames import OffsetRange

PARTITIONS = 4
TOPIC = "llm.frames"
HOME = partition_for(b"ctx", PARTITIONS)
VALUE = b'{"type":"LLMRunFrame"}'
NOTHING_KNOWN = Unstored(False, False, False, False)


def record(offset, **changes):
    made = Record(TOPIC, HOME, offset, b"ctx", VALUE, (("ce_source", b"a"),), 1_770_000_000_000 + offset)
    return replace(made, **changes)


def stored(version, one, **changes):
    logged = read(one)
    assert isinstance(logged, LoggedFrame)
    row = FrameOnLog(
        context_id="ctx",
        version=version,
        partition=HOME,
        generation=1,
        offset=one.offset,
        offset_before=None,
        logged_at=at(one.timestamp_ms or 0),
        logged_before=None,
        frame_id=frame_uuid(logged.frame_id),
        source="a",
        trace_id=None,
        causation_id=None,
        sha256=sha256(VALUE).digest(),
    )
    return replace_row(row, changes)


def replace_row(row, changes):
    values = {name: getattr(row, name) for name in FrameOnLog.__dataclass_fields__}
    return FrameOnLog(**{**values, **changes})


async def each(things):
    for thing in things:
        yield thing


ERASED_AT = at(1_770_000_000_001)
BEGINS = Beginning("ctx", 5, b"", ERASED_AT, ERASED_AT)


class Log:
    """A log that begins with this offset by now."""

    def __init__(self, first):
        self._first = first

    async def offsets(self, partition):
        assert partition == HOME
        return self._first, 100


def compared(monkeypatch, rows, records, known=NOTHING_KNOWN, context_ids=None, first=0):
    async def unstored(*_):
        return known

    async def version_before(*_):
        return 6

    async def beginnings(*_):
        return {"ctx": BEGINS}

    monkeypatch.setattr(erasures, "beginnings", beginnings)
    monkeypatch.setattr(logged_frames, "unstored", unstored)
    monkeypatch.setattr(logged_frames, "version_before", version_before)
    part = log_comparison._Part(HOME, 0, 100, 1, [OffsetRange(HOME, 1, 0, 100)])
    done = ComparedWithLog()
    comparing = log_comparison._Partition(None, Log(first), TOPIC, part, PARTITIONS, context_ids, done)
    asyncio.run(comparing.run(each(rows), each(records), lambda: None))
    found = [(one.version, one.field) for each_ in done.differences.values() for one in each_.in_order()]
    return done.frames, found


def test_frames_that_are_their_records_differ_in_nothing(monkeypatch):
    records = [record(3), record(4), record(9)]
    rows = [stored(version, one) for version, one in enumerate(records, 1)]
    assert compared(monkeypatch, rows, records) == (3, [])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sha256": b"x" * 32}, "payload"),
        ({"context_id": "other"}, "context_id"),
        ({"source": None}, "source"),
        ({"trace_id": "a" * 32}, "trace_id"),
        ({"causation_id": frame_uuid("x")}, "causation_id"),
        ({"frame_id": frame_uuid("x")}, "frame_id"),
        ({"logged_at": at(1_770_000_000_003) + timedelta(seconds=1)}, "logged_at"),
        ({"offset_before": 7}, "offset"),
    ],
)
def test_what_differs_from_its_record_is_named(monkeypatch, changes, field):
    assert compared(monkeypatch, [stored(5, record(3), **changes)], [record(3)]) == (0, [(5, field)])


def test_a_time_is_never_before_that_of_the_frame_before(monkeypatch):
    later = at(1_770_000_000_900)
    row = stored(5, record(3), logged_at=later, logged_before=later)
    assert compared(monkeypatch, [row], [record(3)]) == (1, [])


def test_a_frame_without_a_record_is_named_wherever_it_lies(monkeypatch):
    first, middle, last = record(3), record(5), record(9)
    rows = [stored(version, one) for version, one in enumerate((first, middle, last), 1)]
    assert compared(monkeypatch, rows, [middle]) == (1, [(1, "row"), (3, "row")])


@pytest.mark.regression("fault 176")
def test_a_frame_whose_record_expired_since_the_comparison_began_is_no_difference(monkeypatch):
    rows = [stored(version, record(offset)) for version, offset in enumerate((3, 5, 7, 9), 1)]
    assert compared(monkeypatch, rows, [record(3), record(9)], first=6) == (2, [(3, "row")])
    assert compared(monkeypatch, rows, [], first=8) == (0, [(4, "row")])


def test_a_record_without_a_frame_is_named_by_the_version_that_it_would_have(monkeypatch):
    assert compared(monkeypatch, [], [record(3)]) == (0, [(7, "row")])
    assert compared(monkeypatch, [], [record(3)], context_ids={"other"}) == (0, [])


@pytest.mark.parametrize(
    ("known", "changes"),
    [
        (Unstored(True, False, False, False), {}),
        (Unstored(False, True, False, False), {"value": b"no frame"}),
        (Unstored(False, False, True, True), {}),
        (
            Unstored(False, False, False, True),
            {"value": b'{"type":"LLMTextFrame","text":"a","run_id":"r"}'},
        ),
        (
            Unstored(False, False, False, True),
            {"value": b'{"type":"LLMRunFrame","expected_version":3}'},
        ),
        (Unstored(False, False, False, True), {"value": b'{"type":"Wink","tool_call_id":"t"}'}),
        (NOTHING_KNOWN, {"key": b"from elsewhere"}),
    ],
)
def test_a_record_that_has_a_reason_to_be_without_a_frame_is_no_difference(monkeypatch, known, changes):
    if changes.get("key") is not None:
        assert partition_for(changes["key"], PARTITIONS) != HOME
    assert compared(monkeypatch, [], [record(3, **changes)], known) == (0, [])


def test_a_frame_of_a_new_life_may_not_be_missing(monkeypatch):
    known = Unstored(False, False, False, True)
    assert compared(monkeypatch, [], [record(3)], known) == (0, [(7, "row")])
