"""The partition of a key, as Kafka's clients compute it.

A context is in the partition that Java's default partitioner computes for its key. librdkafka, and with it most
languages other than Java, has another default; `librdkafka_default` explains where such a record came from.
"""

from zlib import crc32

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """Returns the partition, from 0 to `partitions` - 1, of the frames with this key: murmur2 as in Java and
    aiokafka."""
    _check(partitions)
    # Java makes the hash positive by dropping the sign bit, not by taking the absolute value.
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def librdkafka_default(key: bytes, partitions: int) -> int:
    """Returns the partition that a client of librdkafka uses for this key without `partitioner=murmur2_random`: CRC32.

    The key must not be empty: librdkafka distributes records with an empty one randomly.
    """
    _check(partitions)
    return crc32(key) % partitions


def murmur2(data: bytes) -> int:
    """Returns the 32-bit MurmurHash2 with Kafka's seed, as a signed integer, as in Java."""
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
