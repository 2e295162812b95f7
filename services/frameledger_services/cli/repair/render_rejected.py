"""A dead letter for a terminal: text as text, other bytes in hexadecimal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from frameledger.record import FIRST_GENERATION
from frameledger_services.control_characters import escaped
from frameledger_services.store.dead_letters import DeadLetter

MAX_BYTES = 4_096
"""Maximum bytes of a value that are shown; --raw writes all of them."""

BYTES_A_LINE = 16


def lines(letter: DeadLetter) -> Iterator[str]:
    """Yields the lines to print, with control characters escaped."""
    generation = "" if letter.generation == FIRST_GENERATION else f", generation {letter.generation}"
    yield f"where     {letter.topic}, partition {letter.partition}, offset {letter.offset}{generation}"
    yield f"logged    {_time(letter.logged_at) or 'unknown'}"
    yield f"set aside {_time(letter.recorded_at)}"
    if letter.retried_at is not None:
        yield f"retried   {_time(letter.retried_at)}"
    yield f"error     {escaped(f'{letter.code}: {letter.error}')}"
    headers = letter.record_headers
    if headers is None:
        yield f"headers   unreadable: {escaped(letter.headers[:MAX_BYTES])}"
    for name, value in headers or ():
        yield f"header    {escaped(name)}: {'-' if value is None else _readable(value)}"
    yield f"key       {'none' if letter.key is None else _readable(letter.key)}"
    if letter.value is None:
        yield "value     none"
        return
    yield f"value     {len(letter.value):,} bytes:"
    yield from _lines(letter.value[:MAX_BYTES])
    if len(letter.value) > MAX_BYTES:
        yield f"... {len(letter.value) - MAX_BYTES:,} bytes more (--raw writes all)"


def _lines(value: bytes) -> Iterator[str]:
    """Yields text as text, and other bytes in hexadecimal."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if error.start < len(value) - 3 or error.reason != "unexpected end of data":
            yield from _hexadecimal(value)
            return
        text = value[: error.start].decode()
    yield from (escaped(line) for line in text.split("\n"))


def _hexadecimal(value: bytes) -> Iterator[str]:
    for start in range(0, len(value), BYTES_A_LINE):
        part = value[start : start + BYTES_A_LINE]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{start:06x}  {part.hex(' '):<{3 * BYTES_A_LINE}} {printable}"


def _readable(value: bytes) -> str:
    try:
        return escaped(value.decode())
    except UnicodeDecodeError:
        return f"hex {value.hex(' ')}"


def _time(time: datetime | None) -> str | None:
    return None if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
