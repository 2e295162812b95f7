"""The Merkle tree of RFC 6962: published test vectors, and the RFC's own definition."""

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger.merkle import EMPTY, Sibling, Tree, leaf_hash, node_hash, root_through

LEAVES = [
    bytes.fromhex(data)
    for data in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""Of the first leaf, the first two ...: the test vectors of Certificate Transparency."""

PATHS = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
"""By the index of the leaf and the number of leaves."""

SIZES = range(1, 71)


def test_the_empty_tree_is_the_hash_of_nothing():
    assert Tree().root() == EMPTY == sha256(b"").digest()


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_those_of_certificate_transparency(size):
    assert grown(LEAVES[:size]).root().hex() == ROOTS[size - 1]


@pytest.mark.parametrize(("index", "size"), PATHS)
def test_paths_are_those_of_certificate_transparency(index, size):
    path = grown(LEAVES[:size], index).path()

    assert [sibling.hash.hex() for sibling in path] == PATHS[index, size]


@pytest.mark.parametrize("size", SIZES)
def test_every_leaf_of_a_tree_of_any_size_has_the_path_of_the_rfc(size):
    leaves = numbered(size)
    root = tree_hash(leaves)

    assert grown(leaves).root() == root
    for index in range(size):
        path = grown(leaves, index).path()
        assert [sibling.hash for sibling in path] == audit_path(index, leaves)
        assert root_through(leaves[index], path) == root


@pytest.mark.parametrize("size", SIZES)
def test_a_path_holds_for_its_leaf_only(size):
    leaves = numbered(size)
    path = grown(leaves, size // 2).path()
    reached = [index for index in range(size) if root_through(leaves[index], path) == tree_hash(leaves)]

    assert reached == [size // 2]


@given(st.lists(st.binary(max_size=40), max_size=70))
def test_a_tree_that_grows_has_the_root_of_the_definition(leaves):
    assert grown(leaves).root() == tree_hash(leaves)


def test_a_root_may_be_asked_for_at_any_time():
    tree = Tree()
    for size, data in enumerate(numbered(20), start=1):
        tree.add(data, trace=size == 5)
        assert tree.root() == tree_hash(numbered(size))
        if size >= 5:
            assert [one.hash for one in tree.path()] == audit_path(4, numbered(size))


def test_without_a_traced_leaf_there_is_no_path():
    with pytest.raises(LookupError):
        grown(LEAVES).path()


def test_a_tree_keeps_a_hash_for_each_level_and_no_leaf():
    tree = grown([b"x"] * 100_000)

    assert len(tree._peaks) == (100_000).bit_count()


def test_the_side_of_a_sibling_counts():
    [sibling] = grown([b"a", b"b"], 0).path()

    assert sibling == Sibling("right", leaf_hash(b"b"))
    assert root_through(b"a", [Sibling("left", sibling.hash)]) == node_hash(leaf_hash(b"b"), leaf_hash(b"a"))


def numbered(size: int) -> list[bytes]:
    return [str(number).encode() for number in range(size)]


def grown(leaves: Sequence[bytes], traced: int | None = None) -> Tree:
    tree = Tree()
    for index, data in enumerate(leaves):
        tree.add(data, trace=index == traced)
    return tree


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, word for word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = largest_power_below(len(leaves))
    return sha256(b"\x01" + tree_hash(leaves[:k]) + tree_hash(leaves[k:])).digest()


def audit_path(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1, word for word."""
    if len(leaves) == 1:
        return []
    k = largest_power_below(len(leaves))
    if m < k:
        return [*audit_path(m, leaves[:k]), tree_hash(leaves[k:])]
    return [*audit_path(m - k, leaves[k:]), tree_hash(leaves[:k])]


def largest_power_below(n: int) -> int:
    return 1 << (n - 1).bit_length() - 1
