"""JSON values: their copies, and their size, which is counted in the state: whichever way it is made, the bytes are
`json`'s."""

import json
from enum import StrEnum
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger.json_values import json_copy, size

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
"""Any text that JSON can name, also one with half of a surrogate pair."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


def bytes_of(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
    return len(text.encode("utf-8", "surrogatepass"))


@given(VALUES | st.dictionaries(TEXT, TEXT))
def test_the_size_of_a_value_is_that_of_its_compact_json(value):
    assert size(value) == bytes_of(value)


@pytest.mark.parametrize(
    "value",
    [
        {"role": "user", "content": 'Say "I said \\ so",\n\x00\x7f\u2028ä漢😀'},
        {"role": "user", "content": "half \ud83d of it"},
        {"half \ud83d": "of it"},
        {"role": "user", "content": 1e-05},
        {"role": "user", "content": [1e16, -0.0, 10**30]},
        {"role": "user", "content": [{"text": [1e16]}, "text"]},
        MappingProxyType({"role": "user", "content": "It is there."}),
    ],
    ids=[
        "escapes",
        "half of a pair",
        "half of a pair in a name",
        "small float",
        "numbers",
        "a float within",
        "another mapping",
    ],
)
def test_what_two_encoders_write_otherwise_has_one_size(value):
    assert size(value) == bytes_of(value)


class Kind(StrEnum):
    TEXT = "text"


def test_the_copy_of_a_value_takes_what_json_can_write():
    assert json_copy({"type": Kind.TEXT, "sizes": (1, 2.5)}) == {"type": "text", "sizes": [1, 2.5]}
    with pytest.raises(TypeError, match="a set is not a JSON value"):
        json_copy({"sizes": {1}})
