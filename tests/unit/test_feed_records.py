"""Entries of a partition besides records: markers, aborted transactions, and compacted records."""

import asyncio

import pytest
from aiokafka.protocol.fetch import FetchRequest_v4, FetchRequest_v5, FetchRequest_v11
from tests.support.brokers_in_memory import ABORT, COMMIT, Brokers
from tests.support.feeds import (
    TOPIC,
    of,
    reading,
    soon,  # noqa: F401  # a fixture
)
from tests.support.turns import turns

pytestmark = pytest.mark.usefixtures("soon")


@pytest.mark.parametrize("request_class", [FetchRequest_v4, FetchRequest_v5, FetchRequest_v11])
def test_only_what_was_committed_is_read_and_markers_are_passed(request_class):
    async def run():
        brokers = Brokers(TOPIC, {0: 1}, request_class)
        brokers.append(0, b"a")
        brokers.append(0, b"kept 1", producer=7)
        brokers.append(0, b"dropped 1", b"dropped 2", producer=8)
        brokers.append(0, b"kept 2", producer=7)
        async with reading(brokers, p0=0) as (_, taking, _):
            await taking.until(lambda: taking.got == [(0, b"a")])
            brokers.end(0, 8, ABORT)
            brokers.append(0, b"b")
            brokers.end(0, 7, COMMIT)
            # The same producer, whose next transaction counts.
            brokers.append(0, b"kept 3", producer=8)
            brokers.end(0, 8, COMMIT)
            await taking.until(lambda: len(taking.got) == 5)
            assert of(taking.got, 0) == [b"a", b"kept 1", b"kept 2", b"b", b"kept 3"]
            brokers.append(0, b"dropped 3", producer=8)
            brokers.end(0, 8, ABORT)
            # Nothing of this is a record, and the partition is read behind it.
            await turns()
            assert brokers.asked[-1] == (1, {0: 12})

    asyncio.run(run())


def test_an_aborted_transaction_is_not_read_from_its_middle_either():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"dropped 1", producer=8)
        brokers.append(0, b"dropped 2", b"dropped 3", producer=8)
        brokers.end(0, 8, ABORT)
        brokers.append(0, b"a")
        async with reading(brokers, p0=2) as (_, taking, _):
            await taking.until(lambda: taking.got)
            assert taking.got == [(0, b"a")]

    asyncio.run(run())


def test_what_was_compacted_away_is_passed():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, None, b"a", None, b"b", None)
        brokers.append(0, None, None)
        async with reading(brokers, p0=0) as (_, taking, _):
            await taking.until(lambda: taking.got)
            await turns()
            assert taking.got == [(0, b"a"), (0, b"b")]
            assert brokers.asked[-1] == (1, {0: 7})

    asyncio.run(run())


def test_what_lies_before_the_offset_in_the_same_batch_is_not_read_again():
    async def run():
        brokers = Brokers(TOPIC, {0: 1})
        brokers.append(0, b"a", b"b", b"c")
        async with reading(brokers, p0=2) as (_, taking, _):
            await taking.until(lambda: taking.got)
            assert taking.got == [(0, b"c")]

    asyncio.run(run())
