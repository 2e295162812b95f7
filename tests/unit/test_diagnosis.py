"""The diagnosis of a partition whose log changed, and the comparison that finds where log and tables diverge."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import get_args
from uuid import UUID

import pytest

from frameledger.headers import milliseconds, originally_logged_ms
from frameledger.record import LogPosition, Record, derived_id, forward, read
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.projector.log_check import LogState, symptom
from frameledger_services.recovery import diagnosis
from frameledger_services.recovery.by_partition import ByPartition
from frameledger_services.recovery.copies import TooLarge, copy, publish_copies, smaller
from frameledger_services.recovery.diagnosis import (
    NO_END,
    PartitionFinding,
    diagnose,
    gaps,
    last_common_offset,
    spans,
)
from frameledger_services.recovery.republish import gaps_to_fill
from frameledger_services.store.frame_ids import cause_uuid, frame_uuid
from frameledger_services.store.lost_frames import FrameDigest, LostFrame, LostRange
from frameledger_services.store.projections import StoredPosition
from frameledger_services.store.recovery import RecoveryReceipt

AT = datetime(2026, 3, 1, tzinfo=UTC)
STORED = StoredPosition(3, 100, 99, b"hash", AT)
NOTHING = StoredPosition(3, 0, None, None, None)


@pytest.mark.parametrize(
    ("stored", "log", "expected"),
    [
        (STORED, LogState(0, 100, b"hash"), "fine"),
        (STORED, LogState(0, 500, b"hash"), "fine"),
        # The last record has expired, the next one has not.
        (STORED, LogState(100, 500), "fine"),
        (NOTHING, LogState(0, 0), "fine"),
        (NOTHING, LogState(0, 7), "fine"),
        # Behind markers there is no record to be compared, and the offset is what it was.
        (StoredPosition(3, 100, 90, b"hash", AT), LogState(95, 100), "fine"),
        (STORED, LogState(0, 99), "shorter"),
        (STORED, LogState(0, 0), "shorter"),
        (STORED, LogState(101, 500), "expired"),
        (NOTHING, LogState(1, 1), "expired"),
        (STORED, LogState(0, 100, b"another"), "another_record"),
        (STORED, LogState(0, 500, None), "another_record"),
    ],
)
def test_what_is_stored_beside_what_the_log_has_shows_the_symptom(stored, log, expected):
    assert symptom(stored, log) == expected


@pytest.mark.parametrize(
    ("stored", "log", "is_same_topic", "agreed_to", "expected"),
    [
        (STORED, LogState(0, 100, b"hash"), True, None, ("fine", 100, 0)),
        (STORED, LogState(0, 100, b"hash"), None, None, ("fine", 100, 0)),
        (STORED, LogState(130, 500), True, None, ("expired", 130, 30)),
        (NOTHING, LogState(7, 9), True, None, ("expired", 7, 7)),
        (STORED, LogState(0, 90), True, 90, ("lost_tail", 90, 0)),
        # Others were written since.
        (STORED, LogState(0, 95), True, 90, ("lost_tail", 90, 0)),
        (STORED, LogState(0, 500, b"another"), True, 90, ("lost_tail", 90, 0)),
        # All was lost of the same topic; with or without others since.
        (STORED, LogState(0, 0), True, None, ("lost_tail", 0, 0)),
        (STORED, LogState(0, 4), True, None, ("lost_tail", 0, 0)),
        (STORED, LogState(40, 40), None, None, ("lost_tail", 40, 0)),
        # A broker without ids: nothing in common is another log.
        (STORED, LogState(0, 4), None, None, ("another_log", 0, 0)),
        (STORED, LogState(0, 4), False, None, ("another_log", 0, 0)),
        (STORED, LogState(0, 0), False, None, ("another_log", 0, 0)),
        (STORED, LogState(20, 500, b"another"), False, None, ("another_log", 20, 0)),
        # A copy of the old one that is not complete, and one that is.
        (STORED, LogState(0, 500, b"another"), False, 90, ("another_log", 90, 0)),
        (STORED, LogState(0, 500, b"another"), False, 100, ("fine", 100, 0)),
        # Nothing was stored of it yet.
        (NOTHING, LogState(0, 5), False, None, ("fine", 0, 0)),
    ],
)
def test_what_became_of_a_partition_and_where_it_is_read_next(
    stored, log, is_same_topic, agreed_to, expected
):
    found = diagnose(stored, log, is_same_topic=is_same_topic, common=agreed_to)
    assert found == PartitionFinding(stored, log, *expected)


def record(offset, value=b"v", *, key=b"ctx", after=0):
    moment = AT + timedelta(seconds=offset + after)
    return Record("llm.frames", 3, offset, key, value, timestamp_ms=round(moment.timestamp() * 1000))


def kept(offset, value=b"v", *, after=0, partition=3):
    return FrameDigest(
        partition, offset, "ctx", AT + timedelta(seconds=offset + after), sha256(value).digest()
    )


async def each(some):
    for one in some:
        yield one


def common(stored, on_log, read_until, first=0):
    async def first_offset():
        return first

    return asyncio.run(last_common_offset(each(stored), each(on_log), read_until, first_offset))


UNTIL_9 = AT + timedelta(seconds=9)


@pytest.mark.parametrize(
    ("stored", "on_log", "read_until", "expected"),
    [
        ([kept(n) for n in range(10)], [record(n) for n in range(10)], UNTIL_9, 10),
        ([kept(n) for n in range(10)], [record(n) for n in range(4)], UNTIL_9, 4),
        ([kept(n) for n in range(10)], [record(0), record(1, b"other"), record(2)], UNTIL_9, 1),
        ([kept(n) for n in range(10)], [record(0), record(1, key=b"other")], UNTIL_9, 1),
        ([kept(n) for n in range(10)], [record(0, b"other")], UNTIL_9, None),
        # The same words again, later: another record, unless times are those of a copy.
        ([kept(0), kept(1)], [record(0), record(1, after=60)], UNTIL_9, 1),
        ([kept(0), kept(1)], [record(0), record(1, after=60)], None, 2),
        # A frame is never earlier than the one before it; its record may be.
        ([kept(0), kept(1, after=5)], [record(0), record(1)], UNTIL_9, 2),
        # What left no frame (forwarded, repeated, set aside) is judged by its time ...
        ([kept(0)], [record(0), record(1), record(2, after=60)], UNTIL_9, 2),
        # ... or by what comes behind it.
        ([kept(0), kept(2)], [record(0), record(1), record(2), record(3)], None, 3),
        # Where something was stored the log has a marker now.
        ([kept(0), kept(1)], [record(0), record(2)], UNTIL_9, 1),
        ([], [record(0, after=60)], UNTIL_9, None),
        ([], [], UNTIL_9, None),
    ],
)
def test_log_and_tables_are_of_one_mind_up_to_the_first_difference(stored, on_log, read_until, expected):
    assert common(stored, on_log, read_until) == expected


@pytest.mark.regression("fault 210")
@pytest.mark.parametrize(
    ("on_log", "first", "expected"),
    [
        ([record(4), record(5)], 4, 6),
        ([record(0), record(1), record(4), record(5)], 4, 6),
        ([record(0), record(1), record(5)], 4, 2),
        ([record(4), record(5, b"other")], 4, 5),
    ],
)
def test_records_that_expired_meanwhile_are_no_difference(on_log, first, expected):
    assert common([kept(n) for n in range(10)], on_log, UNTIL_9, first) == expected


@pytest.mark.parametrize("taken", [0, 1, 2, 9])
def test_kept_frames_are_handed_out_by_partition_however_many_of_one_are_taken(taken):
    rows = [kept(offset, partition=partition) for partition in (1, 2, 4, 7) for offset in range(3)]

    async def hand_out():
        found: dict[int, list[tuple[int, int]]] = {}
        in_turn = ByPartition(each(rows))
        for partition in (0, 2, 3, 4, 9):
            found[partition] = []
            async with aclosing(in_turn.of(partition)) as some:
                while len(found[partition]) < taken and (one := await anext(some, None)) is not None:
                    found[partition].append((one.partition, one.offset))
        return found

    offsets = range(min(taken, 3))
    assert asyncio.run(hand_out()) == {
        0: [],
        2: [(2, offset) for offset in offsets],
        3: [],
        4: [(4, offset) for offset in offsets],
        9: [],
    }


def receipt(generation, happened, begins_at, *, is_put_back=True, through=None):
    return RecoveryReceipt(generation, 3, happened, begins_at, is_put_back, through)


@pytest.mark.parametrize(
    ("chain", "generation", "expected_spans", "expected_lost"),
    [
        ([], 1, [(1, NO_END)], [(1, 50)]),
        # Another partition had changed; this one went on at 40.
        ([receipt(2, "fine", 40)], 2, [(2, NO_END), (1, 40)], [(2, 50), (1, 50)]),
        # What was put back at 40 and behind it lies below 50 still.
        (
            [receipt(2, "lost_tail", 40, through=45)],
            2,
            [(2, NO_END), (1, 40)],
            [(2, 50), (1, 50)],
        ),
        # It was lost again, or never put back.
        ([receipt(2, "lost_tail", 40, through=60)], 2, [(2, NO_END), (1, 40)], [(2, 50), (1, 40)]),
        ([receipt(2, "lost_tail", 40, is_put_back=False)], 2, [(2, NO_END), (1, 40)], [(2, 50), (1, 40)]),
        # The second loss went back behind the first one, and took with it what had been put back then. Of what was put
        # back after it, some was lost now, whichever generation that is of.
        (
            [receipt(2, "lost_tail", 40, through=45), receipt(3, "lost_tail", 30, through=60)],
            3,
            [(3, NO_END), (2, 30), (1, 30)],
            [(3, 50), (2, 30), (1, 30)],
        ),
        # The second loss did not come so far back: what lies between is of the second generation.
        (
            [receipt(2, "lost_tail", 30, through=35), receipt(3, "lost_tail", 40, through=45)],
            3,
            [(3, NO_END), (2, 40), (1, 30)],
            [(3, 50), (2, 50), (1, 50)],
        ),
        # Of another log nothing counts here.
        (
            [receipt(2, "another_log", 0), receipt(3, "expired", 30)],
            3,
            [(3, NO_END), (2, 30)],
            [(3, 50), (2, 50)],
        ),
        # What began later does not count yet.
        ([receipt(2, "lost_tail", 40, is_put_back=False)], 1, [(1, NO_END)], [(1, 50)]),
    ],
)
def test_what_a_generation_has_of_those_before_it(chain, generation, expected_spans, expected_lost):
    assert spans(chain, generation) == expected_spans
    assert gaps(chain, generation, 50) == expected_lost


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([], []),
        ([receipt(2, "lost_tail", 40)], []),
        ([receipt(2, "lost_tail", 40, is_put_back=False)], [LostRange(3, 1, 40)]),
        # The newest one has what those before it did not finish.
        (
            [
                receipt(2, "lost_tail", 40, is_put_back=False),
                receipt(3, "fine", 45),
                receipt(4, "lost_tail", 42, is_put_back=False),
            ],
            [LostRange(3, 3, 42), LostRange(3, 2, 42), LostRange(3, 1, 40)],
        ),
        # Then the topic was made again: the new one lost nothing.
        ([receipt(2, "lost_tail", 40, is_put_back=False), receipt(3, "another_log", 0)], []),
    ],
)
def test_what_an_earlier_recovery_did_not_finish_is_still_to_be_put_back(chain, expected):
    fine = PartitionFinding(STORED, LogState(0, 100, b"hash"), "fine", 100)
    assert gaps_to_fill(chain, 4, [fine]) == expected


def test_what_was_not_finished_is_not_put_back_onto_another_log():
    unfinished = [receipt(2, "lost_tail", 40, is_put_back=False)]
    assert gaps_to_fill(unfinished, 2, [PartitionFinding(STORED, LogState(0, 9), "another_log", 0)]) == []
    assert gaps_to_fill(
        unfinished, 2, [PartitionFinding(STORED, LogState(130, 500), "expired", 130, 30)]
    ) == [LostRange(3, 1, 40)]


def test_the_ids_of_the_first_generation_never_change():
    assert derived_id(LogPosition("llm.frames", 3, 118)) == "905f8ae6-1206-5f8b-9f89-b09c725b7205"


def test_an_offset_that_comes_again_is_another_place():
    ids = {derived_id(LogPosition("llm.frames", 3, 118, generation)) for generation in (1, 2, 3)}
    assert len(ids) == 3
    assert read(Record("llm.frames", 3, 118, b"ctx", b'{"type":"LLMRunFrame"}', generation=2)).frame_id in ids


def stored_from(logged, offset=118, generation=1):
    return LostFrame(
        3,
        generation,
        offset,
        logged.context_id,
        frame_uuid(logged.frame_id),
        logged.source,
        logged.trace_id,
        None if logged.causation_id is None else cause_uuid(logged.causation_id),
        logged.record.value,
    )


CAUSE = "5f0d6c1e-7a34-5f0b-9d37-3c1f6a7e2b94"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    "value", [b'{"type":"LLMRunFrame"}', b'{ "type":"LLMRunFrame","id":"a"}', b'{"type":"NewsFrame","id":7}']
)
@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("ce_source", b"me"),),
        (("ce_source", b"me"), ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())),
        (("fl_causation_id", CAUSE.encode()),),
        (("ce_source", b"me"), ("fl_causation_id", b"no uuid")),
    ],
)
@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("was_forwarded", [False, True])
def test_a_copy_of_a_stored_frame_is_read_as_what_is_stored(value, headers, generation, was_forwarded):
    original = Record("llm.frames", 3, 118, b"ctx", value, headers, 0, generation)
    if was_forwarded:
        sent = forward(Record("llm.frames", 1, 7, b"ctx", value, headers, 0, generation))
        original = Record("llm.frames", 3, 118, sent.key, sent.value, sent.headers, 0, generation)
    before = read(original)
    made = copy("llm.frames", stored_from(before, generation=generation))
    after = read(Record("llm.frames", 3, 2_000, made.key, made.value, made.headers, 5, 3))
    assert frame_uuid(after.frame_id) == frame_uuid(before.frame_id)
    assert (after.context_id, after.frame, after.source, after.trace_id, after.record.value) == (
        before.context_id,
        before.frame,
        before.source,
        before.trace_id,
        value,
    )
    assert stored_from(after).causation_id == stored_from(before).causation_id


@pytest.mark.parametrize("value", [b'{"type":"LLMRunFrame"}', b'{"type":"LLMRunFrame","id":"a"}'])
@pytest.mark.parametrize("source", [None, "me"])
@pytest.mark.parametrize("trace", [None, TRACE])
@pytest.mark.parametrize("cause", [None, CAUSE])
@pytest.mark.parametrize("was_forwarded", [False, True])
@pytest.mark.parametrize("logged_at", [None, AT])
def test_a_copy_with_fewer_headers_is_the_same_frame(value, source, trace, cause, was_forwarded, logged_at):
    given = {
        "ce_source": source,
        "traceparent": trace and f"00-{trace}-b7ad6b7169203331-01",
        "fl_causation_id": cause,
    }
    headers = tuple((name, text.encode()) for name, text in given.items() if text is not None)
    lay_at = Record("llm.frames", 1 if was_forwarded else 3, 118, b"ctx", value, headers)
    before = read(lay_at)
    frame = replace(stored_from(before), logged_at=logged_at)
    copies = list(smaller("llm.frames", frame))
    found = [
        read(Record("llm.frames", 3, 2_000, made.key, made.value, made.headers, 5, 3)) for made in copies
    ]
    for after in found:
        assert frame_uuid(after.frame_id) == frame_uuid(before.frame_id)
        assert (after.context_id, after.source, after.record.value) == ("ctx", source, value)
    times = [originally_logged_ms(dict(made.headers)) for made in copies]
    logged_ms = None if logged_at is None else milliseconds(logged_at)
    assert times == [logged_ms, logged_ms, None, None]
    traced = [(after.trace_id, after.causation_id) for after in found]
    assert traced == [(trace, cause), (None, None), (trace, cause), (None, None)]
    if before.has_own_id:
        assert {name for name, _ in copies[2].headers} == {name for name, _ in headers}


@pytest.mark.regression("fault 50")
def test_a_copy_that_is_cut_down_for_its_size_says_as_long_as_it_can_when_the_frame_was_logged():
    """Without the time it would begin another life of a conversation that was erased meanwhile."""
    lost = read(
        Record("llm.frames", 3, 118, b"ctx", b'{"type":"LLMRunFrame","id":"a"}', (("ce_source", b"me"),))
    )
    frame = replace(stored_from(lost), trace_id=TRACE, causation_id=UUID(CAUSE), logged_at=AT)
    sizes = [
        sum(len(name) + len(value or b"") for name, value in made.headers)
        for made in smaller("llm.frames", frame)
    ]
    taken = []

    def most(limit):
        async def publish(records):
            [record] = records
            if sum(len(name) + len(value or b"") for name, value in record.headers) > limit:
                raise TooLargeError("too large", [None])
            taken.append(record)
            return [LogPosition("llm.frames", 3, 100)]

        return publish

    for limit in sizes:
        asyncio.run(publish_copies("llm.frames", [frame], most(limit)))
    times = [originally_logged_ms(dict(made.headers)) for made in taken]
    assert times == [milliseconds(AT), milliseconds(AT), milliseconds(AT), None]


def test_one_that_is_too_large_does_not_keep_back_those_behind_it():
    values = [b'{"type":"LLMRunFrame","n":%d}' % number for number in range(4)]
    frames = [
        stored_from(read(Record("llm.frames", 3, number, b"ctx", value)), offset=number)
        for number, value in enumerate(values)
    ]
    unreadable = LostFrame(3, 1, 4, "ctx", UUID(int=1), None, None, None, b"no frame")
    log = []

    async def publish(records):
        places: list[LogPosition | None] = [None] * len(records)
        for number, record in enumerate(records):
            if record.value == values[1]:
                raise TooLargeError("too large", places)
            log.append(record.value)
            places[number] = LogPosition("llm.frames", 3, 100 + len(log))
        return places

    published = asyncio.run(publish_copies("llm.frames", [*frames, unreadable], publish))
    assert log == [values[0], values[2], values[3]]
    assert [place.offset for place in published.places] == [101, 102, 103]
    assert published.undecodable == 1
    assert published.too_large == [
        TooLarge(
            3,
            1,
            1,
            "ctx",
            frames[1].frame_id,
            len(b"ctx" + values[1] + b"fl_forwarded_from" + b"llm.frames:1:3:1"),
        )
    ]


def test_bytes_that_no_release_reads_any_more_are_left():
    frame = LostFrame(3, 1, 118, "ctx", UUID(int=1), None, None, None, b"no frame")
    assert copy("llm.frames", frame) is None
    assert list(smaller("llm.frames", frame)) == []


def test_what_happened_is_stored_by_these_names():
    assert set(get_args(diagnosis.Happened)) == {"fine", "lost_tail", "expired", "another_log"}
