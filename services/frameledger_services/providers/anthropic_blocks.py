"""Messages of the standard form as blocks of Anthropic's messages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from frameledger_services.providers import call_arguments, content
from frameledger_services.providers.errors import UnmappableError

_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

Block = dict[str, Any]


def of_content(provider: str, place: int, message: Mapping[str, Any]) -> list[Block]:
    """Returns the blocks of a checked message's content. Whitespace-only text is omitted: the API refuses it."""
    return [
        block for part in content.parts(message) if (block := _of_part(provider, place, part)) is not None
    ]


def tool_use(call: Mapping[str, Any]) -> Block:
    """Returns the block of a call. The API takes only objects: others are wrapped under the key `arguments`."""
    function = call["function"]
    return {
        "type": "tool_use",
        "id": tool_id(call["id"]),
        "name": function["name"],
        "input": call_arguments.as_object(function.get("arguments")),
    }


def tool_result(provider: str, place: int, message: Mapping[str, Any]) -> Block:
    """Returns the block of a tool message; it may contain images and documents."""
    block = {"type": "tool_result", "tool_use_id": tool_id(message["tool_call_id"])}
    tool_content = message.get("content")
    result = tool_content if isinstance(tool_content, str) else of_content(provider, place, message)
    return block | ({"content": result} if result else {})


def tool_id(tool_call_id: str) -> str:
    """Returns the id in a form that the API accepts: an id that is too long, or has other characters, is replaced by
    its hash everywhere."""
    if _TOOL_ID.fullmatch(tool_call_id):
        return tool_call_id
    return "toolu_" + hashlib.sha256(tool_call_id.encode(errors="backslashreplace")).hexdigest()[:32]


def thought(message: object, *, unsigned: bool = False) -> Block | None:
    """Returns a stored thought as its original block, byte for byte; None for an unsigned one, which the API refuses,
    unless the server signs none (`unsigned`).

    A signature that is an object is the whole block, as of a thought that only the provider can read.
    """
    match message:
        case {"signature": Mapping() as block}:
            return dict(block)
        case {"text": str(text), "signature": str(signature)} if signature:
            return {"type": "thinking", "thinking": text, "signature": signature}
        case {"text": str(text)} if text and unsigned:
            return {"type": "thinking", "thinking": text, "signature": ""}
    return None


def _of_part(provider: str, place: int, part: Mapping[str, Any]) -> Block | None:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text} if text.strip() else None
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            source = _source(url, _IMAGES)
            if source is not None:
                return {"type": "image", "source": source}
        case {"type": "file", "file": Mapping() as file}:
            block = _document(file)
            if block is not None:
                return block
    where = f"message {place + 1} of the request"
    raise UnmappableError(provider, f"a part of type {part['type']!r} in {where}, in the form that it has")


def _document(file: Mapping[str, Any]) -> Block | None:
    title = {"title": file["filename"]} if isinstance(file.get("filename"), str) else {}
    match file:
        case {"file_data": str(data)}:
            source = _source(data, frozenset({"application/pdf"}))
            return None if source is None else {"type": "document", "source": source} | title
        case {"file_id": str(file_id)}:
            return {"type": "document", "source": {"type": "file", "file_id": file_id}} | title
    return None


def _source(url: str, kinds: frozenset[str]) -> dict[str, Any] | None:
    """Returns the source of an image or a document; None for an address or a media type that the API refuses."""
    data = content.data_url(url)
    if data is not None:
        media_type, encoded_bytes = data
        media_type = "image/jpeg" if media_type == "image/jpg" else media_type
        if media_type not in kinds:
            return None
        return {"type": "base64", "media_type": media_type, "data": encoded_bytes}
    return {"type": "url", "url": url} if url.startswith(("https://", "http://")) else None
