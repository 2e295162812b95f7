"""Entries of a timeline: each frame by itself, or the consecutive frames of one streamed text together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import asdict, dataclass

from frameledger_services.cli.terminal import escape
from frameledger_services.store.history import TimelineFrame

STREAMED = {"LLMTextFrame", "VisionTextFrame", "TextFrame", "LLMThoughtTextFrame"}
"""Frames that extend a response or a thought by some text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a timeline: a frame, or several frames of one streamed text, from `version` to `to_version`."""

    version: int
    to_version: int
    frames: int
    first: TimelineFrame
    last: TimelineFrame
    said: str | None


async def folded(frames: AsyncIterable[TimelineFrame], *, everything: bool) -> AsyncGenerator[Entry, None]:
    """Yields consecutive frames of one streamed text as one entry, unless `everything` is set, and all others
    unchanged."""
    held: Entry | None = None
    async for frame in frames:
        if held is not None and not everything and _goes_on(held.last, frame):
            text = held.said or ""
            if len(text) < escape.LONGEST:
                text += frame.said or ""
            held = Entry(held.version, frame.version, held.frames + 1, held.first, frame, text)
            continue
        if held is not None:
            yield held
        held = Entry(frame.version, frame.version, 1, frame, frame, frame.said)
    if held is not None:
        yield held


def as_object(entry: Entry) -> dict[str, object]:
    """Returns the entry as JSON: its first frame, the last version, and the number of frames."""
    fields: dict[str, object] = {
        "version": entry.version,
        "to_version": entry.to_version,
        "frames": entry.frames,
    }
    return fields | asdict(entry.first) | {"said": entry.said}


def _goes_on(before: TimelineFrame, frame: TimelineFrame) -> bool:
    """Returns whether the frame continues the streamed text of the previous one."""
    return (
        frame.type in STREAMED
        and frame.did is None
        and (frame.type, frame.run_id, frame.outcome, frame.reason)
        == (before.type, before.run_id, before.outcome, before.reason)
    )
