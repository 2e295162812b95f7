"""Keys belong to the same partitions as with Kafka's own clients."""

import pytest

from frameledger.partition import librdkafka_default, murmur2, partition_for

# The first six are vectors of Kafka's own tests; the last two were computed with aiokafka, for bytes above 127.
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    "Zürich ☂".encode(): 1476021358,
    bytes(range(128, 256)): 872916902,
}

# Of a thousand partitions, as the tests of Kafka's clients have them.
OF_A_THOUSAND = {b"": 681, b"a": 524, b"ab": 434, b"abc": 107, b"123456789": 566, b"\x00 ": 742}


@pytest.mark.parametrize(("key", "expected"), HASHES.items())
def test_murmur2_is_the_number_that_java_shows(key, expected):
    assert murmur2(key) == expected


@pytest.mark.parametrize(("key", "expected"), OF_A_THOUSAND.items())
def test_a_key_goes_where_other_clients_put_it(key, expected):
    assert partition_for(key, 1000) == expected


def test_a_negative_hash_loses_its_sign_bit_before_the_modulo():
    assert partition_for(b"21", 1000) == (-973932308 + 2**31) % 1000


def test_every_partition_is_used_and_no_other():
    assert {partition_for(b"context-%d" % n, 8) for n in range(200)} == set(range(8))


def test_one_partition_takes_everything():
    assert {partition_for(key, 1) for key in HASHES} == {0}


def test_the_default_of_librdkafka_is_crc32():
    assert librdkafka_default(b"123456789", 2**32) == 0xCBF43926
    assert librdkafka_default(b"123456789", 10) == 0xCBF43926 % 10


@pytest.mark.parametrize("partitions", [0, -1])
@pytest.mark.parametrize("partitioner", [partition_for, librdkafka_default])
def test_a_topic_without_partitions_is_a_mistake(partitioner, partitions):
    with pytest.raises(ValueError, match="partitions"):
        partitioner(b"key", partitions)
