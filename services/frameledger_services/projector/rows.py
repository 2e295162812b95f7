"""The rows that a batch writes, by table: collected during the fold, written at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from frameledger.frames import LLMContextEraseFrame
from frameledger.record import Record
from frameledger_services.store.erasures import Erasure
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.store.valid_to import FOR_EVER

Key = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_FIRST, _LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
"""Between these a time has a year of Python's in every time zone: a session reads it in its own."""

_FIRST_MS, _LAST_MS = (int((one - _EPOCH) / timedelta(milliseconds=1)) for one in (_FIRST, _LAST))


class FrameRow(NamedTuple):
    """A row of `frames`: as a tuple it is written as it is."""

    context_id: str
    version: int
    frame_id: UUID
    logged_at: datetime
    produced_at: datetime | None
    offset: int
    partition: int
    type: str
    outcome: str
    reason: str | None
    run_id: str | None
    tool_call_id: str | None
    source: str | None
    trace_id: str | None
    chain: bytes
    payload: bytes
    generation: int
    causation_id: UUID | None


@dataclass(slots=True)
class MessageRow:
    """A row of `messages`. `inherits` says that its `run_id` is that of the row it replaces, written earlier."""

    context_id: str
    era: int
    position: int
    valid_from: int
    valid_to: int
    role: str | None
    text: str | None
    run_id: str | None
    message: bytes
    said_at: datetime
    inherits: bool = False


@dataclass(slots=True)
class DeadLetterRow:
    """A record that cannot be folded, and why: a row of `rejected_frames`."""

    record: Record
    code: str
    error: str
    context_id: str | None = None

    @property
    def logged_at(self) -> datetime | None:
        return None if self.record.timestamp_ms is None else at(self.record.timestamp_ms)


@dataclass(slots=True)
class Rows:
    """All rows that one transaction writes, in the order of the fold."""

    frames: list[FrameRow] = field(default_factory=list)
    written: list[MessageRow] = field(default_factory=list)
    ended: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Messages of earlier batches that are no longer current: context, era, position, version."""

    eras: list[tuple[str, int, int]] = field(default_factory=list)
    settings: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    new_runs: dict[Key, dict[str, Any]] = field(default_factory=dict)
    run_patches: dict[Key, dict[str, Any]] = field(default_factory=dict)
    new_calls: dict[Key, dict[str, Any]] = field(default_factory=dict)
    call_patches: dict[Key, dict[str, Any]] = field(default_factory=dict)
    settled: list[tuple[str, str]] = field(default_factory=list)
    """Function and end of each call that was settled, for the metrics."""

    outbox: list[OutboxRow] = field(default_factory=list)
    rejections: list[DeadLetterRow] = field(default_factory=list)
    late: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of frames of erased lives that were left out, by context and the version of the erasure."""

    erasures: dict[str, Erasure] = field(default_factory=dict)
    """What is erased once these rows are written, some of them with it: by context. What follows stands in another
    `Rows`."""

    _newest: dict[tuple[str, int, int], MessageRow] = field(default_factory=dict)

    def write_message(self, row: MessageRow) -> None:
        self.written.append(row)
        self._newest[row.context_id, row.era, row.position] = row

    def end_message(self, context_id: str, era: int, position: int, version: int) -> MessageRow | None:
        """End what stands at a position; the row itself if this batch wrote it."""
        row = self._newest.pop((context_id, era, position), None)
        if row is None:
            self.ended.append((context_id, era, position, version))
        else:
            row.valid_to = version
        return row

    def messages(self) -> list[MessageRow]:
        """Returns the rows to insert, without those that were written and ended by the same frame."""
        return [row for row in self.written if row.valid_from < row.valid_to]

    def run(self, context_id: str, run_id: str) -> dict[str, Any]:
        """Returns the changed columns of a run, to be updated in place."""
        key = (context_id, run_id)
        new = self.new_runs.get(key)
        return new if new is not None else self.run_patches.setdefault(key, {})

    def call(self, context_id: str, requested_version: int, ordinal: int) -> dict[str, Any]:
        """Returns the changed columns of a call, to be updated in place."""
        key = (context_id, requested_version, ordinal)
        new = self.new_calls.get(key)
        return new if new is not None else self.call_patches.setdefault(key, {})


@lru_cache(maxsize=1_024)
def at(timestamp_ms: int) -> datetime:
    """A record's time as the database keeps it, the nearest that it can keep. What a producer sent together has one
    time."""
    return _EPOCH + timedelta(milliseconds=min(max(timestamp_ms, _FIRST_MS), _LAST_MS))


def time_of(written: object) -> datetime | None:
    """Parse a time of a publisher. Returns None for text that is not a time, a time without an offset, and one
    before `_FIRST` or after `_LAST`."""
    if not isinstance(written, str):
        return None
    try:
        parsed = datetime.fromisoformat(written)
        return parsed if parsed.tzinfo is not None and _FIRST <= parsed <= _LAST else None
    except (ValueError, OverflowError):
        return None


def open_row(
    context_id: str,
    era: int,
    position: int,
    version: int,
    run_id: str | None,
    message: Any,
    encoded: bytes,
    said_at: datetime,
) -> MessageRow:
    """The row of a message that is valid from this version on."""
    role, text = readable(message)
    return MessageRow(context_id, era, position, version, FOR_EVER, role, text, run_id, encoded, said_at)


def readable(message: Any) -> tuple[str | None, str | None]:
    """Who speaks, and what a person reads of a message: views show these two and never look into its JSON."""
    if "llm" in message and "message" in message:
        inner = message["message"]
        return clean(str(message["llm"])), _text_of_item(inner) if isinstance(inner, dict) else None
    role, content = message.get("role"), message.get("content")
    said = text_of_content(content)
    if said is None or not said.strip():
        # Providers send empty content beside calls.
        said = _text_of_calls(message.get("tool_calls")) or said
    return clean(role) if isinstance(role, str) else None, said


def erasure_of(
    context_id: str, version: int, frame: LLMContextEraseFrame, partition: int, offset: int
) -> Erasure:
    """What a frame erases that is stored at this version, of a record at this place."""
    requested_by = clean_or_none(frame.requested_by)
    return Erasure(context_id, version, clean(frame.why), requested_by, partition, offset)


def clean(text: str) -> str:
    """Returns the text without NUL, the one character of JSON that a `text` column refuses."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}") if "\x00" in text else text


def clean_or_none(text: str | None) -> str | None:
    """As `clean`; None stays None."""
    return None if text is None else clean(text)


_OF_ITEMS = ("text", "refusal")


def _text_of_item(item: dict[str, Any]) -> str | None:
    """The text of a message in a provider's own form, by the fields of OpenAI's items: what a message says, a call with
    its arguments, its output, or the summary of a reasoning."""
    if isinstance(text := item.get("text"), str):
        return clean(text)
    match item.get("type"):
        case "function_call":
            return clean(f"{item.get('name')}({item.get('arguments')})")
        case "function_call_output":
            return text_of_content(item.get("output"), _OF_ITEMS)
        case "reasoning":
            return text_of_content(item.get("summary"), _OF_ITEMS)
        case _:
            return text_of_content(item.get("content"), _OF_ITEMS)


def text_of_content(content: Any, names: tuple[str, ...] = ("text",)) -> str | None:
    """The text of a message's content, in its parts under the first of these names that they have; None if it has none,
    or is no content of a known form."""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        return None
    parts = (part for part in content if isinstance(part, dict))
    texts = (next((part[name] for name in names if name in part), None) for part in parts)
    return clean(" ".join(text for text in texts if isinstance(text, str))) or None


def _text_of_calls(tool_calls: Any) -> str | None:
    if not isinstance(tool_calls, list):
        return None
    functions = [call.get("function") for call in tool_calls if isinstance(call, dict)]
    called = [f"{one.get('name')}({one.get('arguments')})" for one in functions if isinstance(one, dict)]
    return clean(", ".join(called)) or None
