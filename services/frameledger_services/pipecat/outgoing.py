"""Encodes captured items as frames to publish, with reproducible ids. Pure; the caller draws the session's id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson

from frameledger.record import DecodeError
from frameledger_services.client import EncodedFrame
from frameledger_services.pipecat.capture import CHANGES, FIELDS, ON_THE_LOG
from frameledger_services.pipecat.captured_frame import Fields, TranslationState
from frameledger_services.pipecat.captured_items import Item
from frameledger_services.pipecat.mirror import Appended, Change, Positions, Replaced, Rewritten
from frameledger_services.pipecat.numbered_ids import OWN, NumberedIds
from frameledger_services.pipecat.omitted import SUBSTITUTED, with_omissions
from frameledger_services.pipecat.pending import GAP, Waiting
from frameledger_services.pipecat.translate import translate

SIZE_OF_ONE = 800_000
"""Approximate size of a frame with several messages; topics accept a megabyte by default. A message is not split."""

MAX_GAPS = 200
"""Maximum removed messages. A history with more is published again: the fold does not track older gaps."""


class Encoder:
    """Encodes the captured items of one session."""

    def __init__(self, session: UUID) -> None:
        self._mirror = str(session)
        self._ids = NumberedIds(session)
        self._state = TranslationState()
        self._own = 0
        self.refused_here = 0
        """The number of frames that could not be encoded, such as those of more than 8 MiB. Their messages and results
        are substituted; any other frame is replaced by one with its type and the error."""
        self.positions = Positions()

    def encode(self, item: Item) -> list[Waiting]:
        """Returns the frames of a captured item. Call it once for each item, in order."""
        sequence, ns, at, captured, model = item
        if at == CHANGES:
            frames = [fields for change in captured for fields in self._change(change)]
        elif at == FIELDS:
            frames = captured
        elif at == ON_THE_LOG:
            translate(captured, at, ns, self._state, model)
            frames = []
        else:
            frames = translate(captured, at, ns, self._state, model)
        return [
            self._waiting(fields, ns, self._ids.of(sequence, number)) for number, fields in enumerate(frames)
        ]

    def own(self, fields: Fields, ns: int) -> Waiting:
        """Returns a frame that the bridge itself adds."""
        self._own += 1
        return self._waiting(fields, ns, self._ids.of(OWN + self._own))

    def history(self, ns: int) -> list[Waiting]:
        """Returns all messages as a new era, to which the positions of later rewrites refer."""
        return [self.own(fields, ns) for fields in self._replace(tuple(self.positions.messages))]

    def gap(self, counts: dict[str, int], first_ns: int, last_ns: int) -> Waiting:
        counts_and_times = {
            "frames": counts,
            "first": _time(first_ns // 1_000_000),
            "last": _time(last_ns // 1_000_000),
        }
        return self.own({"type": GAP, **counts_and_times}, last_ns)

    def replacement_of(self, rejected: Waiting, why: str) -> Waiting:
        """Returns the frame that replaces one that the broker rejects: one with substitutes for its messages or result
        if it is much smaller, otherwise one that describes it."""
        if rejected.kind in SUBSTITUTED:
            fields = {key: value for key, value in json.loads(rejected.frame.encoded).items() if key != "id"}
            substitute = with_omissions(fields, why, lambda _: False)
            # A removal has no message to substitute.
            if (
                substitute is not None
                and (smaller := self.own(substitute, rejected.ns)).size * 2 < rejected.size
            ):
                return smaller
        digest = hashlib.sha256(rejected.frame.encoded).hexdigest()
        description = {
            "type": "pipecat/RefusedFrame",
            "refused": rejected.kind,
            "bytes": rejected.size,
            "sha256": digest,
        }
        return self.own({**description, "why": why[:500]}, rejected.ns)

    def _change(self, change: Change) -> list[Fields]:
        if isinstance(change, Replaced):
            return self._replace(change.messages)
        position = self.positions.apply(change)
        if isinstance(change, Appended):
            return [_messages("LLMMessagesAppendFrame", part) for part in parts_of(change.messages)]
        assert isinstance(change, Rewritten)
        known = self.positions
        if known.next_position - 1 - len(known.messages) > MAX_GAPS:
            return self._replace(tuple(known.messages))
        return [{"type": "LLMMessageRewriteFrame", "position": position, "message": change.message}]

    def _replace(self, messages: tuple[Any, ...]) -> list[Fields]:
        self.positions.begin(messages)
        first, *others = parts_of(messages) or [()]
        appends = [_messages("LLMMessagesAppendFrame", part) for part in others]
        return [_messages("LLMMessagesUpdateFrame", first), *appends]

    def _waiting(self, fields: Fields, ns: int, id_: str) -> Waiting:
        # Each frame names its mirror. So frames of a replaced process change nothing, and frames that arrive after an
        # erasure do not begin a conversation that workers would answer.
        about = {"id": id_, "produced_at": _time(ns // 1_000_000), "mirror": self._mirror}
        try:
            frame = _encoded(fields | about)
        except (ValueError, DecodeError) as error:
            self.refused_here += 1
            frame = self._substitute(fields | about, str(error)) or _encoded(
                {
                    "type": "pipecat/UntranslatedFrame",
                    "name": fields["type"],
                    "error": str(error)[:500],
                    **about,
                }
            )
        return Waiting(frame.frame.type, ns, len(frame.encoded), frame)

    def _substitute(self, fields: Fields, why: str) -> EncodedFrame | None:
        """Returns the frame with substitutes for what cannot be encoded; None if it has no messages or result."""
        if fields["type"] not in SUBSTITUTED:
            return None
        substitute = with_omissions(fields, why, _is_storable)
        return None if substitute is None or not _is_storable(substitute) else _encoded(substitute)


def _messages(kind: str, messages: Iterable[Any]) -> Fields:
    return {"type": kind, "messages": list(messages)}


def parts_of(messages: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Returns the messages in groups, one for each frame."""
    parts: list[tuple[Any, ...]] = []
    part: list[Any] = []
    size = 0
    for message in messages:
        length = len(_dumped(message))
        if part and size + length > SIZE_OF_ONE:
            parts.append(tuple(part))
            part, size = [], 0
        part.append(message)
        size += length
    return [*parts, tuple(part)] if part else parts


def _encoded(fields: Fields) -> EncodedFrame:
    return EncodedFrame.of(_dumped(fields))


def _is_storable(fields: Fields) -> bool:
    try:
        _encoded(fields)
    except (ValueError, DecodeError):
        return False
    return True


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        # Integers of more than 64 bits, and lone surrogates.
        return json.dumps(value, separators=(",", ":")).encode("ascii")


@lru_cache(maxsize=64)
def _time(ms: int) -> str:
    """Returns the time in ISO format. Cached, because many frames of a burst have the same millisecond."""
    return datetime.fromtimestamp(ms / 1e3, UTC).isoformat(timespec="milliseconds")
