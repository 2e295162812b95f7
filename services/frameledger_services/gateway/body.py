"""The body of an append, split into the exact bytes of its frames."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request

from frameledger.decode_error import DecodeError
from frameledger.decoding import MAX_VALUE_BYTES
from frameledger.frames import AnyFrame
from frameledger.record import decode
from frameledger_services.gateway.media_types import JSON, NDJSON
from frameledger_services.gateway.problems import ProblemError

MAX_BYTES = MAX_VALUE_BYTES
MAX_FRAMES = 500

SHORT_BYTES = 100_000
"""A larger body is parsed outside of the event loop: parsing megabytes can take seconds."""

MAX_SECONDS = 30.0
MIN_RATE = 1_000
"""Bytes a second. The bytes that have arrived extend the time limit of a body at this rate, so a slow body is accepted,
and one that stalls is not."""

JSON_TYPES = (JSON, "")
LINES_TYPES = (NDJSON, "application/jsonl")

_ARRAY = msgspec.json.Decoder(
    msgspec.defstruct(
        "_ARRAY", [(f"element_{n}", msgspec.Raw, None) for n in range(MAX_FRAMES + 1)], array_like=True
    )
)
"""Decodes one element more than the allowed number of frames, and skips the others: a list of all elements can take
sixty times the memory of the body."""

_NOT_BLANK = re.compile(rb"\S")
_DECODER = json.JSONDecoder()
_BLANK = " \t\r\n"


async def read(request: Request) -> list[tuple[bytes, AnyFrame]]:
    """Returns the frames of a request, each with its bytes, in their order; at least one.

    Raises the problems `unsupported-media-type`, `too-large`, `too-slow` and `bad-frame`, before anything is published.
    """
    body = await read_bytes(request, (*JSON_TYPES, *LINES_TYPES))
    is_lines = _kind(request) in LINES_TYPES
    # Most bodies take less time than switching to a thread and back.
    return (
        _frames(body, is_lines)
        if len(body) <= SHORT_BYTES
        else await asyncio.to_thread(_frames, body, is_lines)
    )


def _frames(body: bytes, is_lines: bool) -> list[tuple[bytes, AnyFrame]]:
    """Returns the frames of a body, which is NDJSON if `is_lines`."""
    values = _lines(body) if is_lines else _elements(body)
    if not values:
        raise ProblemError("bad-frame", "The body has no frame.", code="empty", frame=1)
    if len(values) > MAX_FRAMES:
        raise ProblemError("too-large", f"The body has more than {MAX_FRAMES} frames.")
    return [(one, _frame(one, number)) for number, one in enumerate(values, 1)]


async def read_bytes(request: Request, kinds: Sequence[str]) -> bytes:
    """Returns the body of a request with one of these media types. Raises `unsupported-media-type`, also for a
    compressed body, and the problems of `received`."""
    if (kind := _kind(request)) not in kinds:
        accepted = " or ".join(one for one in kinds if one)
        raise ProblemError("unsupported-media-type", f"Content-Type must be {accepted}, not {kind[:100]!r}.")
    _check_plain(request)
    return await received(request, MAX_BYTES, f"The body has more than {MAX_BYTES} bytes.")


async def received(request: Request, most: int, too_large: str) -> bytes:
    """Returns the body of a request. Raises `too-large`, with this sentence, if it has more than `most` bytes,
    `too-slow` if it is not complete within `MAX_SECONDS`, plus a second for each `MIN_RATE` bytes, after its head,
    and `bad-parameter` if it ends early: its client is gone, which is no failure of the gateway."""
    pieces, size = [], 0
    began_at = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began_at + MAX_SECONDS) as limit:
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    raise ProblemError("too-large", too_large, headers={"Connection": "close"})
                pieces.append(piece)
                limit.reschedule(began_at + MAX_SECONDS + size / MIN_RATE)
    except ClientDisconnect:
        raise ProblemError("bad-parameter", "The body ended early.") from None
    except TimeoutError:
        raise ProblemError(
            "too-slow",
            f"Only {size} bytes of the body came in {MAX_SECONDS + size / MIN_RATE:.0f} s.",
            headers={"Connection": "close"},
        ) from None
    return b"".join(pieces)


def _check_plain(request: Request) -> None:
    """Raise `unsupported-media-type` for a body with a content coding: it is not decoded here."""
    for header in request.headers.getlist("content-encoding"):
        for coding in (one.strip().lower() for one in header.split(",")):
            if coding not in ("", "identity"):
                raise ProblemError(
                    "unsupported-media-type",
                    f"Content-Encoding: {coding[:100]!r} is not decoded here. Send the body as it is.",
                    headers={"Accept-Encoding": "identity"},
                )


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _lines(body: bytes) -> list[bytes]:
    """Returns the lines that are not blank, but at most one more than the allowed number of frames."""
    lines = list[bytes]()
    at = 0
    while len(lines) <= MAX_FRAMES and (found := _NOT_BLANK.search(body, at)) is not None:
        begin = max(at, body.rfind(b"\n", at, found.start()) + 1)
        end = body.find(b"\n", found.start())
        at = len(body) if end == -1 else end + 1
        lines.append(body[begin:at].removesuffix(b"\n"))
    return lines


def _elements(body: bytes) -> list[bytes]:
    """The elements of an array, at most one more than are allowed; or the whole body, which is one frame."""
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        return [body]
    try:
        elements = msgspec.structs.astuple(_ARRAY.decode(body))
        return [bytes(one) for one in elements if one is not None]
    except (msgspec.MsgspecError, RecursionError):
        # It also refuses unpaired surrogates, which a text may begin or end with.
        return _cut(body) or [body]


def _cut(body: bytes) -> list[bytes]:
    """Returns the elements of an array, slowly; none if it is not an array: our decoder then reports the error."""
    elements = list[bytes]()
    try:
        text = body.decode()
        at, separator = text.index("["), ","
        while separator == ",":
            begin = _behind_spaces(text, at + 1)
            end = _DECODER.raw_decode(text, begin)[1]
            elements.append(text[begin:end].encode())
            if len(elements) > MAX_FRAMES:
                return elements
            at = _behind_spaces(text, end)
            separator = text[at]
        is_whole = separator == "]" and _behind_spaces(text, at + 1) == len(text)
    except (ValueError, IndexError, RecursionError):
        return []
    return elements if is_whole else []


def _behind_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _frame(value: bytes, number: int) -> AnyFrame:
    try:
        return decode(value)
    except DecodeError as error:
        raise refused(error, number) from None


def refused(error: DecodeError, number: int) -> ProblemError:
    """Returns the problem that a frame of a body, counted from 1, cannot be read."""
    word = "too-large" if error.reason == "too_large" else "bad-frame"
    return ProblemError(word, error.detail, code=error.reason, frame=number)
