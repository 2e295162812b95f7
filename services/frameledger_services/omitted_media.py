"""Media in messages that were too large to store: a mark with hash and size is stored in their place. Pure.

The Pipecat bridge stores the mark. Code that reads such a message for a model, a restored pipeline or an inference
worker, replaces it by a text: providers refuse the mark, and every later answer would fail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

# An object with only the first name is the mark. An application's object with that shape is stored within the second.
MEDIA, PLAIN = "$media", "$plain"


def mark(data_url: str) -> dict[str, Any]:
    """Returns what is stored instead of a `data:` URL."""
    kind = data_url[5:].partition(",")[0].partition(";")[0]
    digest = hashlib.sha256(data_url.encode("utf-8", "surrogatepass")).hexdigest()
    return {MEDIA: {"sha256": digest, "characters": len(data_url), "type": kind[:100]}}


def has_omitted_media(value: Any) -> bool:
    """Returns whether a value contains a mark."""
    return next(_marks_in(value), None) is not None


def with_text_for_media(value: Any) -> Any:
    """Returns the message, or a value within it, with a text in place of each mark. A part of its content becomes a
    text part."""
    match value:
        case {"$media": Mapping() as medium} if len(value) == 1:
            return _description(medium)
        case {"$plain": _} if len(value) == 1:
            return value
        case Mapping():
            return {
                name: [_part(part) for part in one]
                if name == "content" and isinstance(one, list | tuple)
                else with_text_for_media(one)
                for name, one in value.items()
            }
        case list() | tuple():
            return [with_text_for_media(one) for one in value]
    return value


def _part(part: Any) -> Any:
    medium = next(_marks_in(part), None)
    return part if medium is None else {"type": "text", "text": _description(medium)}


def _marks_in(value: Any) -> Iterator[Mapping[str, Any]]:
    match value:
        case {"$media": Mapping() as medium} if len(value) == 1:
            yield medium
        case {"$plain": _} if len(value) == 1:
            return
        case Mapping():
            for one in value.values():
                yield from _marks_in(one)
        case list() | tuple():
            for one in value:
                yield from _marks_in(one)


def _description(medium: Mapping[str, Any]) -> str:
    characters = medium.get("characters")
    size = f" of {characters * 3 / 4e6:.1f} MB" if isinstance(characters, int) else ""
    return f"({medium.get('type') or 'medium'}{size}, not stored)"
