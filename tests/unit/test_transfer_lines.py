"""Files of conversations: a change is found in its line, by its seal, its chain or its fold."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import uuid5

import pytest
from tests.laws.strategies import random_conversation

from frameledger.chain import first_link, next_link
from frameledger.evolve import evolve
from frameledger.evolve.state import State
from frameledger.frames import EndFrame, LLMContextEraseFrame, LLMRunFrame, TranscriptionFrame, encode_frame
from frameledger.ids import ContextId
from frameledger.record import DERIVED_IDS
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.frame_pages import PAGE_FRAMES
from frameledger_services.store.transfer import Exported, ExportedFrame
from frameledger_services.transfer import importing, lines
from frameledger_services.transfer.cloudevents import CloudEvents, event
from frameledger_services.transfer.import_folding import SOURCE, ImportFolding, is_open
from frameledger_services.transfer.lines import BadFileError, LineWriter

MORNING = datetime(2026, 5, 1, 7, tzinfo=UTC)


def stored(context_id, frames):
    """The frames as `frames` has them, but for outcomes, which are those that the fold gives anyway."""
    chain, known = first_link(context_id), set()
    rows: list[ExportedFrame] = []
    for frame in frames:
        if frame.id in known:
            continue
        if frame.id is not None:
            known.add(frame.id)
        version = len(rows) + 1
        payload, source = encode_frame(frame), None if version % 3 == 0 else f"people/{version % 2}"
        chain = next_link(chain, version, source, payload)
        frame_id = frame_uuid(frame.id) if frame.id else uuid5(DERIVED_IDS, f"{context_id}:{version}")
        at = MORNING + timedelta(milliseconds=10 * version)
        outcome = "unknown" if frame.type == "NoSuchFrame" or frame.v != 1 else "applied"
        rows.append(
            ExportedFrame(
                *(version, frame_id, frame.type, source, at, None, None, None, None, None),
                *(1, 0, version, chain, outcome, None, payload),
            )
        )
    return rows


def written(**conversations):
    writer, found = LineWriter("0.1.0"), []
    for context_id, frames in conversations.items():
        rows = stored(context_id, frames)
        found.append(writer.header(Exported(context_id, len(rows), rows[-1].chain, first=1)))
        found += map(writer.frame, rows)
    return found


def checked(found):
    async def all_of_them():
        return [one async for one in importing.check(found, lambda _: None)]

    return asyncio.run(all_of_them())


SMALL = written(
    a=[TranscriptionFrame(text="h\u00e9 \ud83d"), LLMRunFrame(id="r1")],
    b=[TranscriptionFrame(text="so", id="t1"), LLMRunFrame()],
)


@pytest.mark.regression("fault 242")
def test_checking_ends_at_the_next_page_once_it_is_cancelled():
    found = written(long=[TranscriptionFrame(text="word", id=f"t{at}") for at in range(3 * PAGE_FRAMES)])
    pages = []

    async def cancelled_at_the_first_page():
        task = asyncio.current_task()

        def report(count):
            pages.append(count)
            task.cancel()

        async for _ in importing.check(found, report):
            raise AssertionError("the whole conversation was checked")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled_at_the_first_page())
    assert pages == [PAGE_FRAMES]


@pytest.mark.parametrize("seed", range(40))
def test_random_conversations_are_read_as_they_were_written_and_end_with_nothing_open(seed):
    frames = [one for one in random_conversation(seed) if not isinstance(one, LLMContextEraseFrame)]
    found = written(talk=frames)
    rows = stored("talk", frames)
    header, *read = lines.read(found)
    assert (header.context_id, header.version, header.chain) == ("talk", len(rows), rows[-1].chain)
    names = ("version", "frame_id", "source", "logged_at", "causation_id", "trace_id", "chain", "payload")
    assert [[getattr(one, name) for name in names] for one in read] == [
        [getattr(one, name) for name in names] for one in rows
    ]
    folding = ImportFolding(header)
    folding.fold(read)
    closing = folding.closing()
    assert (closing is not None) == folding.is_left_open == checked(found)[0].left_open
    if closing is not None:
        assert (closing.version, closing.source) == (len(rows) + 1, SOURCE)
        folding.fold([closing])
        assert not is_open(folding.head.state)
        assert folding.closing() is None


def test_an_end_settles_whatever_is_open():
    for seed in range(60):
        state = State(ContextId("talk"))
        for one in random_conversation(seed):
            state = evolve(state, one).state
        assert not is_open(evolve(state, EndFrame()).state)


def test_every_changed_byte_is_found_in_its_line():
    content = b"".join(SMALL)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        line = content.count(b"\n", 0, place) + 1
        with pytest.raises(BadFileError) as refused:
            checked(bytes(changed).splitlines(keepends=True))
        # A line break that is none any more makes its line longer, or the next one.
        assert refused.value.line in ((line, line + 1) if content[place] == 10 else (line,)), place


@pytest.mark.parametrize(
    ("changed", "line", "problem"),
    [
        (lambda found: found[:-1], 6, "ends at version 1, but its header says 2"),
        (lambda found: [*found[:1], *found[2:]], 2, "does not follow the line before"),
        (lambda found: [found[0], found[2], found[1], *found[3:]], 2, "does not follow the line before"),
        (lambda found: found[1:], 1, "does not follow the line before"),
        (lambda found: [*found[:2], *found[3:]], 3, "ends at version 1, but its header says 2"),
        (lambda found: [], 1, "no conversation"),
        (lambda found: [b"x" * (lines.MAX_LINE + 2)], 1, "longer than any line"),
        (lambda found: [b"{}\n"], 1, "was changed"),
        pytest.param(
            lambda found: [found[0], *(line.replace(b"\n", b"\r\n") for line in found[1:])],
            2,
            r"its end was changed to that of a line on Windows \(CR LF\)",
            marks=pytest.mark.regression("fault 341"),
        ),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_the_line(changed, line, problem):
    with pytest.raises(BadFileError, match=problem) as refused:
        checked(changed(SMALL))
    assert refused.value.line == line


def resealed(number, **changed):
    """The small file with a line changed by somebody who can seal."""
    writer, found = LineWriter("0.1.0"), []
    for at, line in enumerate(SMALL, start=1):
        values = json.loads(line)
        values.pop("sha256")
        if "frameledger" in values:
            writer._seal = b""
        found.append(writer._sealed(values | (changed if at == number else {})))
    return found


FROM_ELSEWHERE = [
    pytest.param(*case, marks=pytest.mark.regression("fault 340"))
    for case in (
        (2, {"trace_id": "a\0b"}, 2, "not a line of an export"),
        (2, {"source": "a\0b"}, 2, "not a line of an export"),
        (2, {"logged_at": "0001-01-01T00:00:00+14:00"}, 2, "not a line of an export"),
        (3, {"logged_at": "9999-12-31T23:59:59-14:00"}, 3, "not a line of an export"),
    )
]
"""What PostgreSQL refuses, or stores so that Python cannot read it."""


@pytest.mark.parametrize(
    ("number", "changed", "line", "problem"),
    [
        (2, {"payload": '{"type":"EndFrame"}'}, 2, "does not continue the chain"),
        (2, {"source": "somebody else"}, 2, "does not continue the chain"),
        (3, {"version": 3}, 3, "it is version 3, after version 1"),
        (1, {"chain": "00" * 32}, 1, "the header's chain is not that of version 2"),
        (1, {"version": 1}, 3, "ends at version 1 according to its header"),
        (1, {"format": 2}, 1, "its format is 'conversation' 2, and this release reads"),
        (1, {"context_id": "c"}, 2, "does not continue the chain"),
        (1, {"context_id": ""}, 1, "not a line of an export"),
        (3, {"frame_id": "no id"}, 3, "not a line of an export"),
        (3, {"frame_id": "6d2a1c0e-8f3b-5a47-9c15-3e7d40b8a2f6"}, 3, "the payload has the id 'r1'"),
        (3, {"logged_at": "2026-01-01T00:00:00+00:00"}, 3, "logged before the previous version"),
        (3, {"logged_at": "2026-06-01T00:00:00"}, 3, "not a line of an export"),
        (3, {"payload": 7}, 3, "not a line of an export"),
        *FROM_ELSEWHERE,
    ],
)
def test_a_line_that_was_sealed_anew_has_to_fit_as_well(number, changed, line, problem):
    assert resealed(0) == SMALL
    with pytest.raises(BadFileError, match=problem) as refused:
        checked(resealed(number, **changed))
    assert refused.value.line == line


def test_an_erasure_is_no_part_of_a_conversation():
    found = written(a=[LLMRunFrame(), LLMContextEraseFrame(why="asked")])
    with pytest.raises(BadFileError, match="no export contains an erasure") as refused:
        checked(found)
    assert refused.value.line == 3


def test_an_outcome_that_this_release_gives_otherwise_is_told():
    assert [one.refolded for one in checked(SMALL)] == [(), ()]
    told = checked(resealed(3, outcome="ignored", reason="no_open_turn"))
    assert [one.refolded for one in told] == [(2,), ()]


ATTRIBUTES = {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "sequence", "data"}
"""The first four are required, by section 3.1 of the specification, and no required one may be empty."""


def test_an_event_has_what_cloudevents_requires_and_the_frame_byte_for_byte():
    for seed in range(10):
        frames = [one for one in random_conversation(seed) if not isinstance(one, LLMContextEraseFrame)]
        for row in stored("talk", frames):
            encoded = event("talk", row)
            made = json.loads(encoded)
            assert made.keys() == ATTRIBUTES
            assert made["specversion"] == "1.0"
            assert all(isinstance(made[name], str) and made[name] for name in ATTRIBUTES - {"data"})
            assert datetime.fromisoformat(made["time"]).tzinfo is not None
            assert all(name.isalnum() and name == name.lower() for name in made)
            assert encoded.endswith(b'"data":' + row.payload + b"}")
            assert int(made["sequence"]) == row.version


def test_a_source_that_is_no_uri_reference_is_quoted_and_none_is_named():
    row = stored("talk", [LLMRunFrame()])[0]
    named = row._replace(source="my desk\u00fc", causation_id=row.frame_id)
    assert json.loads(event("talk", named))["source"] == "my%20desk%C3%BC"
    assert json.loads(event("talk", named))["causationid"] == str(row.frame_id)
    assert json.loads(event("talk", row._replace(source=None)))["source"] == "frameledger"


def test_a_batch_of_events_is_an_array_also_of_none():
    out: list[bytes] = []
    CloudEvents(out.append).end()
    assert json.loads(b"".join(out)) == []
