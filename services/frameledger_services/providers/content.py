"""Checks standard messages before an adapter reads them: roles, parts of content, calls. First converts parts in the
forms of the Pipecat bridge to standard ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from frameledger_services.omitted_media import has_omitted_media, with_text_for_media
from frameledger_services.providers.errors import UnmappableError

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,;]+)*?;base64,", re.IGNORECASE)


def standard(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the message with Pipecat's file parts as standard ones, and with a text for media that are not stored."""
    if isinstance(message.get("content"), str | None):
        return message
    if has_omitted_media(message):
        message = with_text_for_media(message)
    content = message["content"]
    if not isinstance(content, list | tuple):
        return message
    return {**message, "content": [_standard_part(part) for part in content]}


def check(provider: str, place: int, message: Mapping[str, Any]) -> None:
    """Raises `UnmappableError` for a malformed message, and names its position."""
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise UnmappableError(provider, f"message {place + 1} of the request, whose role is {role!r}")
    where = f"message {place + 1} of the request ({role})"
    content = message.get("content")
    calls = message.get("tool_calls")
    if isinstance(content, list | tuple):
        for number, part in enumerate(content, 1):
            _check_part(provider, f"part {number} of {where}", part)
    elif content is None:
        if role != "assistant":
            raise UnmappableError(provider, f"{where}, which has no content")
    elif not isinstance(content, str):
        raise UnmappableError(
            provider, f"{where}, whose content is neither text nor a list but {type(content).__name__}"
        )
    if calls is not None:
        _check_calls(provider, where, role, calls)


def parts(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the content of a checked message as parts: text becomes one text part, None becomes no parts."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content or ()


def text_of(message: Mapping[str, Any]) -> str:
    """Returns the text of a checked message: its text parts joined by line breaks. Other parts are omitted."""
    return "\n".join(part["text"] for part in parts(message) if part["type"] == "text")


def data_url(url: str) -> tuple[str, str] | None:
    """Returns media type and base64 of a data URL; None for any other URL."""
    head = _DATA_URL.match(url)
    return None if head is None else (head[1].lower(), url[head.end() :])


def _standard_part(part: Any) -> Any:
    match part:
        case {
            "type": "file_base64",
            "file": {"file_data": str(url), "mime_type": str(kind)},
        } | {"type": "file_url", "file": {"url": str(url), "mime_type": str(kind)}} if kind.startswith(
            "image/"
        ):
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "file_base64", "file": {"file_data": str(data), **about}}:
            name = about.get("filename")
            return {"type": "file", "file": {"file_data": data} | ({"filename": name} if name else {})}
        case {"type": "file_url", "file": {"url": str(url), **about}}:
            # No two providers fetch the same kinds of files.
            named = " ".join(str(about[name]) for name in ("mime_type", "filename") if about.get(name))
            return {"type": "text", "text": f"({named or 'file'}: {url})"}
    return part


def _check_part(provider: str, where: str, part: object) -> None:
    match part:
        case {"type": "text", "text": str()} | {"type": "refusal", "refusal": str()}:
            return
        case {"type": "image_url", "image_url": {"url": str()}}:
            return
        case {"type": "input_audio", "input_audio": {"data": str(), "format": str()}}:
            return
        case {"type": "file", "file": Mapping()}:
            return
        case {"type": str(kind)}:
            known = kind in {"text", "refusal", "image_url", "input_audio", "file"}
            reason = "which lacks its content" if known else "an unknown kind"
            raise UnmappableError(provider, f"{where}, of type {kind!r}, {reason}")
        case _:
            raise UnmappableError(provider, f"{where}, which is not an object with a type")


def _check_calls(provider: str, where: str, role: object, calls: object) -> None:
    if role != "assistant":
        raise UnmappableError(provider, f"{where}, which has tool_calls but is not an assistant message")
    if not isinstance(calls, list | tuple):
        raise UnmappableError(provider, f"{where}, whose tool_calls are not a list")
    for call in calls:
        match call:
            case {"id": str(), "function": {"name": str(name)}} if name:
                continue
        raise UnmappableError(provider, f"{where}, which has a tool call without an id or a function name")
