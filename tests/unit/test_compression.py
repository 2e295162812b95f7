"""Sent batches: compressed if they are large enough, and always readable."""

import random

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    _DefaultRecordBatchBuilderPy,
    _DefaultRecordBatchPy,
)

from frameledger_services.event_log.compression import SMALLEST, compressed


def batch(*values):
    builder = _DefaultRecordBatchBuilderPy(2, 0, False, 7, 1, 3, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, 1_000 + number, b"key", value, [("name", b"of a header")])
    return bytes(builder.build())


@pytest.mark.parametrize("reader", [DefaultRecordBatch, _DefaultRecordBatchPy])
@pytest.mark.parametrize("values", [[b"a" * SMALLEST], [b"some text, " * 20] * 300])
def test_a_large_batch_becomes_smaller_and_says_the_same(reader, values):
    plain = batch(*values)
    read = reader(compressed(plain))

    assert len(compressed(plain)) < len(plain)
    assert read.validate_crc()
    assert (read.compression_type, read.producer_id, read.producer_epoch, read.base_sequence) == (3, 7, 1, 3)
    assert [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in read] == [
        (number, 1_000 + number, b"key", value, [("name", b"of a header")])
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize("value", [b"short", random.Random(1).randbytes(2 * SMALLEST)])
def test_what_gains_nothing_stays_as_it_is(value):
    assert compressed(batch(value)) == batch(value)
