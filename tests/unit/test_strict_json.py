"""Strict JSON: invalid text is rejected, by the fast parser and by the exact one."""

import json

import pytest

from frameledger.decode_error import DecodeError
from frameledger.strict_json import MAX_DEPTH, MAX_DIGITS, is_surely_strict, loads

MIB = 1024 * 1024


def nested(levels):
    """An object with arrays in it, as many levels as asked for."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def objects(levels):
    return b'{"a":' * levels + b"0" + b"}" * levels


REFUSED = {
    "NaN": (b'{"a":NaN}', "not_a_number"),
    "NaN in an array": (b'{"a": [ NaN ]}', "not_a_number"),
    "Infinity": (b'{"a":Infinity}', "not_a_number"),
    "minus Infinity": (b'{"a":-Infinity}', "not_a_number"),
    "minus Infinity between spaces": (b'{"a" :\n -Infinity\t}', "not_a_number"),
    "NaN under a key that is repeated": (b'{"a":NaN,"a":1}', "not_a_number"),
    "a float beyond a double": (b'{"a":1e400}', "number_out_of_range"),
    "a negative float beyond a double": (b'{"a":[1,-1.5E+309]}', "number_out_of_range"),
    "a float beyond a double between spaces": (b'{"a": 1e400 }', "number_out_of_range"),
    "a float just beyond a double": (b'{"a":1.8e308}', "number_out_of_range"),
    "a long mantissa with a short exponent": (b'{"a":%se99}' % (b"9" * 250), "number_out_of_range"),
    "an integer of 309 digits beyond a double": (b'{"a":%s}' % (b"9" * 309), "number_out_of_range"),
    "an integer of 400 digits": (b'{"a":-%s}' % (b"9" * 400), "number_out_of_range"),
    "an integer of 5,000 digits": (b'{"a":%s}' % (b"9" * 5000), "number_out_of_range"),
    "a fraction of 4,301 digits": (b'{"a":0.%s}' % (b"5" * MAX_DIGITS), "number_out_of_range"),
    "an exponent of 5,000 digits": (b'{"a":0e%s}' % (b"5" * 5000), "number_out_of_range"),
    "a number out of range under a repeated key": (b'{"a":1e400,"a":1}', "number_out_of_range"),
    "101 levels of arrays": (nested(101), "too_deep"),
    "101 levels of objects": (objects(101), "too_deep"),
    "101 levels beside brackets in strings": (b'{"b":"]]\\"]]","a":' + nested(100) + b"}", "too_deep"),
    "101 levels each after a closing bracket in a string": (
        b'["]",' * 101 + b"0" + b"]" * 101,
        "too_deep",
    ),
}

ACCEPTED_BY_BOTH = {
    "an empty object": b"{}",
    "literals": b'{"a":true,"b":false,"c":null}',
    "numbers": b'{"a":0,"b":-1,"c":1.5,"d":-0.0,"e":12345678901234567890123}',
    "words": b'{"a":"Infinitely many, even so, and I said to Inez: yes."}',
    "hexadecimal digits that look like an exponent": b'{"id":"1b4e28ba-1e40-11d2-883f-0016d3cc1e40"}',
    "100 levels of arrays": nested(100),
    "100 levels of objects": objects(100),
    "a list of a thousand short messages": b'{"a":[' + b",".join([b'{"b":[{"c":{}}]}'] * 1000) + b"]}",
    "brackets in a string": b'{"a":"' + b"[{" * 200 + b'"}',
    "brackets in a string beside escaped quotes": b'{"a":"\\\\\\"' + b"[{" * 200 + b'\\\\","b":[]}',
    "the same letter many times": b'{"a":"' + b"x" * MIB + b'"}',
}

ACCEPTED_BY_LOADS = {
    "a word between commas that looks like a number": b'{"a":"So, I, too"}',
    "text NaN": b'{"a":"NaN"}',
    "text that looks like numbers": b'{"a":"[,1e400,]:NaN,-Infinity, 1e400"}',
    "small exponents": b'{"a":[1e-7,2E5,1e+3]}',
    "the largest double": b'{"a":1.7976931348623157e308}',
    "a number too small for a double": b'{"a":1e-400}',
    "the largest integer of 309 digits": b'{"a":1%s}' % (b"0" * 308),
    "a fraction of 4,300 digits": b'{"a":0.%s}' % (b"5" * (MAX_DIGITS - 1)),
    "a string of digits": b'{"a":"' + b"7" * 5000 + b'"}',
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_strict_is_refused_with_its_reason(value, reason):
    with pytest.raises(DecodeError) as refused:
        loads(value)
    assert refused.value.reason == reason


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_the_quick_look_lets_nothing_through(value, reason):
    assert not is_surely_strict(value)


@pytest.mark.parametrize("value", ACCEPTED_BY_BOTH.values(), ids=ACCEPTED_BY_BOTH)
def test_what_is_plain_passes_the_quick_look_and_the_parser(value):
    assert is_surely_strict(value)
    assert loads(value) == json.loads(value)


@pytest.mark.parametrize("value", ACCEPTED_BY_LOADS.values(), ids=ACCEPTED_BY_LOADS)
def test_what_only_looks_wrong_is_left_to_the_parser(value):
    assert not is_surely_strict(value)
    assert loads(value) == json.loads(value)


@pytest.mark.parametrize(
    ("value", "reason"),
    {
        "a byte order mark": (b'\xef\xbb\xbf{"a":1}', "byte_order_mark"),
        "UTF-16 with its mark": ('{"a":1}'.encode("utf-16"), "not_utf8"),
        "UTF-16 without a mark": ('{"a":1}'.encode("utf-16-le"), "not_json"),
        "UTF-32": ('{"a":1}'.encode("utf-32"), "not_utf8"),
        "Latin-1": (b'{"a":"\xe9"}', "not_utf8"),
        "a surrogate in UTF-8": (b'{"a":"\xed\xa0\xbd"}', "not_utf8"),
        "an overlong NUL": (b'{"a":"\xc0\x80"}', "not_utf8"),
        "nothing": (b"", "not_json"),
        "spaces": (b"  \n", "not_json"),
        "half an object": (b'{"a":', "not_json"),
        "two objects": (b'{"a":1}{"a":1}', "not_json"),
        "a comma too many": (b'{"a":1,}', "not_json"),
        "a line break in a string": (b'{"a":"\n"}', "not_json"),
        "an escape that is none": (b'{"a":"\\x41"}', "not_json"),
        "single quotes": (b"{'a':1}", "not_json"),
        "a number with a leading zero": (b'{"a":01}', "not_json"),
        "a number that begins with a point": (b'{"a":.5}', "not_json"),
        "NUL between tokens": (b'{"a":\x001}', "not_json"),
    }.values(),
)
def test_what_is_no_json_text_is_refused_with_its_reason(value, reason):
    with pytest.raises(DecodeError) as refused:
        loads(value)
    assert refused.value.reason == reason


def test_the_place_of_a_fault_is_told_in_bytes():
    with pytest.raises(DecodeError, match="at byte 13"):
        loads('{"a":"ééé"!}'.encode())
    with pytest.raises(DecodeError, match="at byte 7"):
        loads(b'{"a":"e\xff"}')


def test_the_last_of_duplicate_keys_counts():
    assert loads(b'{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}


def test_halves_of_characters_that_meet_are_joined_and_others_stay():
    assert loads(b'["\\ud83d\\ude00","\\ud83d","\\u0000"]') == ["\U0001f600", "\ud83d", "\x00"]


# Each of two megabytes, and each answered in one go: an answer that takes time in proportion to the square of
# the length would not come.
LONG = {
    "opening brackets": (b"[" * 2 * MIB, "too_deep"),
    "opening braces with keys": (b'{"a":' * (2 * MIB // 5), "too_deep"),
    "pairs of brackets": (b"[" + b"[]," * (2 * MIB // 3), "not_json"),
    "digits": (b"9" * 2 * MIB, "number_out_of_range"),
    "a fraction": (b"0." + b"9" * 2 * MIB, "number_out_of_range"),
    "backslashes": (b'"' + b"\\" * (2 * MIB - 1), "not_json"),
    "escaped quotes": (b'"' + b'\\"' * (MIB - 1), "not_json"),
    "quotes": (b'"' * 2 * MIB, "not_json"),
    "brackets and quotes": (b'["' * MIB, "too_deep"),
    "spaces": (b" " * 2 * MIB, "not_json"),
    "zeros": (b"\x00" * 2 * MIB, "not_json"),
    "minus signs": (b"-" * 2 * MIB, "not_json"),
    "the letter N": (b"N" * 2 * MIB, "not_json"),
}


@pytest.mark.parametrize(("value", "reason"), LONG.values(), ids=LONG)
def test_megabytes_of_anything_are_answered(value, reason):
    with pytest.raises(DecodeError) as refused:
        loads(value)
    assert refused.value.reason == reason
    assert is_surely_strict(value) in (True, False)


def test_ten_thousand_levels_do_not_exhaust_the_stack():
    with pytest.raises(DecodeError, match=f"more than {MAX_DEPTH} levels"):
        loads(nested(10_000))
