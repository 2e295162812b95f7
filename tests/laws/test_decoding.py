"""Whatever the bytes, decoding results in a frame or a `DecodeError`, and all ways to decode agree."""

import json
from math import isfinite

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json
from tests.unit.frame_examples import EXAMPLES

from frameledger.decode_error import REASONS, DecodeError
from frameledger.decoding import decode
from frameledger.frames import encode_frame
from frameledger.record import Record, read
from frameledger.strict_json import is_surely_strict, loads

VALUES = [encode_frame(example) for example in EXAMPLES]
# What is put into a frame to break it, or to look as if it did.
PIECES = [
    b"NaN", b"-Infinity", b"1e400", b"9" * 310, b'"', b"\\", b"\\u0000", b"\\ud83d", b"\xed\xa0\xbd", b"\xff",
    b"[", b"]" * 3, b"{", b"}", b",", b":", b"null", b"true", b"-1", b"1.0", b"\x00", b"\xef\xbb\xbf",
    b'"v":2,', b'"id":7,', b'"type":"LLMRunFrame",', b"[" * 99, "€".encode() * 90,
]  # fmt: skip


@st.composite
def _mutated(draw):
    """Returns the bytes of a frame with some removed and some inserted."""
    value = draw(st.sampled_from(VALUES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(value)))
        end = min(len(value), start + draw(st.integers(0, 12)))
        value = value[:start] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + value[end:]
    return value


def _outcome(function, value):
    try:
        return function(value)
    except DecodeError as refused:
        return refused


def _numbers(value):
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [value] if isinstance(value, int | float) else []


@given(_mutated() | st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_a_decode_error(value):
    outcome = _outcome(decode, value)
    if isinstance(outcome, DecodeError):
        assert outcome.reason in REASONS
        assert outcome.detail.isprintable()
        assert len(outcome.detail) <= 300
    else:
        assert decode(encode_frame(outcome)) == outcome


@given(_mutated())
def test_what_is_read_as_a_frame_is_strict_json(value):
    if not isinstance(_outcome(decode, value), DecodeError):
        assert all(map(isfinite, _numbers(json.loads(value.decode()))))


@given(
    st.none() | st.binary(max_size=300),
    st.none() | st.sampled_from(VALUES),
    st.lists(
        st.tuples(
            st.sampled_from(["ce_source", "ce_id", "traceparent", "fl_forwarded_from", "x"]),
            st.none() | st.binary(max_size=80),
        )
    ),
)
def test_no_header_makes_a_record_unreadable(key, value, headers):
    bare = _outcome(read, Record("t", 0, 0, key, value))
    full = _outcome(read, Record("t", 0, 0, key, value, tuple(headers)))
    if isinstance(bare, DecodeError):
        assert str(full) == str(bare)
    else:
        assert (full.context_id, full.frame) == (bare.context_id, bare.frame)


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
SPACES = st.sampled_from(["", " ", "\n\t"])
LOOKS = st.sampled_from(["NaN", "1e400", '"', "\\", "[", "]", "{", ":1e9,", "e", "I", "\\ud83d", "é"])
STRINGS = st.lists(LOOKS | st.text(max_size=3), max_size=6).map(lambda parts: json.dumps("".join(parts)))
SCALARS = NUMBERS | STRINGS | st.sampled_from(["null", "true", "false", "NaN", "Infinity", "-Infinity"])


@st.composite
def _arrays(draw, values):
    space = draw(SPACES)
    return f"[{space}{f'{space},{space}'.join(draw(st.lists(values, max_size=4)))}{space}]"


@st.composite
def _objects(draw, values):
    space = draw(SPACES)
    pairs = draw(st.lists(st.tuples(STRINGS, values), max_size=4))
    return "{" + f"{space},".join(f"{key}{space}:{space}{value}" for key, value in pairs) + space + "}"


JSON_TEXT = st.recursive(SCALARS, lambda values: _arrays(values) | _objects(values), max_leaves=12)


@given(JSON_TEXT.map(lambda text: f'{{"a":{text}}}'.encode()))
def test_the_quick_look_never_passes_what_the_parser_refuses(value):
    outcome = _outcome(loads, value)
    if isinstance(outcome, DecodeError):
        assert outcome.reason in ("not_a_number", "number_out_of_range")
        assert not is_surely_strict(value)
    else:
        assert all(map(isfinite, _numbers(outcome)))


@given(JSON_TEXT.map(lambda text: f'{{"a":{text}}}'.encode()))
def test_what_passes_is_read_alike_by_the_fast_parser(value):
    if is_surely_strict(value):
        try:
            fast = from_json(value)
        except ValueError:
            assert b"\\ud" in value  # a half of a character, which the fast parser refuses
        else:
            assert fast == loads(value)
