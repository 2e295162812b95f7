"""The lines of an export file: sealed by hashes when they are written, verified when they are read.

A file has one or more conversations, each a header followed by its frames in order, one JSON object per line:

    {"frameledger":"conversation","format":1,"release":"0.1.0","context_id":"ctx-1","version":2,"chain":"…",
     "sha256":"…"}
    {"version":1,"frame_id":"…","type":"LLMRunFrame",…,"chain":"…","payload":"{\\"type\\":…}","sha256":"…"}

`payload` is the value of the record as a JSON string: decoded, it is byte for byte the text that was received, with its
spaces, order of keys and escapes. `chain` is the link of the conversation's hash chain, which fixes payloads, sources
and order. `sha256` seals the rest: it is the hash of the seal of the line before (of nothing, for a header) and of this
line up to its `,"sha256"`. So a changed byte is found in its line, and files can be joined with `cat`.

A seal shows that a file is unchanged, not who wrote it: a program that changes a line can seal it again. But it cannot
forge the head of the chain if that was recorded elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, BinaryIO, TypeVar
from uuid import UUID

import orjson

from frameledger.chain import first_link, next_link
from frameledger.errors import RefusedError
from frameledger.record import MAX_VALUE_BYTES, is_context_id
from frameledger.values import value
from frameledger_services.store.transfer import Exported, ExportedFrame

FORMAT = 1
KIND = "conversation"

MAX_LINE = 6 * MAX_VALUE_BYTES + 64 * 1024
"""Each byte of a payload can take six bytes in a JSON string; the other members are short."""

T = TypeVar("T")

_SEAL = b',"sha256":"'
_SEAL_BYTES = len(_SEAL) + 64 + len(b'"}')


class BadFileError(RefusedError):
    """An exported file was changed after it was written, or has a format that this release does not read. The message
    names the line.

    Remedy: Export the conversation again, or copy the file again. Everything before that line is unchanged.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


@value
class Header:
    """The first line of a conversation."""

    line: int
    release: str
    context_id: str
    version: int
    chain: bytes


@value
class FrameLine:
    """The line of a frame. Other fields of the line are derived from the payload; they are in the file for readers."""

    line: int
    version: int
    frame_id: UUID
    source: str | None
    logged_at: datetime
    causation_id: UUID | None
    trace_id: str | None
    chain: bytes
    outcome: str
    reason: str | None
    payload: bytes


class LineWriter:
    """Creates the lines of conversations, in order."""

    def __init__(self, release: str) -> None:
        self._release = release
        self._seal = b""

    def header(self, head: Exported) -> bytes:
        """Returns the header of a conversation."""
        self._seal = b""
        return self._sealed(
            {
                "frameledger": KIND,
                "format": FORMAT,
                "release": self._release,
                "context_id": head.context_id,
                "version": head.version,
                "chain": head.chain.hex(),
            }
        )

    def frame(self, frame: ExportedFrame) -> bytes:
        """Returns the line of the next frame."""
        return self._sealed(
            {
                "version": frame.version,
                "frame_id": str(frame.frame_id),
                "type": frame.type,
                "source": frame.source,
                "logged_at": _time(frame.logged_at),
                "produced_at": None if frame.produced_at is None else _time(frame.produced_at),
                "causation_id": None if frame.causation_id is None else str(frame.causation_id),
                "trace_id": frame.trace_id,
                "run_id": frame.run_id,
                "tool_call_id": frame.tool_call_id,
                "place": {
                    "generation": frame.generation,
                    "partition": frame.partition,
                    "offset": frame.offset,
                },
                "outcome": frame.outcome,
                "reason": frame.reason,
                "chain": frame.chain.hex(),
                "payload": frame.payload.decode(),
            }
        )

    def _sealed(self, values: dict[str, Any]) -> bytes:
        body = orjson.dumps(values)[:-1]
        self._seal = sha256(self._seal + body).digest()
        return body + _SEAL + self._seal.hex().encode() + b'"}\n'


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file. A line that is too long for an export is cut, but not so short that it passes."""
    while line := file.readline(MAX_LINE + 2):
        yield line


def read(lines: Iterable[bytes]) -> Iterator[Header | FrameLine]:
    """Yields the lines of a file after checking the seal, the version and the link of each, that a conversation has as
    many frames as its header says, and that no conversation occurs twice. Raises `BadFileError`."""
    conversation: _Conversation | None = None
    names = set[str]()
    seal, number = b"", 0
    for number, line in enumerate(lines, start=1):
        is_header = line.startswith(b'{"frameledger":')
        values, seal = _unsealed(number, line, b"" if is_header else seal)
        if is_header:
            if conversation is not None:
                conversation.check_whole(number)
            header = _parsed(_header, number, values)
            if header.context_id in names:
                raise BadFileError(number, f"{header.context_id!r} occurs twice in this file")
            names.add(header.context_id)
            conversation = _Conversation(header)
            yield header
        elif conversation is None:
            raise BadFileError(number, "it is a frame without a conversation; a header must come first")
        else:
            frame = _parsed(_frame, number, values)
            conversation.add(frame)
            yield frame
    if conversation is None:
        raise BadFileError(max(number, 1), "there is no conversation in this file")
    conversation.check_whole(number + 1)


class _Conversation:
    """The part of a conversation that was read so far."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._version = 0
        self._chain = first_link(header.context_id)

    def add(self, frame: FrameLine) -> None:
        """Raises `BadFileError` unless this is the next frame."""
        line, name = frame.line, self._header.context_id
        if frame.version != self._version + 1:
            raise BadFileError(line, f"it is version {frame.version}, after version {self._version}")
        self._version = frame.version
        self._chain = next_link(self._chain, frame.version, frame.source, frame.payload)
        if self._chain != frame.chain:
            raise BadFileError(line, f"version {frame.version} does not continue the chain of {name!r}")
        if frame.version > self._header.version:
            raise BadFileError(
                line, f"{name!r} ends at version {self._header.version} according to its header"
            )

    def check_whole(self, line: int) -> None:
        """Raises `BadFileError` unless it was complete before this line."""
        header = self._header
        if self._version != header.version:
            raise BadFileError(
                line,
                f"{header.context_id!r} ends at version {self._version}, but its header says {header.version}",
            )
        if self._chain != header.chain:
            raise BadFileError(header.line, f"the header's chain is not that of version {self._version}")


def _parsed(parse: Callable[[int, dict[str, Any]], T], number: int, values: dict[str, Any]) -> T:
    try:
        return parse(number, values)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFileError(number, f"it is not a line of an export: {error!r}") from error


def _unsealed(number: int, line: bytes, seal: bytes) -> tuple[dict[str, Any], bytes]:
    content = line[:-1] if line.endswith(b"\n") else line
    if len(content) > MAX_LINE:
        raise BadFileError(number, "it is longer than any line of an export")
    body, tail = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    now = sha256(seal + body).digest()
    if tail != _SEAL + now.hex().encode() + b'"}':
        if content.endswith(b"\r"):
            raise BadFileError(number, "its end was changed to that of a line on Windows (CR LF)")
        raise BadFileError(number, "it was changed, or does not follow the line before it")
    try:
        values = orjson.loads(body + b"}")
    except orjson.JSONDecodeError as error:
        raise BadFileError(number, f"it is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadFileError(number, "it is not a JSON object")
    return values, now


def _header(number: int, values: dict[str, Any]) -> Header:
    if values["format"] != FORMAT or values["frameledger"] != KIND:
        raise BadFileError(
            number,
            f"its format is {values['frameledger']!r} {values['format']!r}, and this release reads {KIND!r} {FORMAT}",
        )
    context_id = _text(values["context_id"])
    if not is_context_id(context_id):
        raise ValueError("context_id")
    version = _whole_number(values["version"])
    if version < 1:
        raise ValueError("version")
    return Header(number, _text(values["release"]), context_id, version, _link(values["chain"]))


def _frame(number: int, values: dict[str, Any]) -> FrameLine:
    cause, reason = values["causation_id"], values["reason"]
    source, trace_id = values["source"], values["trace_id"]
    return FrameLine(
        number,
        _whole_number(values["version"]),
        UUID(_text(values["frame_id"])),
        None if source is None else _text(source),
        _moment(values["logged_at"]),
        None if cause is None else UUID(_text(cause)),
        None if trace_id is None else _text(trace_id),
        _link(values["chain"]),
        _text(values["outcome"]),
        None if reason is None else _text(reason),
        _text(values["payload"]).encode(),
    )


def _text(item: object) -> str:
    if not isinstance(item, str):
        raise TypeError(f"{item!r} is not text")
    if "\0" in item:
        # PostgreSQL would refuse it, after the check of the file.
        raise ValueError(f"{item!r} has a NUL character")
    return item


def _whole_number(item: object) -> int:
    if not isinstance(item, int) or isinstance(item, bool):
        raise TypeError(f"{item!r} is not a version")
    return item


def _link(item: object) -> bytes:
    link = bytes.fromhex(_text(item))
    if len(link) != 32:
        raise ValueError("chain")
    return link


def _moment(item: object) -> datetime:
    moment = datetime.fromisoformat(_text(item))
    if moment.tzinfo is None:
        raise ValueError("logged_at")
    try:
        # Outside the years 1 to 9999 of UTC it could be stored, but no Python program could read it.
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{moment.isoformat()} is not a time") from error


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
