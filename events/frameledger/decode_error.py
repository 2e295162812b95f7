"""Why bytes were rejected as a frame."""

from typing import Literal, get_args

from frameledger.errors import RefusedError

Reason = Literal[
    "empty",
    "too_large",
    "encrypted",
    "bad_key",
    "byte_order_mark",
    "not_utf8",
    "not_json",
    "not_a_number",
    "number_out_of_range",
    "too_deep",
    "not_an_object",
    "no_type",
    "bad_version",
    "bad_id",
    "invalid_field",
]
"""Stored with the rejected bytes: names may be added here and never change.

- `empty`: no value, or one of no bytes
- `too_large`: more than `decoding.MAX_VALUE_BYTES`
- `encrypted`: the record says that it is encrypted, and this release reads no encrypted records
- `bad_key`: the record's key is not a context id
- `byte_order_mark`, `not_utf8`, `not_json`: the bytes are not JSON text
- `not_a_number`: NaN or an infinity
- `number_out_of_range`: a number beyond a double, or one of too many digits
- `too_deep`: arrays and objects that are nested too deeply (`strict_json.MAX_DEPTH`)
- `not_an_object`: JSON, but not an object
- `no_type`, `bad_version`: `type` is missing or not text; `v` is not an integer of 1 or more
- `bad_id`: an id that is not text of 1 to 255 bytes without NUL
- `invalid_field`: a field that is missing, or has a value that the type of the frame does not allow
"""

REASONS: tuple[str, ...] = get_args(Reason)

_LONGEST_DETAIL = 300


class DecodeError(RefusedError):
    """Bytes that are not a valid frame. The same bytes fail again, with the same reason.

    `reason` is for programs, `detail` for people: one printable line that says what is wrong, where, and what would be
    right. It quotes little of the bytes, and no other attribute contains them, so that it can be logged and stored.

    Remedy: Set the bytes aside, or have their publisher correct what `detail` names.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason: Reason = reason
        self.detail = _one_line(detail)
        super().__init__(reason, self.detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def excerpt(text: str) -> str:
    """Returns the beginning of `text`, quoted, for a detail."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _one_line(text: str) -> str:
    if len(text) > _LONGEST_DETAIL:
        text = text[: _LONGEST_DETAIL - 3] + "..."
    return "".join(
        c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
