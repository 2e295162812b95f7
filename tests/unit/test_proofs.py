"""Proofs: one verifies against its root without any server, and a changed one does not."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from frameledger.chain import first_link, next_link
from frameledger.leaves import erased_name, leaf, living_name
from frameledger.merkle import Tree
from frameledger.proofs import FORMAT, Link, ProofError, ProofHeader, ProvenFrame, Step, verify

CHAIN = sha256(b"some conversation").digest()

IDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
FRAMES = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
        st.text(st.characters(codec="utf-8"), max_size=30),
    ),
    min_size=1,
    max_size=6,
)


@dataclass(frozen=True)
class Proof:
    """A proof in its lines, and the root that was written down."""

    lines: list[bytes]
    root: bytes

    def changed(self, number: int, line: Any) -> list[bytes]:
        """Its lines, with another value in one of them."""
        return [*self.lines[:number], dumped(line), *self.lines[number + 1 :]]


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def proof_of(context_id, frames, *, others=5, place=2, after=None, erased=False) -> Proof:
    """The proof of a conversation among others. `frames` are sources and payloads; `after` a version and its link."""
    version, chain = after or (0, first_link(context_id))
    lines = []
    for source, payload in frames:
        version += 1
        chain = next_link(chain, version, source, payload.encode())
        lines.append(ProvenFrame(version=version, source=source, payload=payload).model_dump())
    tree = Tree()
    name = erased_name(context_id) if erased else living_name(context_id)
    for number in range(others + 1):
        if number == place:
            tree.add(leaf(name, version, chain), trace=True)
        else:
            tree.add(leaf(b"other-%d" % number, 1, CHAIN))
    header = ProofHeader(
        format=FORMAT,
        context_id=context_id,
        erased=erased,
        after=None if after is None else Link(version=after[0], chain=after[1].hex()),
        version=version,
        chain=chain.hex(),
        path=tuple(Step(side=one.side, hash=one.hash.hex()) for one in tree.path()),
        root=tree.root().hex(),
    )
    return Proof([dumped(header.model_dump()), *map(dumped, lines)], tree.root())


PROOFS = st.builds(
    proof_of,
    IDS,
    FRAMES,
    others=st.integers(0, 9),
    place=st.just(0),
    after=st.none() | st.just((7, CHAIN)),
)


@given(PROOFS)
def test_a_proof_verifies_against_its_root(proof):
    proven = verify(proof.lines, proof.root)

    assert proven.frame_count == len(proof.lines) - 1
    assert proven.header.root == proof.root.hex()
    assert verify(proof.lines) == proven


@given(PROOFS, st.data())
def test_a_proof_with_a_changed_byte_does_not_verify(proof, data):
    text = b"".join(proof.lines)
    place = data.draw(st.integers(0, len(text) - 1))
    flipped = bytearray(text)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    lines = bytes(flipped).split(b"\n")
    if not lines[-1]:
        lines.pop()
    assume(content(lines) != content(proof.lines))

    with pytest.raises(ProofError):
        verify(lines, proof.root)


@given(PROOFS, st.data())
def test_a_proof_with_a_changed_value_does_not_verify(proof, data):
    number = data.draw(st.integers(0, len(proof.lines) - 1))
    line = json.loads(proof.lines[number])
    changed = with_one_value_changed(line, data)

    with pytest.raises(ProofError):
        verify(proof.changed(number, changed), proof.root)


@given(PROOFS, st.data())
def test_a_proof_without_a_frame_or_with_one_more_does_not_verify(proof, data):
    number = data.draw(st.integers(1, len(proof.lines) - 1))
    for lines in (
        proof.lines[:number] + proof.lines[number + 1 :],
        [*proof.lines[: number + 1], *proof.lines[number:]],
        proof.lines[:number],
        proof.lines[number:],
    ):
        with pytest.raises(ProofError):
            verify(lines, proof.root)


def test_two_frames_that_changed_places_are_found_also_if_they_are_numbered_anew():
    proof = proof_of("talk", [(None, "a"), (None, "b"), (None, "c")])
    header, a, b, c = map(json.loads, proof.lines)
    lines = [header, {**b, "version": 1}, {**a, "version": 2}, c]

    with pytest.raises(ProofError, match="do not lead to the chain"):
        verify(map(dumped, lines), proof.root)


def test_another_history_with_its_own_root_is_only_found_with_the_root_that_lies_elsewhere():
    written_down = proof_of("talk", [(None, "the truth")]).root
    forged = proof_of("talk", [(None, "a lie")])

    assert verify(forged.lines).frame_count == 1
    with pytest.raises(ProofError, match="another root"):
        verify(forged.lines, written_down)


def test_no_source_and_an_empty_one_are_two_things():
    proof = proof_of("talk", [(None, "a")])
    frame = json.loads(proof.lines[1])

    with pytest.raises(ProofError):
        verify(proof.changed(1, {**frame, "source": ""}), proof.root)


def test_a_payload_is_proved_as_it_was_stored():
    payload = '{"b": 1,  "a": "\\u00e9 \\ud83d", "é": 1.0}\r\n '
    proof = proof_of("talk", [(None, payload)])

    assert json.loads(proof.lines[1])["payload"] == payload
    assert verify(proof.lines, proof.root).frame_count == 1
    with pytest.raises(ProofError):
        verify(
            proof.changed(1, {**json.loads(proof.lines[1]), "payload": payload.replace("  ", " ")}),
            proof.root,
        )


def test_a_conversation_alone_in_its_database_is_proved_without_a_path():
    proof = proof_of("talk", [("web", "a")], others=0, place=0)

    assert json.loads(proof.lines[0])["path"] == []
    assert verify(proof.lines, proof.root).frame_count == 1


def test_what_an_erased_conversation_leaves_is_proved_and_is_no_living_one():
    proof = proof_of("talk", [], after=(3, CHAIN), erased=True)
    header = {**json.loads(proof.lines[0]), "after": None}
    lines = proof.changed(0, header)

    proven = verify(lines, proof.root)
    assert "receipt of the erased conversation 'talk'" in proven.statement()
    for wrong in ({**header, "erased": False}, {**header, "context_id": "walk"}, {**header, "version": 4}):
        with pytest.raises(ProofError):
            verify(proof.changed(0, wrong), proof.root)
    with pytest.raises(ProofError, match="has frames"):
        verify([*lines, dumped({"version": 4, "source": None, "payload": "a"})], proof.root)


def test_a_proof_says_what_it_proves():
    whole = verify(proof_of("talk", [(None, "a"), (None, "b")]).lines).statement()
    rest = verify(proof_of("talk", [(None, "a")], after=(7, CHAIN)).lines).statement()

    assert "had 2 frames, exactly those of this file and in its order, from its first frame on" in whole
    assert (
        "had 1 frame, exactly those of this file and in its order, after version 7; what was before is not"
        in rest
    )


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"format": "frameledger-proof/2"}'])
def test_what_is_no_proof_is_refused_with_the_line(text):
    with pytest.raises(ProofError, match="Line 1 is not part of a proof"):
        verify([text])


def content(lines: list[bytes]) -> Any:
    """The values of a file; None if it is not JSON Lines."""
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        return None


def with_one_value_changed(line: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    places = list(values(line))
    place = data.draw(st.sampled_from(places))
    inner: Any = line
    for key in place[:-1]:
        inner = inner[key]
    old = inner[place[-1]]
    inner[place[-1]] = data.draw(other_than(old))
    return line


def values(inner: Any, place: tuple[Any, ...] = ()) -> Any:
    """The places of all values that are no objects or lists, and of the empty lists."""
    if isinstance(inner, dict):
        for key, one in inner.items():
            yield from values(one, (*place, key))
    elif isinstance(inner, list) and inner:
        for index, one in enumerate(inner):
            yield from values(one, (*place, index))
    else:
        yield place


def other_than(old: Any) -> st.SearchStrategy[Any]:
    numbers = st.integers(-2, 2**63) | st.just(old + 1 if isinstance(old, int) else 0)
    link = st.just({"version": 1, "chain": "0" * 64})
    step = st.just([{"side": "left", "hash": "0" * 64}])
    texts = st.text(st.characters(codec="utf-8"), max_size=70)
    if isinstance(old, str):
        texts |= st.sampled_from([old + "x", old[:-1], old.upper(), old.swapcase(), " " + old])
    everything = st.none() | st.booleans() | numbers | texts | link | step
    return everything.filter(lambda new: type(new) is not type(old) or new != old)
