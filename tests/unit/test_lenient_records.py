"""Batches from a broker with header names in any encoding."""

import random

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchBuilderPy

from frameledger_services.event_log.lenient_records import LenientRecords

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Name(str):
    """The name of a header with bytes of its own."""

    def encode(self, *_):
        return b"na\xffme"


def batch(*records, codec=0, base_offset=0):
    builder = _DefaultRecordBatchBuilderPy(2, codec, False, -1, -1, -1, 1 << 20)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, 1_000 + number, key, value, headers)
    built = builder.build()
    built[:8] = base_offset.to_bytes(8, "big")
    return bytes(built)


def read(data):
    records = LenientRecords(data)
    while records.has_next():
        yield from records.next_batch()


def shown(records):
    return [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in records
    ]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_name_that_is_no_utf8_is_read_with_replacement_characters(codec):
    data = batch(
        (b"a", b"1", [("plain", b"x")]),
        (b"a", b"2", [("first", b"\xff"), (Name("name"), None)]),
        (b"a", b"3", []),
        codec=codec,
    )
    assert shown(read(data)) == [
        (0, 1_000, b"a", b"1", [("plain", b"x")]),
        (1, 1_001, b"a", b"2", [("first", b"\xff"), ("na\N{REPLACEMENT CHARACTER}me", None)]),
        (2, 1_002, b"a", b"3", []),
    ]


def test_the_batches_behind_it_are_read_too():
    data = batch((b"a", b"1", [(Name("name"), b"")])) + batch((b"a", b"2", []), base_offset=1)
    assert [(record.offset, record.value) for record in read(data)] == [(0, b"1"), (1, b"2")]


def test_what_is_cut_off_at_the_end_of_a_fetch_is_left_for_the_next_one():
    data = batch((b"a", b"1", [])) + batch((b"a", b"2", []), base_offset=1)[:-3]
    assert [record.value for record in read(data)] == [b"1"]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_batches_without_such_a_name_read_as_aiokafka_reads_them(codec):
    draw = random.Random(codec)
    data = batch(
        *(
            (
                draw.randbytes(5),
                None if number % 7 == 0 else draw.randbytes(200),
                [("n\u00e4me", draw.randbytes(9))],
            )
            for number in range(50)
        ),
        codec=codec,
    )
    assert shown(read(data)) == shown(DefaultRecordBatch(data))


def test_a_batch_that_is_broken_otherwise_is_an_error_as_before():
    data = bytearray(batch((b"key", b"value", [])))
    # The length of its only record, a byte of zigzag.
    data[61] += 2
    with pytest.raises(CorruptRecordException):
        list(read(bytes(data)))
