"""Messages without their images, sounds and files, short enough for logs."""

import re
from collections.abc import Mapping
from typing import Any

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[^,;]{1,100}){0,5}),", re.IGNORECASE)

# Keys whose text people or models wrote. It is kept even if it looks like a data URL.
_TEXT_KEYS = frozenset({"text", "content", "arguments", "thinking", "signature"})

# The keys of encoded bytes, by provider: `file_data` (OpenAI's files) and `b64_json` (its images) contain nothing else.
# `data` and `bytes` do so only in these holders: elsewhere `data` may be an encrypted thought.
_ENCODED_KEYS = frozenset({"file_data", "b64_json"})
_ENCODED_KEYS_IN_HOLDERS = frozenset({"data", "bytes"})
_HOLDERS = frozenset({"input_audio", "audio", "source", "inline_data", "inlineData"})

_KIND_KEYS = ("media_type", "mime_type", "mimeType", "format", "filename", "type")


def without_media(value: Any, holder: str = "") -> Any:
    """Returns a copy of the JSON value with a short note in place of each embedded image, sound or file.

    The note has the kind, as far as neighbouring fields show it, and the size in bytes. Data URLs are replaced, and
    base64 in the places where OpenAI, Anthropic, Gemini and Bedrock have it, at any depth. Text and remote URLs stay
    unchanged. `holder` is the key under which `value` was found.
    """
    if isinstance(value, Mapping):
        return {key: _field(value, key, item, holder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_media(item, holder) for item in value]
    if isinstance(value, str) and holder not in _TEXT_KEYS:
        return _without_data_url(value)
    return value


def _field(fields: Mapping[str, Any], key: str, value: Any, holder: str) -> Any:
    if isinstance(value, str) and _is_encoded(fields, key, holder) and not _DATA_URL.match(value):
        kind = next((fields[k] for k in _KIND_KEYS if isinstance(fields.get(k), str)), holder or key)
        return _note(kind, _decoded_size(value))
    return without_media(value, key)


def _is_encoded(fields: Mapping[str, Any], key: str, holder: str) -> bool:
    if key in _ENCODED_KEYS:
        return True
    # Anthropic's documents may be plain text: {"type": "text", "data": "..."}.
    return key in _ENCODED_KEYS_IN_HOLDERS and holder in _HOLDERS and fields.get("type") != "text"


def _without_data_url(text: str) -> str:
    head = _DATA_URL.match(text)
    if head is None:
        return text
    payload = text[head.end() :]
    encoded = head[2].lower().endswith(";base64")
    return _note(head[1] or "text/plain", _decoded_size(payload) if encoded else len(payload))


def _decoded_size(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _note(kind: str, size: int) -> str:
    return f"[{kind}, {size} bytes, left out]"
