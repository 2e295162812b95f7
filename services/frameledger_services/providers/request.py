"""`Request`: the complete request of one inference, before it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from frameledger import surrogates


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model. Equal contexts, settings and instructions give equal bytes in every process."""

    provider: str
    model: str
    body: Mapping[str, Any]
    """The JSON object that the provider gets."""

    content: bytes
    """`body` as UTF-8 JSON: exactly the bytes that are sent."""

    builtin_tools: frozenset[str] = field(default=frozenset())
    """Names of the offered built-in functions of the function service, such as `cancel_<name>`."""

    @classmethod
    def of(
        cls, provider: str, model: str, body: Mapping[str, Any], builtin_tools: frozenset[str] = frozenset()
    ) -> Self:
        """Returns the request with this body. Keys keep their order, because providers cache requests by prefix."""
        text = _text(body)
        try:
            content = text.encode()
        except UnicodeEncodeError:
            content = _without_halves(text)
            body = json.loads(content)
        return cls(provider, model, body, content, builtin_tools)

    @property
    def sha256(self) -> str:
        """The SHA-256 of `content` in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def encoded(value: Any) -> bytes:
    """Returns compact JSON in UTF-8. A lone surrogate becomes the text of its escape, as in the log: APIs reject a body
    with half a character."""
    text = _text(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _without_halves(text)


def _without_halves(text: str) -> bytes:
    return surrogates.write_out_halves(text.encode(errors="backslashreplace"))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
