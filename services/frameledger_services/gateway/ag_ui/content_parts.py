"""Converts the parts of a message's content between the stored format and the protocol's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Part = dict[str, Any]

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def to_client(content: Any) -> str | list[Part]:
    """Returns stored content in the protocol's format. Parts that the protocol cannot represent are left out."""
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    return [part for part in map(_to_client, content) if part is not None]


def to_stored(content: str | Sequence[Mapping[str, Any]]) -> str | list[Part]:
    """Returns a client's content in the stored format. A part that no model accepts in that form is left out and does
    not fail the run, as the protocol requires."""
    if isinstance(content, str):
        return content
    return [part for part in map(_to_stored, content) if part is not None]


def text_of(content: Any) -> str:
    """Returns the text of content in either format."""
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def _to_client(part: Any) -> Part | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": _source(url)}
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            mime = {"mp3": "audio/mpeg"}.get(kind, f"audio/{kind}")
            return {"type": "audio", "source": {"type": "data", "value": data, "mimeType": mime}}
        case {"type": "file", "file": {"file_data": str(data)}}:
            return {"type": "document", "source": _source(data)}
        case {"type": "file", "file": {"file_id": str(file_id)}}:
            return {"type": "document", "source": {"type": "file", "value": file_id}}
    return None


def _to_stored(part: Mapping[str, Any]) -> Part | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "url", "value": str(url)}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "image", "source": {"type": "data", "value": str(data), "mimeType": str(mime)}}:
            return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
        case {"type": "audio", "source": {"type": "data", "value": str(data), "mimeType": str(mime)}}:
            kind = _AUDIO.get(mime)
            return (
                None
                if kind is None
                else {"type": "input_audio", "input_audio": {"data": data, "format": kind}}
            )
        case {"type": "document", "source": {"type": "data", "value": str(data), "mimeType": str(mime)}}:
            return {"type": "file", "file": {"file_data": f"data:{mime};base64,{data}"}}
        case {"type": "document", "source": {"type": "file", "value": str(file_id)}}:
            return {"type": "file", "file": {"file_id": file_id}}
    return None


def _source(url: str) -> Part:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return {"type": "url", "value": url}
    return {"type": "data", "value": match[2], "mimeType": match[1]}
