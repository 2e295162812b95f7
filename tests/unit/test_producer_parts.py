"""What the producer is sure of before it speaks to a broker."""

import random

from aiokafka.partitioner import DefaultPartitioner

from frameledger.partition import partition_for


def test_keys_go_where_aiokafka_puts_them():
    draw, theirs = random.Random(7), DefaultPartitioner()
    keys = [draw.randbytes(length) for length in range(256)]
    for partitions in (1, 8, 12, 64):
        everything = list(range(partitions))
        assert [partition_for(key, partitions) for key in keys] == [
            theirs(key, everything, everything) for key in keys
        ]
