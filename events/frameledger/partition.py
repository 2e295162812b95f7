"""The partition of a key, as the clients of Kafka compute it.

A context lives in the partition that Java's default partitioner gives its key. librdkafka, and with it most
languages that are not Java, has another default; `librdkafka_default` is here to explain where such a
record came from.
"""

from zlib import crc32

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of 0 to `partitions` - 1 that holds the frames of this key: murmur2 as in Java and
    aiokafka."""
    _check(partitions)
    # Java makes the hash positive by dropping the sign bit, not by taking the absolute value.
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def librdkafka_default(key: bytes, partitions: int) -> int:
    """Where a client of librdkafka puts this key unless told `partitioner=murmur2_random`: CRC32.

    For a key that is not empty; librdkafka spreads records with an empty one at random.
    """
    _check(partitions)
    return crc32(key) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits with Kafka's seed, as a signed integer: the number that Java shows."""
    aligned = len(data) & ~3
    h = _SEED ^ len(data)
    for i in range(0, aligned, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if aligned < len(data):
        h = (h ^ int.from_bytes(data[aligned:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def _check(partitions: int) -> None:
    if partitions < 1:
        raise ValueError(f"partitions: a topic has at least one, not {partitions}")
