"""The Merkle tree of RFC 6962, section 2.1: one hash over many leaves, and short proofs that a leaf is among them.

    leaf  = sha256(0x00 || data)
    node  = sha256(0x01 || left || right)
    empty = sha256("")

The left half of a tree of n leaves has as many leaves as the largest power of two below n. A path has the side of each
sibling instead of the RFC's index and tree size: these are not part of the root, so a reader who has only the root
could not check them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Literal

from frameledger.values import value

EMPTY = sha256(b"").digest()
"""The root of a tree without leaves."""


@value
class Sibling:
    """A hash on the path from a leaf to the root, and the side of the path on which it is."""

    side: Literal["left", "right"]
    hash: bytes


def leaf_hash(data: bytes) -> bytes:
    """Returns the hash of a leaf, 32 bytes."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Returns the hash of the node above two, 32 bytes."""
    return sha256(b"\x01" + left + right).digest()


def root_through(data: bytes, path: Iterable[Sibling]) -> bytes:
    """Returns the root of the tree in which the leaf of `data` has this path, from the leaf upwards."""
    reached = leaf_hash(data)
    for sibling in path:
        if sibling.side == "left":
            reached = node_hash(sibling.hash, reached)
        else:
            reached = node_hash(reached, sibling.hash)
    return reached


class Tree:
    """A tree to which leaves are added from left to right. Keeps one hash per level, however many leaves there are."""

    def __init__(self) -> None:
        self.size = 0
        """The number of leaves."""

        self._peaks: list[bytes] = []
        """The roots of the complete trees of the leaves, the largest first: one for each bit of `size`."""

        self._path: list[Sibling] = []
        self._traced: int | None = None
        """The index in `_peaks` of the tree that contains the traced leaf, to which `_path` leads."""

    def add(self, data: bytes, *, trace: bool = False) -> None:
        """Add a leaf. With `trace`, `path` is that of this leaf, unless a later one is traced."""
        reached = leaf_hash(data)
        if trace:
            self._path = []
            self._traced = len(self._peaks)
        peaks = self._peaks
        lower = self.size
        self.size += 1
        while lower & 1:
            # The two newest trees have the same size: they are merged.
            left = peaks.pop()
            if self._traced is not None and self._traced >= len(peaks):
                self._climb(left, reached, is_left=self._traced == len(peaks))
                self._traced = len(peaks)
            reached = node_hash(left, reached)
            lower >>= 1
        peaks.append(reached)

    def root(self) -> bytes:
        """Returns the hash of the current tree. More leaves may be added afterwards."""
        if not self._peaks:
            return EMPTY
        *larger, reached = self._peaks
        for left in reversed(larger):
            reached = node_hash(left, reached)
        return reached

    def path(self) -> tuple[Sibling, ...]:
        """Returns the path of the traced leaf to `root()`. Raises `LookupError` if no leaf was traced."""
        if self._traced is None:
            raise LookupError("no leaf was traced")
        path = list(self._path)
        *larger, reached = self._peaks
        for index in range(len(larger), 0, -1):
            left = self._peaks[index - 1]
            if self._traced >= index:
                path.append(Sibling("left", left))
            elif self._traced == index - 1:
                path.append(Sibling("right", reached))
            reached = node_hash(left, reached)
        return tuple(path)

    def _climb(self, left: bytes, right: bytes, *, is_left: bool) -> None:
        self._path.append(Sibling("right", right) if is_left else Sibling("left", left))
