"""Strict JSON: no NaN, no number beyond a double, no unlimited nesting.

Lenient parsers accept more, and the fast one that is used here is lenient. So there are two checks: a fast test of
bytes that such a parser has accepted, which nearly all frames pass at a fraction of the cost of parsing, and an exact
parser. Both take time in proportion to the length of their input.
"""

import codecs
import json
from itertools import accumulate
from math import isinf
from typing import Any, NoReturn

from frameledger.decode_error import DecodeError, excerpt

MAX_DEPTH = 100
"""Maximum nesting depth of arrays and objects, including the outermost."""

MAX_DIGITS = 4300
"""Maximum number of digits of a number, including its exponent. By default Python reads no longer integers."""


def is_surely_strict(value: bytes) -> bool:
    """Returns whether JSON text in UTF-8, known to be valid except for what is checked here, is certainly strict.

    False means that only `loads` can decide: text inside strings may look like what is searched for. No test can miss
    anything; how they work is explained at the tables below.
    """
    if _N in value and b"NaN" in value:
        return False
    reduced = value.translate(_CLASSES, _NOISE)
    if reduced.find(b",e,") >= 0:
        return False
    # A level has two brackets, and commas only increase the count.
    if len(reduced) > 2 * MAX_DEPTH and reduced.count(b",") > 2 * MAX_DEPTH and _is_too_deep(value):
        return False
    return (
        len(value) < _OVERFLOWING_DIGITS
        or value[::_STRIDE].translate(_DIGITS_ALIKE).find(_DIGITS_IN_A_ROW) < 0
    )


def loads(value: bytes) -> Any:
    """Returns the JSON value that these bytes encode, as the standard library reads it: the last of duplicate keys
    counts, and lone surrogate escapes become lone surrogates. Raises only `DecodeError`, for bytes that are not strict
    JSON in UTF-8.
    """
    if value.startswith(codecs.BOM_UTF8):
        raise DecodeError(
            "byte_order_mark", "the value begins with a byte order mark; JSON in UTF-8 has none"
        )
    text = _decoded(value)
    # Before parsing: the parser recurses at each level.
    if _is_too_deep(value):
        raise DecodeError("too_deep", f"arrays and objects are more than {MAX_DEPTH} levels deep")
    try:
        return _PARSER.decode(text)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        problem = DecodeError("not_json", f"{error.msg.removesuffix(' at')} at byte {at}")
    # Outside the handler, here and below: an error that is being handled keeps the whole text alive.
    raise problem


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        hint = (
            "; it looks like UTF-16" if value.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
        )
        problem = DecodeError(
            "not_utf8", f"the value is not UTF-8 at byte {error.start} ({error.reason}){hint}"
        )
    raise problem


def _is_too_deep(value: bytes) -> bool:
    """Returns whether the JSON is nested too deeply. Exact for JSON; for other bytes it is true at least whenever a
    parser would recurse too deeply."""
    if value.count(b"[") + value.count(b"{") <= MAX_DEPTH:
        return False
    # Backslashes occur only in strings. Without the escaped ones and the escaped quotes, the remaining quotes begin and
    # end strings, so that every second piece is outside.
    bare = value.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(bare.split(b'"')[::2]).translate(_STEPS, _NO_BRACKETS)
    # Each round removes only the innermost level, so that a long list of messages is soon short.
    rest = brackets
    for rounds in range(1, 5):
        rest = rest.replace(b"\x01\xff", b"")
        if rest.count(b"\x01") + rounds <= MAX_DEPTH:
            return False
    return max(accumulate(memoryview(brackets).cast("b")), default=0) > MAX_DEPTH


def _integer(digits: str) -> int:
    _check_number(digits)
    return int(digits)


def _float(digits: str) -> float:
    _check_number(digits)
    return float(digits)


def _check_number(digits: str) -> None:
    if len(digits) > MAX_DIGITS and sum(map(str.isdigit, digits)) > MAX_DIGITS:
        raise DecodeError(
            "number_out_of_range", f"the number {excerpt(digits)} has more than {MAX_DIGITS} digits"
        )
    if isinf(float(digits)):
        raise DecodeError(
            "number_out_of_range", f"the number {excerpt(digits)} is beyond what a double can hold"
        )


def _refuse_constant(name: str) -> NoReturn:
    raise DecodeError("not_a_number", f"{name} is not JSON; use null for a missing number")


_PARSER = json.JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_refuse_constant)


def _table(classes: dict[bytes, bytes]) -> bytes:
    """Returns a translation that maps each byte of a key to the value, and leaves the others."""
    table = bytearray(range(256))
    for members, representative in classes.items():
        for member in members:
            table[member] = representative[0]
    return bytes(table)


def _all_but(excluded: bytes) -> bytes:
    return bytes(set(range(256)) - set(excluded))


# Infinity, and every number with an exponent, is between two of `[ ] { } : ,` or spaces. Delete digits, signs, points,
# spaces and most letters, among them all of `nfity`; map the punctuation to one character, and `e`, `E` and `I` to
# another: both become `,e,`, and so does 1e400. Quotes and the letters of `_KEPT_LETTERS` stay, so that `true`, `false`
# and most prose look different: of 18,000 messages of real conversations, three did not. NaN has an N, which is rare
# enough to be searched for by itself.
_KEPT_LETTERS = b"lorsu"
_CLASSES = _table({b"[]{}:,": b",", b"eEI": b"e"})
_NOISE = _all_but(b'[]{}:,"eEI' + _KEPT_LETTERS)
_N = ord("N")

# An integer is beyond a double if it has 309 digits, and so many in a row put a nine into every thirty-second byte.
_OVERFLOWING_DIGITS = 309
_STRIDE = 32
_DIGITS_IN_A_ROW = b"0" * (_OVERFLOWING_DIGITS // _STRIDE)
_DIGITS_ALIKE = _table({b"0123456789": b"0"})

# As signed bytes, one level down and one level up.
_STEPS = _table({b"[{": b"\x01", b"]}": b"\xff"})
_NO_BRACKETS = _all_but(b"[]{}")
