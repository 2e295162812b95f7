"""A gateway's responses as the values that a `Client` returns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from frameledger.context import LLMContext
from frameledger.frames import AnyFrame
from frameledger.headers import read_place
from frameledger.ids import ContextId, Version
from frameledger.values import replace, value
from frameledger_services.client.errors import GatewayAnswerError
from frameledger_services.client.outcomes import PublishedFrame, acknowledged
from frameledger_services.client.reading import StoredContext, StoredFrame
from frameledger_services.store.contexts import loads

_VALUE = b',"frame":'
"""Precedes the value of a record, which comes last. Inside a text its quotes would be escaped, and no other field has
this name."""


@value
class Answer:
    """A response with its complete body."""

    url: str
    status: int
    headers: Mapping[str, str]
    """Names are case-insensitive."""

    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded, with neither an error nor a redirection."""
        return self.status // 100 == 2

    def json(self) -> Any:
        """Returns the value of the body. Raises ValueError."""
        return json.loads(self.content)


def newest_version(response: Answer) -> int:
    """Returns the version of a conversation from its entity tag, which a compressing proxy may have made weak."""
    tag = response.headers.get("etag", "").removeprefix("W/").strip('"').partition(".")[0]
    if not tag.isdigit():
        raise GatewayAnswerError(f"The response of {response.url} has no version: is it a gateway?")
    return int(tag)


def stored_context(context_id: str, content: bytes) -> StoredContext:
    """Returns the context in a response."""
    with reading():
        fields = loads(content.decode())
        wire = {name: fields[name] for name in ("messages", "tools", "tool_choice", "settings")}
        answers = fields["answers"]
        return StoredContext(
            ContextId(context_id),
            Version(fields["version"]),
            LLMContext.from_wire(wire, copy=False),
            prompt_caching=fields["prompt_caching"],
            skip_tts=fields["skip_tts"],
            # With a token that redacts content it is not a list.
            answers=tuple(answers) if isinstance(answers, list) else (),
            positions=tuple(fields["positions"]),
            mirror=fields["mirror"],
            parked_version=fields["parked_version"],
        )


def stored_frame(context_id: str, line: bytes) -> StoredFrame:
    """Returns the frame in a line of NDJSON, or in the data of an event."""
    about, _, value = line.partition(_VALUE)
    with reading():
        fields = orjson.loads(about + b"}")
        raw, produced_at, place = fields.get("raw"), fields["produced_at"], fields["place"]
        return StoredFrame(
            context_id=ContextId(context_id),
            version=Version(fields["version"]),
            frame_id=UUID(fields["id"]),
            type=fields["type"],
            outcome=fields["outcome"],
            reason=fields["reason"],
            logged_at=datetime.fromisoformat(fields["logged_at"]),
            produced_at=None if produced_at is None else datetime.fromisoformat(produced_at),
            source=fields["source"],
            run_id=fields["run_id"],
            tool_call_id=fields["tool_call_id"],
            partition=place["partition"],
            generation=place["generation"],
            offset=place["offset"],
            payload=raw.encode() if isinstance(raw, str) else value[:-1],
        )


def published_frames(content: bytes, frames: Sequence[AnyFrame | PublishedFrame]) -> list[PublishedFrame]:
    """Returns these frames with the positions and outcomes in a gateway's response."""
    with reading():
        listed = orjson.loads(content)["frames"]
        return [_published(answer, one) for answer, one in zip(listed, frames, strict=True)]


@contextmanager
def reading() -> Iterator[None]:
    """Raises `GatewayAnswerError` if the block, which reads a response, misses something in it."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _other_release(error) from error


def _published(answer: dict[str, Any], frame: AnyFrame | PublishedFrame) -> PublishedFrame:
    place = read_place(answer["place"].encode())
    if place is None:
        raise ValueError("a place is missing")
    published = frame if isinstance(frame, PublishedFrame) else acknowledged(place, frame)
    if "outcome" not in answer:
        return published
    return replace(
        published,
        version=answer["version"],
        outcome=answer["outcome"],
        reason=answer["reason"],
        repeated=answer["duplicate"],
    )


def _other_release(error: Exception) -> GatewayAnswerError:
    return GatewayAnswerError(
        f"The gateway's answer cannot be read ({type(error).__name__}: {error}). It is probably of another release."
    )
